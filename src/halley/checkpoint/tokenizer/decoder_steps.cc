#include "halley/checkpoint/tokenizer/decoder_steps.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/byte_level.h"
#include "halley/checkpoint/tokenizer/metaspace.h"
#include "halley/checkpoint/tokenizer/text_pattern.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

// A decoder whose sink is made from the decoder's settings.
template <typename Sink, typename Settings>
class SettingsDecoder : public TokenDecoder {
 public:
  explicit SettingsDecoder(Settings settings) : settings_(std::move(settings)) {}
  std::unique_ptr<TokenSink> start(TokenSink& next) const override {
    return std::make_unique<Sink>(settings_, next);
  }

 private:
  Settings settings_;
};

struct NoSettings {};

// Collects a token's text and maps the token as a whole.
class WholeTokenSink : public TokenSink {
 public:
  explicit WholeTokenSink(TokenSink& next) : next_(next) {}
  void text(std::string_view text) override { token_ += text; }
  void end_token() override { take(std::exchange(token_, {})); }
  void finish() override { next_.finish(); }

 protected:
  virtual void take(std::string token) = 0;
  void emit(std::string_view token) {
    next_.text(token);
    next_.end_token();
  }
  TokenSink& next_;

 private:
  std::string token_;
};

// All tokens' bytes are one text.
class ByteLevelSink : public WholeTokenSink {
 public:
  ByteLevelSink(const NoSettings&, TokenSink& next) : WholeTokenSink(next) {}
  void finish() override {
    std::string text;
    utf8_.finish(text);
    emit(text);
    next_.finish();
  }

 protected:
  void take(std::string token) override {
    const std::optional<std::string> bytes = bytes_of_byte_level(token);
    std::string text;
    utf8_.push(bytes ? *bytes : token, text);
    if (!text.empty()) next_.text(text);
  }

 private:
  LossyUtf8 utf8_;
};

// A run of tokens <0xNN> is one text where its bytes are valid UTF-8; else each byte is U+FFFD. So
// nothing of a run is certain before its end.
class ByteFallbackSink : public TokenSink {
 public:
  ByteFallbackSink(const NoSettings&, TokenSink& next) : next_(next) {}

  void text(std::string_view text) override {
    if (is_passing_) return next_.text(text);
    token_ += text;
    if (token_.size() <= kByteTokenBytes) return;
    end_run();
    next_.text(token_);
    is_passing_ = true;
  }

  void end_token() override {
    const int byte = is_passing_ ? -1 : byte_of_token();
    if (byte >= 0) {
      run_.push_back(static_cast<char>(byte));
    } else {
      if (!is_passing_) {
        end_run();
        next_.text(token_);
      }
      next_.end_token();
    }
    token_.clear();
    is_passing_ = false;
  }

  void finish() override {
    end_run();
    next_.finish();
  }

 private:
  static constexpr size_t kByteTokenBytes = 6;  // <0xNN>

