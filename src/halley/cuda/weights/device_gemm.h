// The table of device layouts for weights, each with the kernels that multiply it: what load, plan,
// inspect and `halley formats` ask.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"
#include "halley/cuda/weights/cuda_linear_plan.h"
#include "halley/cuda/weights/weight_form.h"
#include "halley/kernels/gemm/gemm.h"

namespace halley::cuda {

/// What is known of a weight, of its use and of the GPU before the weight's data are read.
struct GemmDesc {
  GemmProblem stored = {};  // as the checkpoint has the weight
  DType activation_dtype = DType::kF16;
  LinearUse use = LinearUse::kAlone;
  /// A row of y must not depend on how many there are.
  bool is_batch_invariant = false;
  const W4KernelRow* w4 = nullptr;  // kernels of 4-bit weights that the GPU runs; null: none
  bool is_hopper = true;
  // Of the plan alone:
  bool is_symmetric = false;  // the weight has no zeros
  bool has_bias = false;
  int64_t first_output = 0;          // of the layer
  DType stored_dtype = DType::kF16;  // of a weight in full precision
};

/// For a GPU of compute capability 9.0.
GemmDesc hopper_desc(const GemmProblem& stored, DType activation_dtype, LinearUse use);

enum class DeviceLayout : uint8_t {
  kNested,  // cuda/nested_gemm
  kW4ax,    // cuda/w4ax_gemm, cuda/mma_gemm
  kMixed,   // cuda/mixed_gemm, cuda/mma_gemm
  kGemv,    // cuda/gemv, and dequantized for many rows
  kCodes,   // rows of s8 or e4m3 values: cuda/gemm
  kFloats,  // rows of the activations' type: cuda/gemm
};

struct DeviceGemm {
  DeviceLayout layout = DeviceLayout::kFloats;
  /// kMixed: the kind for activations in f16 and f32, and in bf16.
  MixedKind f16_kind = MixedKind::kU4F16, bf16_kind = MixedKind::kU4Bf16;
  /// Nothing: the layout is not for such weights. Empty: by the rules it takes the weight; its data
  /// may reject it still. Otherwise the reason.
  std::optional<std::string> (*why_not)(const DeviceGemm& gemm, const GemmDesc& desc);
  /// The storage format in words, the kernels and the bytes. `reasons` are those of better-placed
  /// layouts.
  void (*plan)(const DeviceGemm& gemm, const GemmDesc& desc, const std::string& reasons,
               CudaLinearPlan* plan);

  MixedKind kind(DType activation_dtype) const {
    return activation_dtype == DType::kBf16 ? bf16_kind : f16_kind;
  }
};

/// All layouts, best first. The last one takes every weight.
std::span<const DeviceGemm> device_gemms();

/// The first layout that takes the weight by the rules.
struct DeviceGemmChoice {
  const DeviceGemm* gemm = nullptr;
  std::string reasons = {};  // of better-placed layouts, "one; another"
};
DeviceGemmChoice choose_device_gemm(const GemmDesc& desc);

/// A storage format in words, and why no better-placed layout has the weight; floats say it
/// themselves.
std::string with_reasons(std::string form, DeviceLayout layout, const std::string& reasons);

}  // namespace halley::cuda
