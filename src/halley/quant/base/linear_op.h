// A linear layer bound to its weights and its kernels for life: no branch on the format at run
// time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"
#include "halley/kernels/gemm/gemm.h"

namespace halley {

/// Move-only; run() from one thread at a time.
class LinearOp {
 public:
  /// Some consecutive outputs of the layer: parts that could be packed into one weight.
  struct Section {
    PackedWeight weight;
    const GemmKernel* kernel = nullptr;
    /// The kernel in low precision; null: the same.
    const GemmKernel* low_kernel = nullptr;
  };

  LinearOp() = default;
  /// Sections from the first output on; `bias` is empty or has all outputs.
  LinearOp(std::vector<Section> sections, std::vector<float> bias)
      : sections_(std::move(sections)), bias_(std::move(bias)) {}

  /// x [M, num_inputs] f32 -> y [M, out_features] f32, in the context's precision.
  void run(ExecContext& context, ConstMatrix x, Matrix y) const;

  /// Inputs that are multiplied: those of a slice (LinearSpec::inputs).
  int64_t in_features() const { return sections_.empty() ? 0 : sections_[0].weight.K; }
  /// Columns of x: in_features(), or all stored inputs for a slice that picks its own from them.
  int64_t num_inputs() const { return sections_.empty() ? 0 : sections_[0].weight.num_inputs(); }
  /// Whether x is quantized with per-token scales.
  bool has_row_scales(Precision precision) const;
  int64_t out_features() const;

  const std::vector<Section>& sections() const { return sections_; }
  const std::vector<float>& bias() const { return bias_; }
  /// Bytes of all packed weights.
  size_t packed_bytes() const;
  /// The weight of a layer with one section.
  const PackedWeight& weight() const {
    HALLEY_CHECK(sections_.size() == 1, sections_.size());
    return sections_[0].weight;
  }
  /// The same, moved out: this layer must not run any more.
  PackedWeight take_weight() {
    HALLEY_CHECK(sections_.size() == 1, sections_.size());
    return std::move(sections_[0].weight);
  }

 private:
  std::vector<Section> sections_;
  std::vector<float> bias_;
};

}  // namespace halley