  static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  }

  int byte_of_token() const {
    if (token_.size() != kByteTokenBytes || !token_.starts_with("<0x") || token_[5] != '>')
      return -1;
    const int high = hex_digit(token_[3]);
    const int low = hex_digit(token_[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }

  void end_run() {
    if (run_.empty()) return;
    if (is_valid_utf8(run_)) {
      next_.text(run_);
      next_.end_token();
    } else {
      for (size_t i = 0; i < run_.size(); ++i) {
        next_.text(kReplacementCharacter);
        next_.end_token();
      }
    }
    run_.clear();
  }

  TokenSink& next_;
  std::string token_;
  std::string run_;          // the bytes of the byte tokens so far
  bool is_passing_ = false;  // this token is too long for a byte token
};

// All tokens become one.
class FuseSink : public TokenSink {
 public:
  FuseSink(const NoSettings&, TokenSink& next) : next_(next) {}
  void text(std::string_view text) override { next_.text(text); }
  void end_token() override {}
  void finish() override {
    next_.end_token();
    next_.finish();
  }

 private:
  TokenSink& next_;
};

struct ReplaceSettings {
  TextPattern pattern;
  std::string content;
};

// Replaces inside each token. A regular expression needs the whole token; for a short plain text
// only the end that may be the start of a match waits.
class ReplaceSink : public TokenSink {
 public:
  ReplaceSink(const ReplaceSettings& settings, TokenSink& next)
      : settings_(settings), next_(next) {}

  void text(std::string_view text) override {
    token_ += text;
    const size_t num_pattern_bytes = settings_.pattern.plain_text().size();
    if (num_pattern_bytes == 0 || num_pattern_bytes > kWaitBytesMax) return;
    const size_t num_done = replace(num_waiting_bytes());
    token_.erase(0, num_done);
  }
  void end_token() override {
    replace(0);
    token_.clear();
    next_.end_token();
  }
  void finish() override { next_.finish(); }

 private:
  static constexpr size_t kWaitBytesMax = 64;

  // How many bytes at the end may be the start of a match that is not there yet.
  size_t num_waiting_bytes() const {
    const std::string_view pattern = settings_.pattern.plain_text();
    for (size_t count = std::min(pattern.size() - 1, token_.size()); count > 0; --count) {
      if (std::string_view(token_).ends_with(pattern.substr(0, count))) return count;
    }
    return 0;
  }

  // Hands on all but the last `num_waiting` bytes, unless a match needs some of them; returns how
  // many bytes are done.
  size_t replace(size_t num_waiting) {
    std::string result;
    size_t done = 0;
    for (const TextRange& match : settings_.pattern.find_all(token_)) {
      result.append(token_, done, match.begin - done);
      result += settings_.content;
      done = match.end;
    }
    const size_t end = std::max(done, token_.size() - num_waiting);
    result.append(token_, done, end - done);
    if (!result.empty()) next_.text(result);
    return end;
  }

  const ReplaceSettings& settings_;
  TokenSink& next_;
  std::string token_;
};

struct StripSettings {
  uint32_t content;
  int64_t num_start;
  int64_t num_stop;
};

// Takes up to num_start characters off each token's start and up to num_stop off its end.
class StripSink : public TokenSink {
 public:
  StripSink(const StripSettings& settings, TokenSink& next) : settings_(settings), next_(next) {}

  void text(std::string_view text) override {
    std::string result;
    while (!text.empty()) {
      const Utf8Char next = first_char(text);
      add(next.code, result);
      text.remove_prefix(next.num_bytes);
    }
    if (!result.empty()) next_.text(result);
  }
  void end_token() override {
    num_stripped_ = 0;
    is_at_start_ = true;
    num_waiting_ = 0;
    next_.end_token();
  }
  void finish() override { next_.finish(); }

 private:
  void add(uint32_t code, std::string& result) {
    if (code == settings_.content) {
      if (is_at_start_ && num_stripped_ < settings_.num_start) {
        ++num_stripped_;
        return;
      }
      is_at_start_ = false;
      if (num_waiting_ < settings_.num_stop) {
        ++num_waiting_;
        return;
      }
      append_utf8(result, code);
      return;
    }
    is_at_start_ = false;
    for (; num_waiting_ > 0; --num_waiting_) append_utf8(result, settings_.content);
    append_utf8(result, code);
  }

  const StripSettings& settings_;
  TokenSink& next_;
  int64_t num_stripped_ = 0;
  bool is_at_start_ = true;
  int64_t num_waiting_ = 0;  // characters that are stripped if the token ends here
};

// Marks become spaces; those of the first token are what encoding has put there.
class MetaspaceSink : public TokenSink {
 public:
  MetaspaceSink(const MetaspaceConfig& config, TokenSink& next) : config_(config), next_(next) {}

  void text(std::string_view text) override {
    const bool is_dropped = is_first_ && config_.scheme != PrependScheme::kNever;
    std::string result;
    while (!text.empty()) {
      const size_t mark = text.find(config_.replacement);
      result += text.substr(0, mark);
      if (mark == std::string_view::npos) break;
      if (!is_dropped) result.push_back(' ');
      text.remove_prefix(mark + config_.replacement.size());
    }
    if (!result.empty()) next_.text(result);
  }
  void end_token() override {
    is_first_ = false;
    next_.end_token();
  }
  void finish() override { next_.finish(); }

 private:
  const MetaspaceConfig& config_;
  TokenSink& next_;
  bool is_first_ = true;
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t i = text.find(from); i != std::string::npos; i = text.find(from, i + to.size())) {
    text.replace(i, from.size(), to);
  }
}

