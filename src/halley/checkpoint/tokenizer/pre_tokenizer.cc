#include "halley/checkpoint/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/byte_level.h"
#include "halley/checkpoint/tokenizer/component.h"
#include "halley/checkpoint/tokenizer/metaspace.h"
#include "halley/checkpoint/tokenizer/oniguruma.h"
#include "halley/checkpoint/tokenizer/pcre.h"
#include "halley/checkpoint/tokenizer/split_behavior.h"
#include "halley/checkpoint/tokenizer/text_pattern.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

constexpr int kDepthMax = 16;
// GPT-2's split pattern.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// \w+|[^\w\s]+ as the regex crate of Rust means it (there \w has the join controls too).
constexpr const char* kWhitespacePattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\p{White_Space}]+)";

Piece sub_piece(const Piece& piece, const TextRange& part) {
  const size_t num_start =
      piece.num_start_bytes > part.begin ? piece.num_start_bytes - part.begin : 0;
  return {piece.begin + part.begin, piece.begin + part.end, -1, num_start};
}

// Pre-tokenizers that cut and leave the text as it is.
class Cutter : public PreTokenizer {
 public:
  void apply(SplitText& split) const override {
    std::vector<Piece> pieces;
    std::vector<TextRange> parts;
    for (const Piece& piece : split.pieces) {
      if (piece.added_id >= 0) {
        pieces.push_back(piece);
        continue;
      }
      parts.clear();
      cut(std::string_view(split.text).substr(piece.begin, piece.end - piece.begin), parts);
      for (const TextRange& part : parts) pieces.push_back(sub_piece(piece, part));
    }
    split.pieces = std::move(pieces);
  }

 protected:
  /// Appends the parts of `text`, in order, none of them empty.
  virtual void cut(std::string_view text, std::vector<TextRange>& parts) const = 0;
};

// Cuts at each character that `is_delimiter` names.
class CharCutter : public Cutter {
 public:
  explicit CharCutter(SplitBehavior behavior) : behavior_(behavior) {}

 protected:
  virtual bool is_delimiter(uint32_t code) const = 0;

  void cut(std::string_view text, std::vector<TextRange>& parts) const override {
    std::vector<TextRange> matches;
    for (size_t i = 0; i < text.size();) {
      const Utf8Char next = first_char(text.substr(i));
      if (is_delimiter(next.code)) matches.push_back({i, i + next.num_bytes});
      i += next.num_bytes;
    }
    cut_at_matches(matches, text.size(), behavior_, /*invert=*/false, parts);
  }

 private:
  SplitBehavior behavior_;
};

class PredicateCutter : public CharCutter {
 public:
  using Predicate = bool (*)(uint32_t);
  PredicateCutter(SplitBehavior behavior, Predicate predicate)
      : CharCutter(behavior), predicate_(predicate) {}

 protected:
  bool is_delimiter(uint32_t code) const override { return predicate_(code); }

 private:
  Predicate predicate_;
};

class CharDelimiterCutter : public CharCutter {
 public:
  explicit CharDelimiterCutter(uint32_t delimiter)
      : CharCutter(SplitBehavior::kRemoved), delimiter_(delimiter) {}

 protected:
  bool is_delimiter(uint32_t code) const override { return code == delimiter_; }

 private:
  uint32_t delimiter_;
};

class SplitCutter : public Cutter {
 public:
  explicit SplitCutter(const Component& config)
      : pattern_(TextPattern::parse(config.member("pattern"), config.where("pattern"))),
        behavior_(parse_split_behavior(config.text("behavior"), config.where("behavior"))),
        invert_(config.boolean("invert")) {}

 protected:
  void cut(std::string_view text, std::vector<TextRange>& parts) const override {
    cut_at_matches(pattern_.find_all(text), text.size(), behavior_, invert_, parts);
  }

 private:
  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class WhitespaceCutter : public Cutter {
 public:
  explicit WhitespaceCutter(const std::string& where) : pattern_(kWhitespacePattern, where) {}

 protected:
  void cut(std::string_view text, std::vector<TextRange>& parts) const override {
    cut_at_matches(pattern_.find_all(text), text.size(), SplitBehavior::kRemoved, /*invert=*/true,
                   parts);
  }

 private:
  PcrePattern pattern_;
};

class FixedLengthCutter : public Cutter {
 public:
  explicit FixedLengthCutter(int64_t num_chars) : num_chars_(num_chars) {}

 protected:
  void cut(std::string_view text, std::vector<TextRange>& parts) const override {
    size_t begin = 0;
    int64_t num_chars = 0;
    for (size_t i = 0; i < text.size();) {
      i += first_char(text.substr(i)).num_bytes;
      if (++num_chars == num_chars_ || i == text.size()) {
        parts.push_back({begin, i});
        begin = i;
        num_chars = 0;
      }
    }
  }

