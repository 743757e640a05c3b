// Trial runs of a step's kernels before they wait for those of other ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <set>

#include "halley/core/dtype.h"
#include "halley/core/precision.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/cuda/cuda_weights.h"
#include "halley/models/cuda/step_ops.h"

namespace halley::cuda {

/// CUDA loads a kernel at its first launch, and may wait for the GPU then
/// (DeviceRanks::run_alone()).
class StepTrials {
 public:
  /// Before the first step of a size on several ranks, runs its operations without exchanges: they
  /// load their kernels, and write keys and values that the step then writes again. The step's
  /// arrays are on the stream. All ranks call it with steps of the same sizes.
  void run_first(const CudaContext& context, const DecoderConfig& config,
                 const CudaDecoderWeights& weights, DType activation_dtype, const DeviceStep& step);

 private:
  /// Steps that most likely run the same kernels: decodes by their rows, others by the power of
  /// two.
  struct Class {
    bool is_decode = false;
    int64_t size = 0;
    bool has_logits = false;
    Precision precision = Precision::kFull;

    auto operator<=>(const Class&) const = default;
  };

  std::set<Class> tried_;
};

}  // namespace halley::cuda
