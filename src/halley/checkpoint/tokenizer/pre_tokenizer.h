// The "pre_tokenizer" of tokenizer.json: cuts the text into words, which BPE then works on one by
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "halley/json/json.h"

namespace halley {

/// Bytes [begin, end) of SplitText::text, or an added token.
struct Piece {
  size_t begin = 0;
  size_t end = 0;
  int32_t added_id = -1;       // -1: not an added token
  size_t num_start_bytes = 0;  // as in NormalText
};

struct SplitText {
  std::string text;
  std::vector<Piece> pieces;  // in order; none is empty except added tokens
};

/// Immutable; any thread.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts each piece that is no added token; may change the text too.
  virtual void apply(SplitText& split) const = 0;
};

/// From the value of "pre_tokenizer". Throws InputError, or UnsupportedError for a kind that we do
/// not do, by name.
std::unique_ptr<PreTokenizer> parse_pre_tokenizer(const Json& value, const std::string& where);

}  // namespace halley
