// A linear layer bound to its weight and its kernel for life: no branch on the format at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"
#include "halley/kernels/gemm/gemm.h"

namespace halley {

/// What a model asks for: y = x W^T + b, where W is one checkpoint tensor or several with the same
/// inputs, one below the other (q, k and v; gate and up).
struct LinearSpec {
  /// One part of the rows. `name` is the checkpoint's without ".weight":
  /// "model.layers.0.self_attn.q_proj". Where a checkpoint stores a larger tensor (fused q/k/v, all
  /// experts in one), the part takes rows [row_begin, row_begin + out_features) of it; for a
  /// three-dimensional tensor of experts `expert` picks the matrix.
  struct Part {
    std::string name;
    int64_t out_features = 0;
    int64_t row_begin = 0;
    int64_t stored_rows = 0;  // rows that the stored tensor must have
    int64_t expert = -1;      // index into [E, rows, K], or -1: the tensor is [rows, K]
    int64_t num_stored_experts = 0;
  };
  std::vector<Part> parts;
  int64_t in_features = 0;
  bool has_bias = false;

  int64_t out_features() const;
  /// For messages and `inspect`: the parts' names joined, "model.layers.0.self_attn.{q,k,v}_proj".
  std::string display_name() const;
};

/// What will run for a layer, made from headers alone.
struct LinearPlan {
  std::string name;    // display_name()
  std::string format;  // "none"
  DType stored_dtype = DType::kF16;
  int64_t out_features = 0, in_features = 0;
  double bits_per_weight = 16;
  size_t packed_bytes = 0;
  const GemmKernel* kernel = nullptr;
  /// Better-placed kernels and why each was refused.
  std::vector<std::string> refusals;
};

/// Move-only; run() from one thread at a time.
class LinearOp {
 public:
  LinearOp() = default;
  LinearOp(PackedWeight weight, std::vector<float> bias, const GemmKernel& kernel)
      : weight_(std::move(weight)), bias_(std::move(bias)), kernel_(&kernel) {}

  /// x [M, in_features] f32 -> y [M, out_features] f32
  void run(ExecContext& context, ConstMatrix x, Matrix y) const {
    kernel_->launch(context, weight_, bias_.empty() ? nullptr : bias_.data(), x, y);
  }
  const PackedWeight& weight() const { return weight_; }
  const GemmKernel& kernel() const { return *kernel_; }

 private:
  PackedWeight weight_;
  std::vector<float> bias_;
  const GemmKernel* kernel_ = nullptr;
};

}  // namespace halley
