// The weights of a layer's experts, joined for grouped GEMMs.
#pragma once

#include <cstdint>
#include <span>

#include "halley/core/matrix.h"
#include "halley/cuda/library/halley_kernels.h"
#include "halley/cuda/library/library_weight.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {

class LibraryExperts {
 public:
  /// As halley_kernels_join_experts(), `biases` empty or one each. The weights must outlive it.
  /// Throws InputError where they differ, UnsupportedError where no grouped GEMM reads them.
  LibraryExperts(const CudaContext& context, std::span<const LibraryWeight* const> weights,
                 std::span<const float* const> biases, bool is_gated);

  /// The form that all have.
  const LibraryWeight& first() const { return first_; }
  int64_t num_outputs() const { return is_gated_ ? first_.N() / 2 : first_.N(); }

  /// y [slots, num_outputs()]. Throws InputError where the activation does not fit.
  void multiply(const CudaContext& context, const LibraryOperands& operands,
                const halley_kernels_grouping& grouping, Matrix y) const;

 private:
  const LibraryWeight& first_;
  GroupedSource form_;
  int64_t num_experts_;
  bool is_gated_;
  DeviceBuffer table_;  // GroupedWeight of each expert, gated of each half
};

}  // namespace halley::cuda
