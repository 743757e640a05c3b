#include "halley/sampling/cuda/slot_state.h"

#include <algorithm>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cuda {

void write_slot_image(const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                      std::span<const int32_t> output_ids, SlotImage& image) {
  if (needs_host_sampler(choice.params)) {
    throw UnsupportedError(
        "sampling on the GPU: expected no DRY and no XTC, got one of them. Run on the CPU.");
  }
  std::vector<int32_t> stop_ids = choice.stop_ids;  // ascending, each once
  std::sort(stop_ids.begin(), stop_ids.end());
  stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
  if (choice.logit_bias.size() > kSlotListMax || stop_ids.size() > kSlotListMax) {
    throw UnsupportedError(str("sampling on the GPU: expected at most ", kSlotListMax,
                               " logit biases and as many stop ids, got ", choice.logit_bias.size(),
                               " and ", stop_ids.size(), ". Give fewer, or run on the CPU."));
  }
  const std::span<const int32_t> last_ids = output_ids.empty() ? prompt_ids : output_ids;
  image.state = {.params = choice.params,
                 .min_tokens = choice.min_tokens,
                 .seed = choice.seed,
                 .num_output_tokens = static_cast<int64_t>(output_ids.size()),
                 .num_biases = static_cast<int32_t>(choice.logit_bias.size()),
                 .num_stop_ids = static_cast<int32_t>(stop_ids.size()),
                 .num_logprobs = choice.num_logprobs,
                 .last_token = last_ids.empty() ? 0 : last_ids.back()};
  for (size_t i = 0; i < choice.logit_bias.size(); ++i) {
    image.bias_ids[i] = choice.logit_bias[i].first;
    image.biases[i] = choice.logit_bias[i].second;
  }
  std::copy(stop_ids.begin(), stop_ids.end(), image.stop_ids);
}

}  // namespace halley::cuda
