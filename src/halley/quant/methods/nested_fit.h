// How much of a model NestedFP applies to: a pass over the weights of its linear layers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/models/base/decoder_config.h"
#include "halley/quant/nestedfp/f16_rounding.h"

namespace halley {

/// The method's name, which names the option that shows the result, and the option's description.
inline constexpr const char* kNestedFitName = "nestedfp";
inline constexpr const char* kNestedFitDescription =
    "Read the weights, and show the layers to which method nestedfp applies: by kind, minimum, "
    "maximum and share of the weights within 1.75";

/// One stored weight; of fused experts one expert's.
struct NestedFitLayer {
  std::string name;  // "model.layers.0.mlp.up_proj"
  size_t kind = 0;   // index into NestedFit::kinds
  DType dtype = DType::kF16;
  F16Rounding rounding;

  bool is_applicable() const { return rounding.num_beyond == 0; }
};

/// Layers of one kind, or all.
struct NestedFitKind {
  std::string name = {};
  int64_t num_layers = 0, num_applicable = 0;
  F16Rounding rounding = {};  // of all weights of these layers

  void add(const NestedFitLayer& layer);
  /// The share of weights that are at most 1.75 in magnitude; 1 where there are none.
  double share_within() const;
};

struct NestedFit {
  /// The GEMMs 1 to 4 of the paper's Table 3.
  std::array<NestedFitKind, 4> kinds = {{{"qkv"}, {"o"}, {"gate_up"}, {"down"}}};
  NestedFitKind total = {"total"};
  std::vector<NestedFitLayer> exceptions;  // in model order
};

/// Reads each weight of the decoder layers once, tensor by tensor, and releases it; routers and the
/// output layer, which the method leaves in f16, are not among them. `progress(done, total)` counts
/// tensors and may be empty. Throws CheckpointError for missing tensors, other shapes, NaN and
/// infinities; UnsupportedError for weights that are not in full precision.
NestedFit measure_nested_fit(ExecContext& context, const DecoderConfig& config,
                             const TensorSource& source,
                             const std::function<void(size_t done, size_t total)>& progress);

}  // namespace halley
