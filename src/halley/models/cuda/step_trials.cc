#include "halley/models/cuda/step_trials.h"

#include <bit>

namespace halley::cuda {

void StepTrials::run_first(const CudaContext& context, const DecoderConfig& config,
                           const CudaDecoderWeights& weights, DType activation_dtype,
                           const DeviceStep& step) {
  if (step.ranks == nullptr) return;
  const bool is_decode = !step.has_prefills;
  const auto num_bits = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(step.num_rows)));
  const Class its = {.is_decode = is_decode,
                     .size = is_decode ? step.num_rows : num_bits,
                     .has_logits = step.num_logit_rows > 0,
                     .precision = step.precision};
  if (!tried_.insert(its).second) return;
  DeviceStep trial = step;
  trial.is_trial = true;
  trial.span = nullptr;
  step.ranks->run_alone(context.stream, [&] {
    StepOps ops(context, config, weights, activation_dtype, trial);
    ops.queue_layers();
    const bool has_logits = config.share.is_last() && trial.num_logit_rows > 0;
    if (has_logits) ops.queue_logits(0, trial.num_logit_rows_at_once);
  });
}

}  // namespace halley::cuda
