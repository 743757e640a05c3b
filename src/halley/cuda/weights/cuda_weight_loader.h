// Linear layers of a checkpoint into device memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/packed_weight.h"
#include "halley/core/tensor.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/staged_copy.h"
#include "halley/cuda/weights/cuda_linear.h"
#include "halley/cuda/weights/device_arrays.h"
#include "halley/cuda/weights/device_gemm.h"
#include "halley/cuda/weights/weight_form.h"
#include "halley/quant/base/format.h"
#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_outputs.h"

namespace halley::cuda {

/// Some outputs of each section of a layer as the checkpoint has them.
using StoredSections = std::vector<std::vector<StoredOutput>>;

/// How many outputs of a section a self-check compares, at most.
inline constexpr int64_t kStoredOutputs = 3;

/// Loads layers one after the other; keeps the memory that packed pieces pass through.
class CudaWeightLoader {
 public:
  /// `activation_dtype` (f16, bf16 or f32) is what weights in full precision are kept in and others
  /// decoded to. All must outlive the loader; `lt` also the layers.
  CudaWeightLoader(ExecContext& host, const CudaContext& device, CublasLtGemm& lt,
                   DType activation_dtype);

  /// Of layers that are loaded from now on: their 4-bit weights are multiplied by the kernels of
  /// this name (cuda/mma_gemm/w4_kernels.h) and not by the first that the GPU runs. Throws as
  /// w4_kernels_named().
  void use_w4_kernels(std::string_view name) { w4_ = &w4_kernels_named(device_.device, name); }

  /// Joins the layer's parts as the loader of the CPU does, and waits until they are in place.
  /// Throws as QuantScheme::open(); CheckpointError where the data are wrong or hold numbers that
  /// the activations' type has not; DeviceError where the memory does not suffice.
  /// `stored`, where set, gets the outputs of each section that a self-check compares, read before
  /// the source's pages are released.
  CudaLinear load(const QuantScheme& scheme, const TensorSource& source, const LinearSpec& spec,
                  LinearUse use = LinearUse::kAlone, StoredSections* stored = nullptr);

  /// The same of weights that are in host memory already: parts of one dense weight, one below the
  /// other, or a packed one. `bias` is empty or has all outputs. `first_output` of the layer is the
  /// section's first.
  CudaLinear::Section load_dense(const std::string& name, std::span<const TensorView> parts,
                                 std::span<const float> bias, int64_t first_output);
  CudaLinear::Section load_packed(const std::string& name, const PackedWeight& weight,
                                  std::span<const float> bias, int64_t first_output,
                                  LinearUse use = LinearUse::kAlone);

 private:
  /// Rows of a weight, uninitialised.
  static Matrix allocate_rows(DType dtype, int64_t N, int64_t K, DeviceBuffer* memory);
  void ensure_staging(size_t num_bytes);
  uint32_t take_lost();
  void check_lost(const std::string& name);
  void copy_dense_part(const TensorView& part, Matrix rows);
  template <typename Visit>
  void visit_panels(const PackedWeight& weight, int64_t panels_multiple, const Visit& visit);
  void decode_panels(const PackedWeight& weight, const int32_t* input_perm, Matrix rows);
  std::string keep(const DeviceGemm& gemm, const PackedWeight& weight, const std::string& reasons,
                   std::span<const float> bias, int64_t first_output, CudaLinear::Section* section);
  std::string keep_rows(const PackedWeight& weight, DeviceLayout layout, const std::string& reasons,
                        std::span<const float> bias, int64_t first_output,
                        CudaLinear::Section* section);
  std::string keep_mixed(const PackedWeight& weight, MixedKind kind, std::span<const float> bias,
                         CudaLinear::Section* section);
  std::string keep_gemv(const PackedWeight& weight, std::span<const float> bias,
                        int64_t first_output, CudaLinear::Section* section);
  void keep_nested(const PackedWeight& weight, std::span<const float> bias, int64_t first_output,
                   CudaLinear::Section* section);
  std::string keep_w4ax(const PackedWeight& weight, std::span<const float> bias,
                        CudaLinear::Section* section);
  void add_bias(std::span<const float> bias, DeviceArrays* arrays, CudaLinear::Section* section);
  void bind(RowsWeight* rows, CudaGemmProblem problem, int64_t first_output);

  ExecContext& host_;
  const CudaContext& device_;
  CublasLtGemm& lt_;
  DType dtype_;
  const W4KernelRow* w4_;  // null where the GPU runs none
  StagedCopy staged_;
  DeviceBuffer staging_;
  DeviceBuffer lost_;  // one uint32_t: numbers that the type has not, or reasons of a rejection
};

}  // namespace halley::cuda
