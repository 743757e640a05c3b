#include "halley/quant/methods/quantize_checkpoint.h"

#include <span>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/checkpoint/gguf/gguf_file.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/quant/methods/calibration_text.h"

namespace halley {
namespace {

/// A hash of the calibration tokens, since the text decides the result.
uint64_t hash_of(std::span<const int32_t> ids) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const int32_t id : ids) {
    hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001B3u;
  }
  return hash;
}

std::string fingerprint_of(const QuantizeOptions& options, const Recipe& recipe,
                           const TensorSource& source, const CalibrationTokens& tokens) {
  size_t num_bytes = 0;
  for (const TensorInfo& info : source.tensors()) num_bytes += info.num_bytes;
  std::string text =
      str("notes 2\nmethod ", recipe.method, "\n", describe(recipe), "\ndamp ", recipe.damp,
          "\nalpha ", recipe.alpha_input, "\ns8 share ", recipe.s8_share_max, "\nstatic ",
          recipe.is_activation_static, recipe.has_static_groups, "\nmodel ", options.model, ", ",
          num_bytes, " bytes\ntokens ", tokens.ids.size(), " of ", tokens.sequence_length,
          ", hash ", hash_of(tokens.ids), "\n");
  for (const std::string& change : options.overrides) text += str("override ", change, "\n");
  return text;
}

/// The tensors that were rounded to f16, in all and one by one; null where none had another type.
OrderedJson rounding_json(const QuantizeSummary& summary) {
  if (summary.roundings.empty()) return nullptr;
  const RoundedModel model = rounded_model_of(summary.roundings);
  OrderedJson json = to_json(model.rounding);
  json["from"] = model.dtypes;
  json["tensors"] = OrderedJson::array();
  for (const RoundingReport& report : summary.roundings) json["tensors"].push_back(to_json(report));
  return json;
}

/// A note for each technique that the method has and that needs a text which was not given.
void note_left_out(const QuantizeOptions& options, const Recipe& recipe,
                   std::vector<std::string>& notes) {
  RecipeChanges changes = options.changes;
  changes.has_calibration = true;
  const Recipe whole = make_recipe(options.method, changes);
  for (const Technique& technique : techniques()) {
    if (!technique.has(whole) || technique.has(recipe)) continue;
    notes.push_back(str("without ", technique.name, ": it needs a text, --calibrate"));
  }
}

}  // namespace

QuantizedCheckpoint quantize_checkpoint(
    ExecContext& context, const QuantizeOptions& options,
    const std::function<void(const QuantizeProgress&)>& on_progress) {
  RecipeChanges changes = options.changes;
  changes.has_calibration = options.text.has_value();
  Recipe recipe = make_recipe(options.method, changes);
  QuantizeJob job = {.model_dir = check_model_dir(options.model),
                     .out_dir = options.out,
                     .recipe = recipe,
                     .overrides = {},
                     .tokens = {},
                     .fingerprint = {}};
  for (const std::string& text : options.overrides) {
    job.overrides.push_back(parse_layer_override(text));
  }
  if (is_gguf_file(job.model_dir)) {
    throw UnsupportedError(str(job.model_dir.string(),
                               ": expected a directory of a checkpoint in full precision, got a "
                               "GGUF file. Quantize the model's safetensors checkpoint."));
  }
  const HfConfig config = HfConfig::load(job.model_dir);
  const auto source = open_checkpoint_weights(job.model_dir);
  if (options.text) {
    job.tokens = read_calibration_text(job.model_dir, *options.text, options.num_samples,
                                       options.sample_length);
  }
  job.fingerprint = fingerprint_of(options, recipe, *source, job.tokens);
  QuantizeSummary summary = quantize_model(context, config, *source, job, on_progress);
  note_left_out(options, recipe, summary.notes);
  recipe.group_size = summary.group_size;
  return {recipe, std::move(summary), options.out};
}

OrderedJson to_json(const QuantizedCheckpoint& checkpoint) {
  const QuantizeSummary& summary = checkpoint.summary;
  OrderedJson layers = OrderedJson::array();
  for (const LinearReport& report : summary.reports) {
    layers.push_back({{"name", report.name},
                      {"bits", report.bits},
                      {"is_quantized", report.is_quantized},
                      {"relative_error", report.relative_error},
                      {"s4_share", report.s4_share}});
  }
  return {{"method", checkpoint.recipe.method},
          {"recipe", describe(checkpoint.recipe)},
          {"out", checkpoint.out},
          {"seconds", summary.seconds},
          {"layers_resumed", summary.num_layers_resumed},
          {"source_bytes", summary.source_bytes},
          {"written_bytes", summary.written_bytes},
          {"s4_share", summary.s4_share},
          {"notes", summary.notes},
          {"error_inputs", summary.is_calibrated ? "calibration" : "random"},
          {"rounded_to_f16", rounding_json(summary)},
          {"layers", layers}};
}

}  // namespace halley
