// The "decoder" of tokenizer.json: tokens to text. Works as a stream, so that decoding all ids at
// once and one by one are the same thing.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "halley/json/json.h"

namespace halley {

/// Takes tokens one after another: text() any number of times, then end_token(), for each token;
/// finish() once behind the last. Text comes in whole characters.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void text(std::string_view text) = 0;
  virtual void end_token() = 0;
  virtual void finish() = 0;
};

/// One step of a decoder. Immutable; any thread.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  /// The state of one text's decoding; hands its tokens to `next`, which outlives it.
  virtual std::unique_ptr<TokenSink> start(TokenSink& next) const = 0;
};

/// From the value of "decoder". Throws InputError, or UnsupportedError that names an unsupported
/// kind.
std::unique_ptr<TokenDecoder> parse_decoder(const Json& value, const std::string& where);

/// For files without a decoder: joins the tokens with a space between each two.
std::unique_ptr<TokenDecoder> make_joining_decoder();

}  // namespace halley
