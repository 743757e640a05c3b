// A caller's weight, packed for the kernels of its kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/core/matrix.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/grouped_gemm/grouped_gemm.h"
#include "halley/cuda/library/halley_kernels.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// A context has them for all its GEMMs.
struct LibrarySettings {
  const W4KernelRow* kernels = nullptr;  // of 4-bit weights
  bool starts_early = false;
  CublasLtGemm* lt = nullptr;  // there where a weight was packed that needs_cublaslt()
};

/// As halley_kernels_input, checked.
struct LibraryOperands {
  ConstMatrix x;
  const float* scales = nullptr;
  const int32_t* sums = nullptr;
  const float* bias = nullptr;
};

/// A grouped GEMM reads this of a weight.
struct GroupedSource {
  GroupedKind kind = GroupedKind::kU4F16;
  GroupedWeight weight = {};
  int group_size = kChunkInputs;  // of packed tiles
  int64_t weight_stride = 0;      // of rows, in bytes
};

class LibraryWeight {
 public:
  /// `types`: what x may be.
  LibraryWeight(int64_t N, int64_t K, std::vector<DType> types)
      : N_(N), K_(K), input_types_(std::move(types)) {}
  LibraryWeight(const LibraryWeight&) = delete;
  LibraryWeight& operator=(const LibraryWeight&) = delete;
  virtual ~LibraryWeight() = default;

  int64_t N() const { return N_; }
  int64_t K() const { return K_; }
  const std::vector<DType>& input_types() const { return input_types_; }

  virtual size_t num_bytes() const = 0;
  virtual bool needs_sums() const { return false; }
  /// How rows are quantized for it; nothing: they are not.
  virtual std::optional<CudaActivationQuant> quantization() const { return {}; }
  virtual std::optional<GroupedSource> grouped() const { return {}; }

  /// y [M, N] = x W^T + bias; M at least 1. Throws UnsupportedError where the kernels that are set
  /// do not take the weight.
  virtual void multiply(const CudaContext& context, const LibrarySettings& settings,
                        const LibraryOperands& operands, Matrix y) const = 0;
  /// The plan of a GEMM of M rows. Throws as multiply().
  virtual std::string describe(const CudaContext& context, const LibrarySettings& settings,
                               int64_t M) const = 0;

 private:
  int64_t N_, K_;
  std::vector<DType> input_types_;
};

/// Whether GEMMs of the kind need LibrarySettings::lt.
bool needs_cublaslt(halley_kernels_kind kind);

/// Checks the source's arrays and packs them; waits until they are in place. Throws InputError
/// where they are wrong, UnsupportedError where the shape or the GPU has no kernel, DeviceError
/// where there is no memory.
std::unique_ptr<LibraryWeight> pack_library_weight(const CudaContext& context,
                                                   const halley_kernels_source& source);

}  // namespace halley::cuda
