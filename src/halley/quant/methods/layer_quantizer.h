// One decoder layer from full precision to checkpoint tensors, checked by running what was written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"
#include "halley/quant/methods/calibration_run.h"
#include "halley/quant/methods/f16_report.h"
#include "halley/quant/methods/layer_transforms.h"
#include "halley/quant/methods/recipe.h"

namespace halley {

/// The quantization error of one stored layer.
struct LinearReport {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  bool is_quantized = true;
  int bits = 16;
  int64_t num_weights = 0;
  /// ||y' - y|| / ||y|| over calibration tokens, or random inputs where there are none: y from the
  /// weights in f32, y' from the layer as it was written, rounded activations included.
  double relative_error = 0;
  double s4_share = 0;  // of its multiply-accumulates, those in W4A4
};

/// Totals of the whole model that a declaration records.
struct ModelTotals {
  double s4_share = 0;  // of its multiply-accumulates, those in W4A4
  RoundedModel rounded;
};

struct LayerResult {
  std::vector<CheckpointTensor> tensors;
  std::vector<WrittenLayer> written;
  std::vector<LinearReport> reports;
  std::vector<RoundingReport> roundings;
  std::vector<std::string> notes;
};

/// Runs the layer that is being quantized.
struct LayerRuns {
  ObservedRun whole;      // on all calibration tokens
  ObservedRun attention;  // its attention block on some
};

/// Transforms, quantizes and encodes the layer. `original` says which types the tensors that stay
/// had; those that it does not have get `dense_dtype`.
LayerResult quantize_layer(const Recipe& recipe, std::span<const LayerOverride> overrides,
                           LayerInWork& layer, const TensorSource& original, DType dense_dtype,
                           const LayerRuns& runs);

/// The declaration of a checkpoint with these layers, as config.json's quantization_config; nothing
/// where weights stay as they are. `totals` are those of the whole model, where they are known.
std::optional<OrderedJson> declaration_of(const Recipe& recipe,
                                          std::span<const LayerOverride> overrides,
                                          std::span<const WrittenLayer> written,
                                          const ModelTotals* totals = nullptr);

/// Fills in relative_error by running `weights`, loaded from what was written, on the rows of the
/// statistics.
void measure_errors(LayerInWork& layer, const LayerWeights& weights,
                    std::vector<LinearReport>& reports);

}  // namespace halley