 private:
  int64_t num_chars_;
};

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  void apply(SplitText& split) const override {
    for (const auto& step : steps_) step->apply(split);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

// Writes the bytes of each word in the visible alphabet.
class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  explicit ByteLevelPreTokenizer(const Component& config)
      : add_prefix_space_(config.boolean("add_prefix_space")) {
    if (config.boolean_or("use_regex", true)) {
      pattern_.emplace(pcre_from_oniguruma(kByteLevelPattern, config.where()), config.where());
    }
  }

  void apply(SplitText& split) const override {
    SplitText result;
    result.text.reserve(split.text.size() + split.text.size() / 2);
    result.pieces.reserve(split.pieces.size());
    for (const Piece& piece : split.pieces) {
      if (piece.added_id >= 0) {
        result.pieces.push_back(piece);
        continue;
      }
      const std::string_view text =
          std::string_view(split.text).substr(piece.begin, piece.end - piece.begin);
      if (add_prefix_space_ && text[0] != ' ') {
        add(str(" ", text), piece.num_start_bytes, result);
      } else {
        add(text, piece.num_start_bytes, result);
      }
    }
    split = std::move(result);
  }

 private:
  void add(std::string_view text, size_t num_start_bytes, SplitText& result) const {
    std::vector<TextRange> parts;
    if (pattern_) {
      cut_at_matches(pattern_->find_all(text), text.size(), SplitBehavior::kIsolated,
                     /*invert=*/false, parts);
    } else {
      parts.push_back({0, text.size()});
    }
    for (const TextRange& part : parts) {
      const size_t begin = result.text.size();
      append_byte_level(result.text, text.substr(part.begin, part.end - part.begin));
      const size_t num_start = num_start_bytes > part.begin ? num_start_bytes - part.begin : 0;
      result.pieces.push_back({begin, result.text.size(), -1, num_start});
    }
  }

  bool add_prefix_space_;
  std::optional<PcrePattern> pattern_;
};

// Spaces become a visible character, each of which starts a word.
class MetaspacePreTokenizer : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(const MetaspaceConfig& config) : config_(config) {}

  void apply(SplitText& split) const override {
    SplitText result;
    result.text.reserve(split.text.size() + split.text.size() / 2);
    for (const Piece& piece : split.pieces) {
      if (piece.added_id >= 0) {
        result.pieces.push_back(piece);
      } else {
        add(std::string_view(split.text).substr(piece.begin, piece.end - piece.begin),
            piece.num_start_bytes, result);
      }
    }
    split = std::move(result);
  }

 private:
  void add(std::string_view text, size_t num_start_bytes, SplitText& result) const {
    const std::string& mark = config_.replacement;
    const size_t piece_begin = result.text.size();
    const bool is_wanted = config_.scheme == PrependScheme::kAlways ||
                           (config_.scheme == PrependScheme::kFirst && num_start_bytes > 0);
    const bool is_prepended = is_wanted && text[0] != ' ' && !text.starts_with(mark);
    if (is_prepended) result.text += mark;
    for (const char c : text) {
      if (c == ' ') {
        result.text += mark;
      } else {
        result.text.push_back(c);
      }
    }
    const size_t num_start = num_start_bytes == 0 ? 0 : num_start_bytes + mark.size();
    add_words(piece_begin, num_start, result);
  }

  void add_words(size_t begin, size_t num_start_bytes, SplitText& result) const {
    const size_t end = result.text.size();
    size_t word_begin = begin;
    while (word_begin < end) {
      size_t word_end = end;
      if (config_.split) {
        word_end = std::min(end, result.text.find(config_.replacement, word_begin + 1));
      }
      const size_t offset = word_begin - begin;
      result.pieces.push_back(
          {word_begin, word_end, -1, num_start_bytes > offset ? num_start_bytes - offset : 0});
      word_begin = word_end;
    }
  }

  MetaspaceConfig config_;
};

std::unique_ptr<PreTokenizer> make_predicate(SplitBehavior behavior,
                                             PredicateCutter::Predicate predicate) {
  return std::make_unique<PredicateCutter>(behavior, predicate);
}

std::unique_ptr<PreTokenizer> parse(const Json& value, const std::string& where, int depth);

std::unique_ptr<PreTokenizer> parse_sequence(const Component& config, int depth) {
  if (depth >= kDepthMax) {
    throw InputError(
        str(config.where(), ": expected at most ", kDepthMax, " nested sequences, got more."));
  }
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (const Json& element : config.array("pretokenizers")) {
    steps.push_back(
        parse(element, str(config.where(), ".pretokenizers[", steps.size(), "]"), depth + 1));
  }
  return std::make_unique<SequencePreTokenizer>(std::move(steps));
}

std::unique_ptr<PreTokenizer> parse(const Json& value, const std::string& where, int depth) {
  const Component config(value, where);
  const std::string type = config.type();
  if (type == "Sequence") return parse_sequence(config, depth);
  if (type == "ByteLevel") return std::make_unique<ByteLevelPreTokenizer>(config);
  if (type == "Split") return std::make_unique<SplitCutter>(config);
  if (type == "Metaspace") return std::make_unique<MetaspacePreTokenizer>(parse_metaspace(config));
  if (type == "Whitespace") return std::make_unique<WhitespaceCutter>(where);
  if (type == "WhitespaceSplit") return make_predicate(SplitBehavior::kRemoved, is_white_space);
  if (type == "Digits") {
    const bool is_individual = config.boolean("individual_digits");
    return make_predicate(is_individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                          is_numeric);
  }
  if (type == "Punctuation") {
    const std::string behavior = config.text_or("behavior", "Isolated");
    return make_predicate(parse_split_behavior(behavior, config.where("behavior")), is_punctuation);
  }
  if (type == "CharDelimiterSplit") {
    return std::make_unique<CharDelimiterCutter>(config.character("delimiter"));
  }
  if (type == "BertPreTokenizer") {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(make_predicate(SplitBehavior::kRemoved, is_white_space));
    steps.push_back(make_predicate(SplitBehavior::kIsolated, is_punctuation));
    return std::make_unique<SequencePreTokenizer>(std::move(steps));
  }
  if (type == "FixedLength") {
    const int64_t length = config.find("length") == nullptr ? 5 : config.integer("length", 1 << 30);
    if (length == 0) config.fail("length", "an integer from 1");
    return std::make_unique<FixedLengthCutter>(length);
  }
  throw UnsupportedError(str(where, ": the pre-tokenizer ", quote(type), " is not supported."));
}

}  // namespace

std::unique_ptr<PreTokenizer> parse_pre_tokenizer(const Json& value, const std::string& where) {
  return parse(value, where, 0);
}

}  // namespace halley
