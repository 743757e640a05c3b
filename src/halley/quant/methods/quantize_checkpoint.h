// From the options of a user to a quantized checkpoint, and its report as JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/json/json.h"
#include "halley/quant/methods/quantize_model.h"
#include "halley/quant/methods/recipe.h"

namespace halley {

/// The options of `halley quantize`.
struct QuantizeOptions {
  std::string model;                               // directory of a checkpoint in full precision
  std::string method;                              // of recipes()
  std::string out;                                 // directory to create
  std::optional<std::string> text = {};            // file of the calibration text, UTF-8
  RecipeChanges changes = {};                      // has_calibration follows from `text`
  std::vector<std::string> overrides = {};         // for parse_layer_override()
  int64_t num_samples = 64, sample_length = 1024;  // calibration sequences, and tokens of each
};

/// A finished checkpoint.
struct QuantizedCheckpoint {
  Recipe recipe;
  QuantizeSummary summary;
  std::string out;
};

/// Reads the model and the calibration text and runs quantize_model(). Throws as make_recipe(),
/// parse_layer_override(), cut_calibration_tokens(), check_model_dir() and quantize_model(), and
/// what `on_progress` throws: the folder stays as after an interrupt.
QuantizedCheckpoint quantize_checkpoint(
    ExecContext& context, const QuantizeOptions& options,
    const std::function<void(const QuantizeProgress&)>& on_progress);

/// The report of `halley quantize --json`.
OrderedJson to_json(const QuantizedCheckpoint& checkpoint);

}  // namespace halley
