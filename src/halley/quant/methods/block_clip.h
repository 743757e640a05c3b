// Clip search for the weights of queries and keys by the error at the attention block's output.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "halley/models/base/decoder_config.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/methods/calibration_run.h"
#include "halley/quant/methods/layer_transforms.h"

namespace halley {

/// Empty where this search can be used for the layer; otherwise the reason why it cannot.
std::string why_not_clip_by_block(const LayerSpec& spec);

/// Searches one layer, whose weights are transformed already.
class BlockClip {
 public:
  /// Quantizes a weight with these clipping ratios of its groups, [N, num_groups].
  using Quantize = std::function<QuantizedWeight(std::vector<float> clip)>;
  /// Squared errors at the block's output, with the ratios as given and as chosen.
  struct Errors {
    double before = 0, after = 0;
  };

  /// Runs the block once in full precision: the reference of all candidates. `layer` must outlive
  /// this; `run` runs its attention block.
  BlockClip(LayerInWork& layer, ObservedRun run);

  /// For a weight [N, K] of queries or keys; leaves `clip` as it is for any other. `clip`
  /// [N, num_groups] has the clipping ratios with the least error at the layer's own output. For
  /// each head, chooses among a few candidates made from `clip` the one with the least error in the
  /// head's share of the block's output, where the block runs with this weight quantized and all
  /// else in full precision. `clip` stays where the heads' choices together are no better.
  void choose(const std::string& stored_name, const Quantize& quantize, std::span<float> clip);

  /// Errors of the weights that choose() searched, by name.
  const std::map<std::string, Errors>& errors() const { return errors_; }

 private:
  class Outputs;

  void run_with(const std::string& stored_name, const QuantizedWeight& quantized, Outputs& outputs);

  LayerInWork& layer_;
  ObservedRun run_;
  std::vector<float> attended_, expected_;  // inputs and outputs of o, token after token
  std::map<std::string, Errors> errors_;
};

}  // namespace halley
