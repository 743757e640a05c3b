#include "halley/checkpoint/tokenizer/normalizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/byte_level.h"
#include "halley/checkpoint/tokenizer/component.h"
#include "halley/checkpoint/tokenizer/text_pattern.h"
#include "halley/checkpoint/tokenizer/unicode_normal_form.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

constexpr int kDepthMax = 16;

// Normalizers that map each character by itself, or nearly so: what comes from the first character
// is what they make of it alone.
class CharwiseNormalizer : public Normalizer {
 public:
  void apply(NormalText& text) const override {
    std::string result = map(text.text);
    size_t num_start_bytes = 0;
    if (text.num_start_bytes > 0) {
      const std::string_view start = std::string_view(text.text).substr(0, text.num_start_bytes);
      num_start_bytes = std::min(map(start).size(), result.size());
    }
    text = {std::move(result), num_start_bytes};
  }

 protected:
  virtual std::string map(std::string_view text) const = 0;
};

// Calls visit(code) for each character.
template <typename Visit>
void for_each_char(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const Utf8Char next = first_char(text);
    visit(next.code);
    text.remove_prefix(next.num_bytes);
  }
}

class NormalFormNormalizer : public CharwiseNormalizer {
 public:
  explicit NormalFormNormalizer(NormalForm form) : form_(form) {}
  std::string map(std::string_view text) const override { return to_normal_form(text, form_); }

 private:
  NormalForm form_;
};

class LowercaseNormalizer : public CharwiseNormalizer {
 public:
  std::string map(std::string_view text) const override {
    std::string result;
    for_each_char(text, [&](uint32_t code) { append_lower_case(result, code); });
    return result;
  }
};

class StripAccentsNormalizer : public CharwiseNormalizer {
 public:
  std::string map(std::string_view text) const override {
    std::string result;
    for_each_char(text, [&](uint32_t code) {
      if (!is_mark(code)) append_utf8(result, code);
    });
    return result;
  }
};

class ByteLevelNormalizer : public CharwiseNormalizer {
 public:
  std::string map(std::string_view text) const override {
    std::string result;
    append_byte_level(result, text);
    return result;
  }
};

// The rules of Moses-like translation systems: control characters go, odd spaces become a space.
class NmtNormalizer : public CharwiseNormalizer {
 public:
  std::string map(std::string_view text) const override {
    std::string result;
    for_each_char(text, [&](uint32_t code) {
      if (!is_dropped(code)) append_utf8(result, is_space(code) ? ' ' : code);
    });
    return result;
  }

 private:
  static bool is_dropped(uint32_t code) {
    return (code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) ||
           code == 0x7F || code == 0x8F || code == 0x9F;
  }
  static bool is_space(uint32_t code) {
    return code == 9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
           code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  }
};

class BertNormalizer : public CharwiseNormalizer {
 public:
  explicit BertNormalizer(const Component& config)
      : clean_text_(config.boolean("clean_text")),
        handle_chinese_chars_(config.boolean("handle_chinese_chars")),
        lowercase_(config.boolean("lowercase")),
        strip_accents_(config.boolean_or("strip_accents", lowercase_)) {}

  std::string map(std::string_view text) const override {
    std::string result;
    for_each_char(text, [&](uint32_t code) { add(result, code); });
    if (strip_accents_) {
      const std::string decomposed = to_normal_form(result, NormalForm::kNfd);
      result.clear();
      for_each_char(decomposed, [&](uint32_t code) {
        if (!is_nonspacing_mark(code)) append_utf8(result, code);
      });
    }
    return lowercase_ ? LowercaseNormalizer().map(result) : result;
  }

 private:
  static bool is_chinese(uint32_t code) {
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B81F) ||
           (code >= 0x2B920 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
           (code >= 0x2F800 && code <= 0x2FA1F);
  }

  void add(std::string& result, uint32_t code) const {
    if (clean_text_) {
      if (is_white_space(code)) {
        code = ' ';
      } else if (code == 0 || code == 0xFFFD || is_other(code)) {
        return;
      }
    }
    const bool is_separate = handle_chinese_chars_ && is_chinese(code);
    if (is_separate) result.push_back(' ');
    append_utf8(result, code);
    if (is_separate) result.push_back(' ');
  }

