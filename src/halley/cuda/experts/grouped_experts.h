// One of the two products of a layer's experts, all experts in one launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/moe/grouped_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/weights/cuda_linear.h"

namespace halley::cuda {

/// One section of an expert's layer, as far as it decides whether experts are multiplied together.
struct ExpertSection {
  /// Of a weight that stays quantized; nothing: rows of `dtype`.
  std::optional<GroupedKind> kind = {};
  DType dtype = DType::kF16;
  int group_size = 0;  // of packed tiles, as stored
  int64_t N = 0, K = 0, row_stride = 0;
  CudaActivationQuant activation = {};
  /// The array that the inputs' order is in; 0: they have none. An order is alike only in the same
  /// array.
  uintptr_t order = 0;
};

/// Of rows: s8 and e4m3 have a kind.
std::optional<GroupedKind> grouped_kind_of_rows(DType dtype);
ExpertSection expert_section(const CudaLinear::Section& section);

/// Empty: one launch multiplies the layers of all experts. Otherwise why not. A layer has one
/// section, or two where it `has_halves`, gate and up.
std::string why_not_grouped(DType activation_dtype, bool has_halves,
                            std::span<const std::vector<ExpertSection>> layers);

/// "grouped_gemm" of floats, "grouped_gemm_u4_f16", ...: what `inspect` and the summary at load
/// call the kernel.
std::string grouped_kernel_name(std::optional<GroupedKind> kind);

/// Where slots are, and what is done with sums.
struct GroupedRun {
  const int32_t* slot_row = nullptr;      // as GroupedGemm has them
  const int32_t* expert_begin = nullptr;  // of the first expert here
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  Activation activation = Activation::kSilu;
};

/// Move-only.
class GroupedExperts {
 public:
  GroupedExperts() = default;
  /// `layers` [E], for which why_not_grouped() is empty, must outlive it. Waits until its table is
  /// on the device.
  GroupedExperts(const CudaContext& context, const std::vector<CudaLinear>& layers, bool has_halves,
                 bool is_batch_invariant);

  /// x [M, K] of any type, rounded as the checkpoint says; y [num_slots, N] of the activations'
  /// type. Takes workspace_bytes(M) until the caller releases it.
  void run(const CudaContext& context, const GroupedRun& run, ConstMatrix x, Matrix y) const;
  size_t workspace_bytes(int64_t M) const;

  /// "" of none.
  std::string kernel_name() const { return first_ == nullptr ? "" : grouped_kernel_name(kind_); }
  size_t device_bytes() const { return table_.num_bytes(); }

 private:
  struct Half;

  void make_float_table(const CudaContext& context, const std::vector<Half>& halves);
  void make_quantized_table(const CudaContext& context, const std::vector<Half>& halves);
  void run_floats(const CudaContext& context, const GroupedRun& run, ConstMatrix x, Matrix y) const;
  void run_quantized(const CudaContext& context, const GroupedRun& run, ConstMatrix x,
                     Matrix y) const;
  /// In the type that the kernel takes, rounded, in rows at multiples of 16 bytes.
  ConstMatrix prepared_numbers(const CudaContext& context, ConstMatrix x) const;

  std::optional<GroupedKind> kind_;
  DType dtype_ = DType::kF16;  // of x where it is not quantized
  const CudaLinear::Section* first_ = nullptr;
  int64_t num_experts_ = 0;
  int64_t second_half_begin_ = 0;
  bool has_biases_ = false, has_offsets_ = false;
  bool is_batch_invariant_ = false;
  DeviceBuffer table_;  // of floats: addresses of weights, then of biases; else GroupedWeight
};

}  // namespace halley::cuda