// The suffix that ends a word becomes a space, except in the last token.
class BpeSink : public WholeTokenSink {
 public:
  BpeSink(const std::string& suffix, TokenSink& next) : WholeTokenSink(next), suffix_(suffix) {}
  void finish() override {
    if (last_) emit_last("");
    next_.finish();
  }

 protected:
  void take(std::string token) override {
    if (last_) emit_last(" ");
    last_ = std::move(token);
  }

 private:
  void emit_last(std::string_view replacement) {
    replace_all(*last_, suffix_, replacement);
    emit(*last_);
  }

  const std::string& suffix_;
  std::optional<std::string> last_;
};

struct WordPieceSettings {
  std::string prefix;
  bool cleanup;
};

// Tokens without the prefix start a word.
class WordPieceSink : public WholeTokenSink {
 public:
  WordPieceSink(const WordPieceSettings& settings, TokenSink& next)
      : WholeTokenSink(next), settings_(settings) {}

 protected:
  void take(std::string token) override {
    if (!is_first_) {
      if (token.starts_with(settings_.prefix)) {
        token.erase(0, settings_.prefix.size());
      } else {
        token.insert(0, " ");
      }
    }
    is_first_ = false;
    if (settings_.cleanup) clean_up(token);
    emit(token);
  }

 private:
  static void clean_up(std::string& token) {
    for (const char* mark : {".", "?", "!", ","}) replace_all(token, str(" ", mark), mark);
    replace_all(token, " ' ", "'");
    replace_all(token, " n't", "n't");
    replace_all(token, " 'm", "'m");
    replace_all(token, " do not", " don't");
    for (const char* part : {"'s", "'ve", "'re"}) {
      replace_all(token, str(" ", part), part);
    }
  }

  const WordPieceSettings& settings_;
  bool is_first_ = true;
};

template <typename Sink, typename Settings>
std::unique_ptr<TokenDecoder> make(Settings settings) {
  return std::make_unique<SettingsDecoder<Sink, Settings>>(std::move(settings));
}

}  // namespace

std::unique_ptr<TokenDecoder> make_byte_level_decoder() {
  return make<ByteLevelSink>(NoSettings{});
}
std::unique_ptr<TokenDecoder> make_byte_fallback_decoder() {
  return make<ByteFallbackSink>(NoSettings{});
}
std::unique_ptr<TokenDecoder> make_fuse_decoder() { return make<FuseSink>(NoSettings{}); }

std::unique_ptr<TokenDecoder> make_replace_decoder(const Component& config) {
  return make<ReplaceSink>(
      ReplaceSettings{TextPattern::parse(config.member("pattern"), config.where("pattern")),
                      config.text("content")});
}

std::unique_ptr<TokenDecoder> make_strip_decoder(const Component& config) {
  constexpr int64_t kMax = 1 << 20;
  return make<StripSink>(StripSettings{config.character("content"), config.integer("start", kMax),
                                       config.integer("stop", kMax)});
}

std::unique_ptr<TokenDecoder> make_metaspace_decoder(const Component& config) {
  return make<MetaspaceSink>(parse_metaspace(config));
}

std::unique_ptr<TokenDecoder> make_bpe_decoder(const Component& config) {
  const std::string suffix = config.text("suffix");
  if (suffix.empty()) config.fail("suffix", "a string with at least one character");
  return make<BpeSink>(suffix);
}

std::unique_ptr<TokenDecoder> make_word_piece_decoder(const Component& config) {
  return make<WordPieceSink>(WordPieceSettings{config.text("prefix"), config.boolean("cleanup")});
}

}  // namespace halley