  bool clean_text_;
  bool handle_chinese_chars_;
  bool lowercase_;
  bool strip_accents_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string text) : prepended_(std::move(text)) {}
  void apply(NormalText& text) const override {
    if (text.text.empty()) return;
    text.text.insert(0, prepended_);
    if (text.num_start_bytes > 0) text.num_start_bytes += prepended_.size();
  }

 private:
  std::string prepended_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  explicit ReplaceNormalizer(const Component& config)
      : pattern_(TextPattern::parse(config.member("pattern"), config.where("pattern"))),
        content_(config.text("content")) {}

  void apply(NormalText& text) const override {
    const std::vector<TextRange> matches = pattern_.find_all(text.text);
    if (matches.empty()) return;
    NormalText result;
    size_t begin = 0;
    for (const TextRange& match : matches) {
      copy(text, begin, match.begin, result);
      result.text += content_;
      // The replacement counts as coming from the match's last character.
      const size_t source = match.end > 0 ? match.end - 1 : 0;
      if (source < text.num_start_bytes) result.num_start_bytes += content_.size();
      begin = match.end;
    }
    copy(text, begin, text.text.size(), result);
    text = std::move(result);
  }

 private:
  static void copy(const NormalText& text, size_t begin, size_t end, NormalText& result) {
    result.text.append(text.text, begin, end - begin);
    if (begin < text.num_start_bytes) {
      result.num_start_bytes += std::min(end, text.num_start_bytes) - begin;
    }
  }

  TextPattern pattern_;
  std::string content_;
};

class StripNormalizer : public Normalizer {
 public:
  explicit StripNormalizer(const Component& config)
      : left_(config.boolean("strip_left")), right_(config.boolean("strip_right")) {}

  void apply(NormalText& text) const override {
    const std::string_view all = text.text;
    size_t begin = 0;
    size_t end = all.size();
    while (left_ && begin < end && is_white_space(first_char(all.substr(begin)).code)) {
      begin += first_char(all.substr(begin)).num_bytes;
    }
    while (right_ && begin < end) {
      const size_t last = last_char_begin(all.substr(0, end));
      if (!is_white_space(first_char(all.substr(last)).code)) break;
      end = last;
    }
    const size_t num_start_bytes = text.num_start_bytes > begin ? text.num_start_bytes - begin : 0;
    text = {std::string(all.substr(begin, end - begin)), num_start_bytes};
  }

 private:
  bool left_;
  bool right_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> normalizers)
      : normalizers_(std::move(normalizers)) {}
  void apply(NormalText& text) const override {
    for (const auto& normalizer : normalizers_) normalizer->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> normalizers_;
};

std::unique_ptr<Normalizer> parse(const Json& value, const std::string& where, int depth) {
  const Component config(value, where);
  const std::string type = config.type();
  if (type == "Sequence") {
    if (depth >= kDepthMax) {
      throw InputError(
          str(where, ": expected at most ", kDepthMax, " nested sequences, got more."));
    }
    std::vector<std::unique_ptr<Normalizer>> normalizers;
    for (const Json& element : config.array("normalizers")) {
      const std::string place = str(where, ".normalizers[", normalizers.size(), "]");
      normalizers.push_back(parse(element, place, depth + 1));
    }
    return std::make_unique<SequenceNormalizer>(std::move(normalizers));
  }
  if (type == "NFC") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Nmt") return std::make_unique<NmtNormalizer>();
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(config);
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(config.text("prepend"));
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(config);
  if (type == "Strip") return std::make_unique<StripNormalizer>(config);
  if (type == "Precompiled") {
    throw UnsupportedError(str(where,
                               ": the normalizer \"Precompiled\" (SentencePiece's character "
                               "map) is not supported in tokenizer.json. Use the model's "
                               "tokenizer.model: remove tokenizer.json from the directory."));
  }
  throw UnsupportedError(str(where, ": the normalizer ", quote(type), " is not supported."));
}

}  // namespace

std::unique_ptr<Normalizer> parse_normalizer(const Json& value, const std::string& where) {
  return parse(value, where, 0);
}

}  // namespace halley
