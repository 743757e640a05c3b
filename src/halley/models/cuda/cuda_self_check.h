// The check at load that a layer on the GPU computes what the checkpoint says.
#pragma once

#include <cstddef>
#include <optional>

#include "halley/core/dtype.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/weights/cuda_linear.h"
#include "halley/cuda/weights/cuda_weight_loader.h"

namespace halley::cuda {

/// Runs the layer on two rows of synthetic inputs, to outputs of `y_dtype` (the activations' type
/// or f32), and compares `stored` outputs with f64 sums over the checkpoint's own values. Waits for
/// the GPU. Throws DeviceError that names layer, kernels, output, expected and got.
void self_check(const CudaContext& context, const CudaLinear& linear, DType y_dtype,
                const StoredSections& stored);

/// Bytes that it takes from the workspace.
size_t self_check_bytes(const CudaLinear& linear);

/// Checks layers while they are loaded, one after the other, with memory that grows with them.
class CudaSelfCheck {
 public:
  /// `context`'s workspace is not used. It must outlive this.
  explicit CudaSelfCheck(const CudaContext& context) : context_(context) {}
  /// As self_check().
  void check(const CudaLinear& linear, DType y_dtype, const StoredSections& stored);
  /// All checks took so many seconds.
  double seconds() const { return seconds_; }

 private:
  const CudaContext& context_;
  std::optional<DeviceArena> arena_;
  double seconds_ = 0;
};

}  // namespace halley::cuda
