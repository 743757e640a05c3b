// A linear layer on the GPU, bound to its weights and kernels for life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/core/precision.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/gemv/gemv_weight.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// A kernel for one type of outputs.
struct BoundGemm {
  CudaGemmProblem problem = {};
  CudaGemmChoice choice = {};
};

/// Move-only; run() from one thread at a time.
class CudaLinear {
 public:
  /// Some consecutive outputs of the layer: parts that could be joined into one weight.
  struct Section {
    int64_t N = 0, K = 0;
    /// Inputs of x that `activation.input_perm` picks K from.
    int64_t num_inputs = 0;
    /// What it was and what it is: "u4_quad, decoded to f16: groups of 128 inputs ...".
    std::string form = {};
    DeviceBuffer weight_memory = {};
    DeviceBuffer array_memory = {};  // scales, offsets, bias, order
    /// Codes of 4 bits; otherwise of no outputs. Then w and scales are empty, and nothing is bound.
    MixedWeight mixed = {};
    MixedDevice mixed_device = {};
    /// Codes of 8, 3 or 2 bits; otherwise of no outputs. Then w and scales are empty, and what is
    /// bound is for decoded_outputs() in the activations' type.
    GemvWeight gemv = {};
    int num_sms = 0;                            // of the two below
    W4Kernels w4_kernels = W4Kernels::kHopper;  // of `mixed` and `w4ax`
    /// Numbers of f16 in two planes; otherwise of no outputs. `w` is the upper one, scales and what
    /// is bound are of low precision, which multiplies it by codes of `low_activation`.
    NestedWeight nested = {};
    CudaActivationQuant low_activation = {};
    /// Codes of 4 bits for blocks of codes of x; otherwise of no outputs. Nothing else is there.
    W4axWeight w4ax = {};
    /// [N, K] of f16, bf16, f32, f8_e4m3 or i8; padded as CudaGemmOperands says where it is codes.
    ConstMatrix w = {};
    RowScales scales = {};                    // of codes; those of x are set by run()
    const float* static_x_scale = nullptr;    // of x for products with one scale for all of it
    const float* bias = nullptr;              // [N]
    const std::byte* rounded_bias = nullptr;  // [N] of the activations' type
    /// input_perm: inputs of codes that multiply numbers, and of blocks of activations, are packed
    /// in this order.
    CudaActivationQuant activation = {};
    BoundGemm for_activations = {};  // outputs of the activations' type
    BoundGemm for_f32 = {};          // f32 outputs

    bool is_mixed() const { return mixed.N > 0; }
    bool is_gemv() const { return gemv.shape.N > 0; }
    bool is_nested() const { return nested.N() > 0; }
    bool is_w4ax() const { return w4ax.N > 0; }
    /// Whether codes of x are multiplied, not numbers.
    bool has_coded_inputs() const;
    /// And their sums are wanted.
    bool has_code_sums() const;
    /// Of outputs in the activations' type.
    const char* kernel_name() const;
    /// What a product reads, beside x.
    std::vector<const DeviceBuffer*> buffers() const;
    size_t device_bytes() const;
  };

  CudaLinear() = default;
  /// Sections from the first output on; `dtype` is the activations' type, `lt` must outlive it.
  CudaLinear(std::string name, DType dtype, std::vector<Section> sections, CublasLtGemm& lt)
      : name_(std::move(name)), dtype_(dtype), sections_(std::move(sections)), lt_(&lt) {}

  /// x [M, num_inputs] -> y [M, out_features], both in device memory; x is f16, bf16 or f32 (not
  /// the activations' type: it is rounded to it first), y the activations' type or f32. Where
  /// `describe()` names a kernel "fp8_tensor" or "fp8_row", rows of y begin at multiples of 16
  /// bytes. Numerics: those of the kernel; x is rounded first as the checkpoint says.
  /// Low precision is for sections that have it; it is the same as full for all others.
  void run(const CudaContext& context, ConstMatrix x, Matrix y,
           Precision precision = Precision::kFull) const;

  /// How the layer takes codes of its inputs, or null where it takes numbers: unless all sections
  /// multiply codes, of the same rounding.
  const CudaActivationQuant* code_form() const;
  /// Whether run_quantized() needs the sums of codes too.
  bool has_code_sums() const;
  /// run() of inputs that are rounded already: quantize_rows() with code_form(), with sums where
  /// has_code_sums(), gives the same bits as run(). x.codes has memory for round_up(M,
  /// kGemmPadding) rows of round_up(K, kGemmPadding) codes at multiples of 16 bytes, those behind K
  /// are zero. Only where code_form() is not null.
  void run_quantized(const CudaContext& context, const QuantizedRows& x, Matrix y) const;

  /// Whether run_gated() takes these inputs: numbers of the activations' type, which the layer's
  /// one section multiplies as they are, by a kernel with a gate.
  bool can_run_gated(ConstMatrix x) const {
    return out_features() % 2 == 0 && gated_kernel(x) != nullptr;
  }
  /// run() and gated_activation() (cuda/ops) in one: y [M, out_features / 2] of the activations'
  /// type, the same bits as both one after the other. Only where can_run_gated().
  void run_gated(const CudaContext& context, Activation activation, ConstMatrix x, Matrix y) const;

  /// The layer's one section, of which row_gemm() (codes of 4 bits) or normed_gemm() (e4m3,
  /// numbers) may make a product of one row, here as numbers, and the row itself; or null.
  const Section* row_section(ConstMatrix x) const;

  /// The activations' type.
  DType dtype() const { return dtype_; }
  int64_t in_features() const { return sections_.empty() ? 0 : sections_[0].K; }
  int64_t out_features() const;
  /// Of x in run(): more than in_features() where the layer picks those that it multiplies.
  int64_t num_inputs() const { return sections_.empty() ? 0 : sections_[0].num_inputs; }
  bool picks_inputs() const { return num_inputs() != in_features(); }
  /// Of weights, scales and biases on the GPU.
  size_t device_bytes() const;
  /// The most that run() takes from the workspace for M rows.
  size_t workspace_bytes(int64_t M) const;

  /// For each section a line: the weight's form, the kernels, and why better-placed ones do not
  /// fit.
  std::string describe() const;

  const std::vector<Section>& sections() const { return sections_; }

 private:
  const CudaGemmKernel* gated_kernel(ConstMatrix x) const;
  template <typename Prepare>
  void run_sections(const CudaContext& context, int64_t M, Matrix y, const Prepare& prepare) const;
  void run_mixed(const CudaContext& context, const Section& section, const CudaGemmOperands& inputs,
                 Matrix y) const;

  std::string name_;
  DType dtype_ = DType::kF16;
  std::vector<Section> sections_;
  CublasLtGemm* lt_ = nullptr;
};

}  // namespace halley::cuda
