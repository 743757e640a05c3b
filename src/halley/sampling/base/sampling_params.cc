#include "halley/sampling/base/sampling_params.h"

#include <algorithm>
#include <utility>

#include <utf8proc.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/sampling/base/sampling_fields.h"

namespace halley {
namespace {

constexpr size_t kLogitBiasesMax = 1024;
constexpr size_t kStopTokenIdsMax = 128;
constexpr int kLogprobsMax = TokenChoice::kNumLogprobsMax;

// NaN is in no range.
void check_range(const char* name, double value, double min, double max) {
  if (value >= min && value <= max) return;
  throw InputError(str(name, ": expected ", min, " to ", max, ", got ", value));
}

void check_token_id(const char* name, int32_t id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return;
  throw InputError(str(name, ": expected token ids of 0 to ", vocab_size - 1, ", got ", id));
}

void check_count(const char* name, size_t count, size_t max) {
  if (count <= max) return;
  throw InputError(str(name, ": expected at most ", max, " entries, got ", count));
}

void check_num_logprobs(const char* name, int count) {
  if (count >= -1 && count <= kLogprobsMax) return;
  throw InputError(str(name, ": expected -1 (none) to ", kLogprobsMax, ", got ", count));
}

bool is_valid_utf8(const std::string& text) {
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto num_left = static_cast<utf8proc_ssize_t>(text.size());
  while (num_left > 0) {
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(data, num_left, &code_point);
    if (length <= 0) return false;
    data += length;
    num_left -= length;
  }
  return true;
}

void check_lengths(const SamplingParams& params) {
  if (params.max_tokens < 1) {
    throw InputError(str("max_tokens: expected at least 1, got ", params.max_tokens));
  }
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens) {
    throw InputError(str("min_tokens: expected 0 to max_tokens (", params.max_tokens, "), got ",
                         params.min_tokens));
  }
}

void check_stops(const SamplingParams& params, int64_t vocab_size) {
  check_count("stop", params.stop.size(), kStopsMax);
  size_t num_bytes = 0;
  for (const std::string& stop : params.stop) {
    if (stop.empty()) throw InputError("stop: expected no empty string, got one");
    num_bytes += stop.size();
    // A stop string that ends inside a character would cut the text there.
    if (!is_valid_utf8(stop)) {
      throw InputError(str("stop: expected valid UTF-8, got ", quote(stop)));
    }
  }
  if (num_bytes > kStopBytesMax) {
    throw InputError(
        str("stop: expected at most ", kStopBytesMax, " bytes in all strings, got ", num_bytes));
  }
  check_count("stop_token_ids", params.stop_token_ids.size(), kStopTokenIdsMax);
  for (const int32_t id : params.stop_token_ids) check_token_id("stop_token_ids", id, vocab_size);
}

void check_dry_breakers(const SamplingParams& params) {
  constexpr const char* kName = "dry_sequence_breakers";
  check_count(kName, params.dry_sequence_breakers.size(), kDryBreakersMax);
  for (const std::string& text : params.dry_sequence_breakers) {
    if (text.empty() || text.size() > kDryBreakerBytesMax) {
      throw InputError(str(kName, ": expected texts of 1 to ", kDryBreakerBytesMax, " bytes, got ",
                           text.size()));
    }
    if (!is_valid_utf8(text)) {
      throw InputError(str(kName, ": expected valid UTF-8, got ", quote(text)));
    }
  }
}

}  // namespace

void check_sampling_params(const SamplingParams& params, int64_t vocab_size) {
  check_lengths(params);
  check_choice_params(params);
  check_count("logit_bias", params.logit_bias.size(), kLogitBiasesMax);
  for (const auto& [id, bias] : params.logit_bias) {
    check_token_id("logit_bias", id, vocab_size);
    check_range("logit_bias", bias, -100, 100);
  }
  check_stops(params, vocab_size);
  check_dry_breakers(params);
  check_num_logprobs("logprobs", params.num_logprobs);
  check_num_logprobs("prompt_logprobs", params.num_prompt_logprobs);
}

TokenChoice token_choice_of(const SamplingParams& params, std::vector<int32_t> stop_ids,
                            uint64_t seed) {
  std::sort(stop_ids.begin(), stop_ids.end());
  stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
  return {.params = params,
          .logit_bias = {params.logit_bias.begin(), params.logit_bias.end()},
          .stop_ids = std::move(stop_ids),
          .min_tokens = params.min_tokens,
          .seed = params.seed.value_or(seed),
          .num_logprobs = params.num_logprobs};
}

}  // namespace halley
