// Input: the text of a tokenizer.json, a zero byte, a text to encode, a zero byte, ids to decode
// (one byte each). Errors are fine; what must hold for a file that loads is checked.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"

namespace {

using halley::Tokenizer;

std::string_view take_part(std::string_view& rest) {
  const size_t end = rest.find('\0');
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return part;
}

void check_decoding(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const bool skip_special_tokens : {false, true}) {
    const std::string whole = tokenizer.decode(ids, skip_special_tokens);
    halley::IncrementalDetokenizer stream(tokenizer, skip_special_tokens);
    std::string joined;
    for (const int32_t id : ids) joined += stream.push(id);
    joined += stream.finish();
    HALLEY_CHECK(joined == whole, joined, whole);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view file = take_part(rest);
  const std::string_view text = take_part(rest);
  try {
    const std::unique_ptr<Tokenizer> tokenizer = halley::parse_tokenizer_json(file, "fuzz");
    const std::vector<int32_t> ids = tokenizer->encode(text, true);
    for (const int32_t id : ids) HALLEY_CHECK(id >= 0 && id < tokenizer->num_ids(), id);
    check_decoding(*tokenizer, ids);
    std::vector<int32_t> given;
    for (const char c : rest) given.push_back(static_cast<uint8_t>(c));
    check_decoding(*tokenizer, given);
  } catch (const halley::Error&) {
  }
  return 0;
}
