#include "halley/checkpoint/tokenizer/decoder.h"

#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/component.h"
#include "halley/checkpoint/tokenizer/decoder_steps.h"

namespace halley {
namespace {

constexpr int kDepthMax = 16;
constexpr size_t kNumStepsMax = 64;

// Owns the sinks of all steps; the first takes the tokens.
class ChainSink : public TokenSink {
 public:
  ChainSink(const std::vector<std::unique_ptr<TokenDecoder>>& steps, TokenSink& next)
      : next_(&next) {
    for (size_t i = steps.size(); i-- > 0;) {
      sinks_.push_back(steps[i]->start(*next_));
      next_ = sinks_.back().get();
    }
  }
  void text(std::string_view text) override { next_->text(text); }
  void end_token() override { next_->end_token(); }
  void finish() override { next_->finish(); }

 private:
  std::vector<std::unique_ptr<TokenSink>> sinks_;  // last step first
  TokenSink* next_;
};

class SequenceDecoder : public TokenDecoder {
 public:
  explicit SequenceDecoder(std::vector<std::unique_ptr<TokenDecoder>> steps)
      : steps_(std::move(steps)) {}
  std::unique_ptr<TokenSink> start(TokenSink& next) const override {
    return std::make_unique<ChainSink>(steps_, next);
  }

 private:
  std::vector<std::unique_ptr<TokenDecoder>> steps_;
};

class JoiningDecoder : public TokenDecoder {
 public:
  std::unique_ptr<TokenSink> start(TokenSink& next) const override {
    return std::make_unique<Sink>(next);
  }

 private:
  class Sink : public TokenSink {
   public:
    explicit Sink(TokenSink& next) : next_(next) {}
    void text(std::string_view text) override {
      separate();
      next_.text(text);
    }
    void end_token() override {
      separate();
      is_separated_ = false;
      next_.end_token();
    }
    void finish() override { next_.finish(); }

   private:
    // Puts the space before a token's first text, or before an empty token.
    void separate() {
      if (!is_first_ && !is_separated_) next_.text(" ");
      is_first_ = false;
      is_separated_ = true;
    }

    TokenSink& next_;
    bool is_first_ = true;
    bool is_separated_ = false;
  };
};

class Parser {
 public:
  std::unique_ptr<TokenDecoder> parse(const Json& value, const std::string& where, int depth) {
    const Component config(value, where);
    const std::string type = config.type();
    if (++num_steps_ > kNumStepsMax) {
      throw InputError(str(where, ": expected at most ", kNumStepsMax, " decoders, got more."));
    }
    if (type == "Sequence") return parse_sequence(config, depth);
    if (type == "ByteLevel") return make_byte_level_decoder();
    if (type == "ByteFallback") return make_byte_fallback_decoder();
    if (type == "Fuse") return make_fuse_decoder();
    if (type == "Replace") return make_replace_decoder(config);
    if (type == "Strip") return make_strip_decoder(config);
    if (type == "Metaspace") return make_metaspace_decoder(config);
    if (type == "BPEDecoder") return make_bpe_decoder(config);
    if (type == "WordPiece") return make_word_piece_decoder(config);
    throw UnsupportedError(str(where, ": the decoder ", quote(type), " is not supported."));
  }

 private:
  std::unique_ptr<TokenDecoder> parse_sequence(const Component& config, int depth) {
    if (depth >= kDepthMax) {
      throw InputError(
          str(config.where(), ": expected at most ", kDepthMax, " nested sequences, got more."));
    }
    std::vector<std::unique_ptr<TokenDecoder>> steps;
    for (const Json& element : config.array("decoders")) {
      steps.push_back(
          parse(element, str(config.where(), ".decoders[", steps.size(), "]"), depth + 1));
    }
    return std::make_unique<SequenceDecoder>(std::move(steps));
  }

  size_t num_steps_ = 0;
};

}  // namespace

std::unique_ptr<TokenDecoder> parse_decoder(const Json& value, const std::string& where) {
  return Parser().parse(value, where, 0);
}

std::unique_ptr<TokenDecoder> make_joining_decoder() { return std::make_unique<JoiningDecoder>(); }

}  // namespace halley
