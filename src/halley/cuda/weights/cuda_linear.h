// A linear layer on the GPU, bound to its weights and kernels for life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/core/precision.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/weights/device_weight.h"
#include "halley/cuda/weights/rows_weight.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

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
    DeviceBuffer array_memory = {};           // biases, order, and scales of some layouts
    const float* bias = nullptr;              // [N]
    const std::byte* rounded_bias = nullptr;  // [N] of the activations' type
    /// input_perm: inputs of quantized values that multiply floats, and of blocks of activations,
    /// are packed in this order.
    CudaActivationQuant activation = {};
    std::unique_ptr<DeviceWeight> weight = {};

    /// Whether quantized x is multiplied, not floats.
    bool has_coded_inputs() const { return weight->input(Precision::kFull).is_quantized(); }
    /// What a GEMM reads, but for x.
    std::vector<const DeviceBuffer*> buffers(Precision precision = Precision::kFull) const;
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

  /// The layer's one section, by which row_gemm() (has_row_kernel()) or normed_gemm() (rows of e4m3
  /// or floats) may multiply one row, here as floats, and make the row itself; or null.
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

  std::string name_;
  DType dtype_ = DType::kF16;
  std::vector<Section> sections_;
  CublasLtGemm* lt_ = nullptr;
};

}  // namespace halley::cuda
