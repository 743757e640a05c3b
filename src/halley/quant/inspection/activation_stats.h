// Magnitudes of a model's activations, keys and values on a calibration text, as they are and after
// FMPQ's transforms: smoothed keys, smoothed inputs, channels permuted into blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/quant/methods/calibration_run.h"

namespace halley {

/// For the option that shows a report.
inline constexpr const char* kActivationsDescription =
    "Run a text, and show the channels of activations, keys and values that are hard to quantize, "
    "before and after method fmpq's smoothing and permutation";

/// Over all tokens that reached the site; the same number of channels in both.
struct ChannelMagnitudes {
  std::vector<float> abs_max, abs_mean;
};

/// One place of a layer where activations are seen.
struct ActivationSite {
  std::string name;  // "layers.3.down", "layers.3.keys"
  int64_t layer = 0;
  int64_t num_tokens = 0;  // fewer for an expert
  ChannelMagnitudes before;
  /// Keys and values: the same channels. Inputs of linear layers: in packed order, channel i is
  /// channel perm[i] of `before`.
  ChannelMagnitudes after;
  std::vector<int32_t> perm;  // empty for keys and values
  int64_t head_dim = 0;       // of keys and values; 0 for inputs
  int64_t num_s8_inputs = 0;  // of inputs: the first packed ones, which FMPQ gives 8 bits

  bool is_head_site() const { return head_dim > 0; }
};

/// Says how hard a site is to quantize.
struct SiteSummary {
  int64_t worst_channel = 0;  // of `before`, with the largest ratio
  /// max |x| of the channel over that of the median channel above zero: of its head for keys and
  /// values, of all channels for inputs. 0 where all are zero.
  double ratio = 0;
  double ratio_after = 0;  // the largest ratio of `after`
  // Inputs alone, by outlier_limit() of quant/fmpq/plan_blocks.h:
  int64_t num_blocks = 0;      // of 128 channels
  int64_t num_outliers = 0;    // channels of `before`
  int64_t outlier_blocks = 0;  // blocks of `before`, in the model's order, that hold one
  int64_t outlier_blocks_after = 0;
  int64_t num_outliers_after = 0;
  int64_t num_outliers_in_s4 = 0;  // of `after`, behind num_s8_inputs
};

SiteSummary summarize(const ActivationSite& site);

/// "channel 412 is 93 times the median channel; 9.1 % of blocks of 128 hold an outlier ...".
std::string reason_of(const ActivationSite& site);

/// Indices of the sites by descending SiteSummary::ratio, at most `count`.
std::vector<size_t> worst_sites(const std::vector<ActivationSite>& sites, size_t count);

struct ActivationReport {
  std::vector<ActivationSite> sites;  // in model order
  std::vector<std::string> notes;     // transforms that the model does not allow
  int64_t num_layers = 0, num_sequences = 0, sequence_length = 0;
};

/// "0,3-5": layer indices, ascending, each once; all where the text is empty. Throws InputError
/// for anything else and for layers that the model does not have.
std::vector<int64_t> parse_layers(std::string_view text, int64_t num_layers);

/// Runs the model in full precision, layer by layer as quantize_model() does, and keeps statistics
/// alone. Each layer in `layers` (ascending) runs three times: as it is for its statistics,
/// transformed for those afterwards, and as it is for the next layer's input. `progress(done, all)`
/// counts layers and may be empty. Throws as CalibrationRun, and InputError where activations are
/// not finite.
ActivationReport measure_activations(
    ExecContext& context, const HfConfig& config, const TensorSource& source,
    const CalibrationTokens& tokens, const std::vector<int64_t>& layers,
    const std::function<void(int64_t done, int64_t all)>& progress);

}  // namespace halley
