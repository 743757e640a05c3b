// The ranges of queries' and keys' weights by what rounding costs at the attention block's output.
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

/// Why the ranges cannot be chosen by the block; empty: they can.
std::string why_not_clip_by_block(const LayerSpec& spec);

/// Of one layer whose weights are transformed already.
class BlockClip {
 public:
  /// Makes the codes of a weight from the ratios of its groups' ranges, [N, num_groups].
  using Quantize = std::function<QuantizedWeight(std::vector<float> clip)>;
  /// Squared errors at the block's output, with the ratios as they came and as they were left.
  struct Errors {
    double before = 0, after = 0;
  };

  /// Runs the block once, for the outputs that the variants' are compared with. `layer` must
  /// outlive this; `run` runs its attention block.
  BlockClip(LayerInWork& layer, ObservedRun run);

  /// Where the weight [N, K] is that of the queries or keys, chooses for each head one of a few
  /// variants of `clip` [N, num_groups], the ratios that suit the layer's own output: the one with
  /// the least error in the head's share of the block's output. `clip` stays where the heads'
  /// choices together are no better. Each variant's codes take the weight's place in the block,
  /// which runs with all else in full precision.
  void choose(const std::string& stored_name, const Quantize& quantize, std::span<float> clip);

  /// Of the weights that choose() had, by name.
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
