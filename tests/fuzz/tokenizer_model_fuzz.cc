// Input: the bytes of a tokenizer.model. A file that loads encodes and decodes a text.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/checkpoint/tokenizer/sentencepiece_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kText =
      "The  cat's \xC3\x84pfel\n \xE2\x96\x81 <s> \xF0\x9F\x98\x80 42";
  try {
    const halley::SentencePieceTokenizer tokenizer(
        std::string_view(reinterpret_cast<const char*>(data), size), {}, "fuzz");
    const std::vector<int32_t> ids = tokenizer.encode(kText, true);
    for (const int32_t id : ids) HALLEY_CHECK(id >= 0 && id < tokenizer.num_ids(), id);
    tokenizer.decode(ids, false);
  } catch (const halley::Error&) {
  }
  return 0;
}
