// A JSON Schema, a zero byte, and any bytes as a text. Only halley::Error may come out of the
// schema. A text that is the beginning of a value must be one or have a byte that goes on with it,
// masks must agree with the bytes, and nothing may take long.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/constraint/json_schema.h"
#include "halley/constraint/mask_cache.h"
#include "halley/json/json.h"

namespace {

constexpr size_t kTextBytesMax = 256;

const halley::TokenTrie& trie() {
  static const halley::TokenTrie* const instance = [] {
    std::vector<std::string> pieces = {"<eos>", "{\"",      "\": ", "\",",
                                       "},",    "\xE2\x82", "ab",   "\\u"};
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    return new halley::TokenTrie(std::move(pieces), std::vector<int32_t>{0});
  }();
  return *instance;
}

// Some byte goes on, or the text may end; and the mask says so too.
bool check_state(halley::MaskCache& cache, halley::Matcher::State state) {
  halley::TokenMask mask;
  const halley::Matcher::State filled = cache.fill(state, mask);
  if (filled < 0) return false;
  halley::Matcher& matcher = cache.matcher();
  bool may_go_on = false;
  for (int byte = 0; byte < 256; ++byte) {
    const auto next = matcher.next(state, static_cast<uint8_t>(byte));
    if (next == halley::Matcher::kFull || next == halley::Matcher::kTooComplex) return false;
    const auto token_id = static_cast<size_t>(trie().num_ids()) - 256 + static_cast<size_t>(byte);
    HALLEY_CHECK((next >= 0) == halley::has_token(mask, token_id), byte, next);
    may_go_on = may_go_on || next >= 0;
  }
  HALLEY_CHECK(may_go_on == matcher.may_go_on(state));
  HALLEY_CHECK(may_go_on || matcher.may_end(state));
  HALLEY_CHECK(matcher.may_end(state) == halley::has_token(mask, 0));
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  try {
    const auto schema = halley::parse_ordered_json(input.substr(0, end), "schema");
    const halley::Grammar grammar = halley::json_schema_grammar(schema, "schema");
    // Small limits, so that what passes them is quick.
    const halley::MatcherLimits limits = {.frames_max = 40,
                                          .stacks_max = 256,
                                          .steps_max = 4096,
                                          .memory_bytes_max = 1 << 20,
                                          .total_steps_max = 50'000};
    halley::MaskCache cache(grammar, trie(), limits);
    halley::Matcher::State state = cache.matcher().start();
    const std::string_view text = input.substr(std::min(end + 1, input.size()));
    for (size_t i = 0; state >= 0 && i < text.size() && i < kTextBytesMax; ++i) {
      if (!check_state(cache, state)) break;
      state = cache.matcher().next(state, static_cast<uint8_t>(text[i]));
    }
  } catch (const halley::Error&) {
  }
  return 0;
}
