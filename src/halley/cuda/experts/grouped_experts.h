// One of the two products of a layer's experts, all experts in one launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/grouped_gemm/grouped_gemm.h"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/weights/cuda_linear.h"

namespace halley::cuda {

/// One section of an expert's layer, as far as it decides whether experts are multiplied together.
struct ExpertSection {
  /// Nothing: rows of f32.
  std::optional<GroupedKind> kind = {};
  int group_size = 0;  // of packed tiles, as stored
  int64_t N = 0, K = 0, row_stride = 0;
  CudaActivationQuant activation = {};
  /// The array that the inputs' order is in; 0: they have none. An order is alike only in the same
  /// array.
  uintptr_t order = 0;
};

/// Nothing of f32.
std::optional<GroupedKind> grouped_kind_of_rows(DType dtype);
ExpertSection expert_section(const CudaLinear::Section& section);

/// Empty: one launch multiplies the layers of all experts. Otherwise why not. A layer has one
/// section, or two where it `has_halves`, gate and up.
std::string why_not_grouped(DType activation_dtype, bool has_halves,
                            std::span<const std::vector<ExpertSection>> layers);

/// "grouped_gemm_f16", "grouped_gemm_u4_f16", ...: what `inspect` and the summary at load call the
/// kernels of a kind.
std::string grouped_kernel_name(GroupedKind kind);

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
  /// type. Takes workspace_bytes() until the caller releases it.
  void run(const CudaContext& context, const GroupedRun& run, ConstMatrix x, Matrix y) const;
  /// `is_gathered`: run() has a slot_row.
  size_t workspace_bytes(int64_t M, int64_t num_slots, bool is_gathered) const;

  /// "" of none.
  std::string kernel_name() const { return first_ == nullptr ? "" : grouped_kernel_name(kind_); }
  size_t device_bytes() const { return weights_.num_bytes() + maps_.num_bytes(); }

 private:
  struct Half;

  GroupedWeight weight_of(const Half& half) const;
  /// Whether so many slots are multiplied by wgmma, not by mma.sync.
  bool runs_by_wgmma(int64_t num_slots) const;
  /// In the type that the kernel takes, rounded, in rows at multiples of 16 bytes; of kinds with
  /// scales these, too.
  ConstMatrix prepared_rows(const CudaContext& context, ConstMatrix x, bool has_sums,
                            RowScales* scales) const;

  GroupedKind kind_ = GroupedKind::kF16;
  const CudaLinear::Section* first_ = nullptr;
  int64_t num_experts_ = 0;
  int64_t second_half_begin_ = 0;
  bool has_offsets_ = false;
  bool is_batch_invariant_ = false;
  DeviceBuffer weights_;  // GroupedWeight
  DeviceBuffer maps_;     // of rows: CUtensorMap
};

}  // namespace halley::cuda
