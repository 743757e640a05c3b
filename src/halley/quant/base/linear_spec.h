// The specification of a linear layer: which rows of which checkpoint tensors it is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halley {

/// Inputs [begin, end) of a linear layer.
struct InputRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
};

/// y = x W^T + b, where W is one checkpoint tensor or several with the same inputs, stacked along
/// their rows (q, k and v; gate and up).
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
    /// Tools leave it in full precision unless told otherwise, and often without saying so: the
    /// output layer, the routers of experts.
    bool is_usually_dense = false;
  };
  std::vector<Part> parts;
  int64_t in_features = 0;  // stored
  bool has_bias = false;
  /// The packed inputs that this layer multiplies where others multiply the rest and all results
  /// are added; the slice with the first input adds the bias. Absent: all.
  std::optional<InputRange> inputs = {};

  int64_t out_features() const;
  /// For messages and `inspect`: the parts' names joined, "model.layers.0.self_attn.{q,k,v}_proj".
  std::string display_name() const;
};

}  // namespace halley
