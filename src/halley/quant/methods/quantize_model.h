// A whole model from full precision to a checkpoint on disk, layer by layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/quant/methods/calibration_run.h"
#include "halley/quant/methods/layer_quantizer.h"
#include "halley/quant/methods/recipe.h"

namespace halley {

struct QuantizeJob {
  std::filesystem::path model_dir;  // files other than weights are copied from here
  std::filesystem::path out_dir;    // must not exist
  Recipe recipe;
  std::vector<LayerOverride> overrides;
  CalibrationTokens tokens;  // none: the recipe has no calibrated_parts()
  /// Everything that decides the result, as the user said it: an interrupted run goes on only
  /// where this is the same.
  std::string fingerprint;
};

struct QuantizeProgress {
  int64_t num_layers_done = 0;
  int64_t num_layers = 0;
  double share_done = 0;  // of the whole work
  std::string doing;      // "layers.3: calibrating"
};

/// Errors, sizes and times of a finished job.
struct QuantizeSummary {
  std::vector<LinearReport> reports;  // all linear layers, in model order
  /// NestedFP: the tensors that were not f16, those outside of the layers first.
  std::vector<RoundingReport> roundings;
  bool is_calibrated = false;  // errors were measured on calibration tokens
  std::vector<std::string> notes;
  int64_t group_size = 0;  // the recipe's, or the one that fits the model's sizes
  double source_bytes = 0, written_bytes = 0;
  double s4_share = 0;  // W4A4 multiply-accumulates of quantized layers
  double seconds = 0;
  int64_t num_layers_resumed = 0;
};

/// Reads the model layer by layer, quantizes each with the hidden states that the layers before,
/// already quantized, give it, and writes it at once: the memory is that of one layer in f32 and in
/// its own type, its statistics, and the calibration tokens' hidden states. Without tokens no layer
/// runs, and errors are measured on random inputs. The checkpoint grows in
/// `out_dir` + ".partial", where an interrupted run goes on at its last complete layer, and gets
/// its name when it is complete. The same job gives the same bytes on any number of threads.
///
/// Throws InputError where out_dir exists, the partial folder belongs to another job, or the model
/// is quantized already; CheckpointError where a value is not finite; UnsupportedError where the
/// method cannot hold this model; DeviceError where the disk is full.
QuantizeSummary quantize_model(ExecContext& context, const HfConfig& config,
                               const TensorSource& source, const QuantizeJob& job,
                               const std::function<void(const QuantizeProgress&)>& on_progress);

}  // namespace halley
