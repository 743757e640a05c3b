#include "halley/quant/methods/quantize_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/models/all/load_model.h"
#include "halley/models/base/decoder_parts.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/models/transform/rotated_source.h"
#include "halley/models/transform/scale_points.h"
#include "halley/quant/all/formats.h"
#include "halley/quant/methods/dense_types.h"
#include "halley/quant/methods/group_fit.h"
#include "halley/quant/methods/output_folder.h"

namespace halley {
namespace {

using Clock = std::chrono::steady_clock;

/// Rows of each input that searches and reports look at.
constexpr int64_t kSampleRows = 512;
/// Rows of random inputs, where there are no calibration tokens.
constexpr int64_t kRandomRows = 64;
/// Tokens, in whole sequences, on which attention blocks are compared: a run of the block for each
/// candidate must cost little compared with the layer's calibration.
constexpr int64_t kBlockTokens = 2048;
constexpr size_t kConfigBytesMax = size_t{1} << 26;

OrderedJson note_of(const LayerResult& result) {
  OrderedJson layers = OrderedJson::array();
  for (size_t i = 0; i < result.written.size(); ++i) {
    const WrittenLayer& written = result.written[i];
    const LinearReport& report = result.reports[i];
    layers.push_back({{"name", written.name},
                      {"is_quantized", written.is_quantized},
                      {"bits", written.bits},
                      {"group_size", written.group_size},
                      {"is_symmetric", written.is_symmetric},
                      {"num_weights", report.num_weights},
                      {"relative_error", report.relative_error},
                      {"s4_share", report.s4_share}});
  }
  OrderedJson roundings = OrderedJson::array();
  for (const RoundingReport& report : result.roundings) roundings.push_back(to_json(report));
  return {{"layers", layers}, {"roundings", roundings}, {"notes", result.notes}};
}

/// The facts of a written shard that are needed later.
LayerResult result_of(const Json& note) {
  LayerResult result;
  for (const Json& layer : note.at("layers")) {
    WrittenLayer written = {.name = layer.at("name"),
                            .is_quantized = layer.at("is_quantized"),
                            .bits = layer.at("bits"),
                            .group_size = layer.at("group_size"),
                            .is_symmetric = layer.at("is_symmetric")};
    result.reports.push_back({.name = written.name,
                              .is_quantized = written.is_quantized,
                              .bits = written.is_quantized ? written.bits : 16,
                              .num_weights = layer.at("num_weights"),
                              .relative_error = layer.at("relative_error"),
                              .s4_share = layer.at("s4_share")});
    result.written.push_back(std::move(written));
  }
  for (const Json& report : note.at("roundings")) {
    result.roundings.push_back(rounding_report_of(report));
  }
  result.notes = note.at("notes");
  return result;
}

KvDType kv_dtype_for(int bits) {
  if (bits == 4) return KvDType::kInt4;
  return bits == 8 ? KvDType::kInt8 : KvDType::kF32;
}

QuantConfig config_of(const std::optional<OrderedJson>& declaration) {
  if (!declaration) return {};
  const OrderedJson text = {{"quantization_config", *declaration}};
  return quant_config_of(
      *HfConfig::parse(text.dump(), "the quantizer's declaration").object("quantization_config"));
}

/// Names of the tensors outside of the layers: embedding, final norm, output layer.
std::vector<std::string> names_outside(const DecoderConfig& config) {
  std::vector<std::string> names;
  for (const DecoderPart& part : list_decoder_parts(config)) {
    if (part.name.starts_with("layers.")) continue;
    if (part.kind == PartKind::kNorm) {
      names.push_back(part.norm->weight_name);
      if (!part.norm->bias_name.empty()) names.push_back(part.norm->bias_name);
    } else if (part.kind == PartKind::kLinear) {
      for (const LinearSpec::Part& stored : part.linear->parts) {
        names.push_back(stored.name + ".weight");
        if (part.linear->has_bias) names.push_back(stored.name + ".bias");
      }
    } else {
      names.push_back(part.table_name);
    }
  }
  return names;
}

/// A weight with NaN or infinity has no quantization grid.
void check_finite(const TensorSource& layer) {
  for (const TensorInfo& info : layer.tensors()) {
    const TensorView view = layer.view(info);
    const auto* values = reinterpret_cast<const float*>(view.data);
    for (int64_t i = 0; i < view.num_elements(); ++i) {
      if (std::isfinite(values[i])) continue;
      throw CheckpointError(str("tensor ", quote(info.name), ": expected finite numbers, got ",
                                values[i], " at element ", i, ". The checkpoint is damaged."));
    }
  }
}

/// NestedFP's checkpoints are f16 checkpoints.
void declare_f16(OrderedJson& config) {
  const bool has_new_name = config.contains("dtype");
  if (has_new_name) config["dtype"] = "float16";
  if (!has_new_name || config.contains("torch_dtype")) config["torch_dtype"] = "float16";
}

class ModelQuantizer {
 public:
  ModelQuantizer(ExecContext& context, const HfConfig& config, const TensorSource& source,
                 const QuantizeJob& job,
                 const std::function<void(const QuantizeProgress&)>& on_progress)
      : context_(context),
        original_(source),
        job_(job),
        on_progress_(on_progress),
        config_(read_decoder_config(config, source, 0)) {
    if (read_quant_config(config, job.model_dir).fields) {
      throw InputError(str(job.model_dir.string(),
                           ": expected a model in full precision, got one "
                           "that states a quantization. Quantize the original."));
    }
    const std::vector<std::string> parts = calibrated_parts(job.recipe);
    HALLEY_CHECK(!job.tokens.ids.empty() || parts.empty(), str(parts));
    // The whole model is checked before hours of work.
    plan_model(config, source);
    const std::string note = note_of_left_out(config_, source);
    if (!note.empty()) summary_.notes.push_back(note);
    if (job.recipe.is_rotated) rotate();
    if (const auto fit = fit_group_size(job_.recipe, job_.overrides, config_)) {
      job_.recipe.group_size = fit->group_size;
      summary_.notes.push_back(fit->note);
    }
    summary_.group_size = job_.recipe.group_size;
  }

  QuantizeSummary run() {
    const auto start = Clock::now();
    OutputFolder folder(job_.out_dir, job_.fingerprint);
    if (!job_.tokens.ids.empty()) run_.emplace(context_, config_, job_.tokens, source());
    summary_.is_calibrated = run_.has_value();
    std::vector<std::string> shards = {"outside"};
    do_outside(folder);
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      char name[32];
      std::snprintf(name, sizeof(name), "layer-%05lld", static_cast<long long>(i));
      shards.emplace_back(name);
      do_layer(i, name, folder);
    }
    OrderedJson config =
        parse_ordered_json(read_text_file(job_.model_dir / "config.json", kConfigBytesMax),
                           (job_.model_dir / "config.json").string());
    if (job_.recipe.is_rotated) config["tie_word_embeddings"] = false;
    if (job_.recipe.format == WeightFormat::kNestedFp) declare_f16(config);
    if (config_.lm_head) {
      written_.push_back({.name = config_.lm_head->parts[0].name, .is_quantized = false});
    }
    summarize();
    const ModelTotals totals = {.s4_share = summary_.s4_share,
                                .rounded = rounded_model_of(summary_.roundings)};
    if (auto declaration = declaration_of(job_.recipe, job_.overrides, written_, &totals)) {
      config["quantization_config"] = std::move(*declaration);
    }
    summary_.written_bytes = folder.finish(shards, config, job_.model_dir);
    for (const TensorInfo& info : original_.tensors()) {
      summary_.source_bytes += static_cast<double>(info.num_bytes);
    }
    summary_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(summary_);
  }

 private:
  const TensorSource& source() const { return rotated_ ? *rotated_ : original_; }

  void rotate() {
    const std::string rejection = why_not_rotate(config_);
    if (rejection.empty()) {
      rotated_ = make_rotated_source(context_, config_, original_);
    } else {
      throw UnsupportedError(str("--method ", job_.recipe.method, ": the residual stream of ",
                                 quote(config_.family), " cannot be rotated: ", rejection,
                                 ". Add --without rotation."));
    }
  }

  void report(int64_t layer, double share_of_layer, const char* doing) const {
    if (!on_progress_) return;
    const auto num_layers = static_cast<double>(config_.num_layers);
    on_progress_({.num_layers_done = layer,
                  .num_layers = config_.num_layers,
                  .share_done = (static_cast<double>(layer) + share_of_layer) / num_layers,
                  .doing = str("layer ", layer + 1, " of ", config_.num_layers, ": ", doing)});
  }

  /// The embedding's rows are activations, so that its type must be theirs.
  static void check_table(const DecoderConfig& config, const RoundingReport& report) {
    if (report.kept_because.empty()) return;
    if (report.name != config.embedding_name && report.name != config.position_embedding_name) {
      return;
    }
    throw UnsupportedError(str("tensor ", quote(report.name), ": expected values that f16 holds, ",
                               "got ", report.dtype, ": ", report.kept_because,
                               ". The format is for models that run in f16: use method fp8."));
  }

  LayerResult read_outside() const {
    LayerResult result;
    for (const std::string& name : names_outside(config_)) {
      const TensorInfo* info = source().find(name);
      if (info == nullptr) {
        throw CheckpointError(str(source().description(), ": tensor ", quote(name),
                                  ": expected one, got none. Check the checkpoint."));
      }
      result.tensors.push_back(to_written_type(context_, job_.recipe, name, source().view(*info),
                                               stored_type_of(original_, name, config_.dtype),
                                               result.roundings));
      source().release(*info);
    }
    for (const RoundingReport& report : result.roundings) check_table(config_, report);
    return result;
  }

  void do_outside(OutputFolder& folder) {
    LayerResult result;
    if (const std::optional<Json> note = folder.find_shard("outside")) {
      result = result_of(*note);
    } else {
      result = read_outside();
      folder.write_shard("outside", result.tensors, note_of(result));
    }
    add_to_summary(std::move(result));
  }

  LayerWeights load(const TensorSource& tensors, const QuantConfig& quant, int64_t index,
                    bool has_self_check = true) const {
    const std::unique_ptr<QuantScheme> scheme = detect_quant_scheme(quant, tensors);
    const KernelDemands demands;
    return load_layer_weights(context_, config_, {*scheme, tensors, demands, has_self_check},
                              index);
  }

  void run_attention(int64_t index, const TensorSource& tensors, LayerObserver& observer) {
    const std::unique_ptr<QuantScheme> scheme = detect_quant_scheme({}, tensors);
    const KernelDemands demands;
    // The layer's kernels were checked when it was calibrated.
    const LinearLoading loading = {*scheme, tensors, demands, /*has_self_check=*/false};
    run_->run_layer(
        index, load_attention_weights(context_, config_, loading, index),
        {.observer = &observer,
         .is_attention_only = true,
         .num_sequences_max = std::max<int64_t>(1, kBlockTokens / run_->sequence_length())});
  }

  std::optional<OrderedJson> declare(const LayerResult& result) const {
    return declaration_of(job_.recipe, job_.overrides, result.written);
  }

  void run_written(int64_t index, const LayerWeights& weights) {
    run_->run_layer(index, weights,
                    {.is_kept = true, .kv_dtype = kv_dtype_for(job_.recipe.kv_bits)});
  }

  void do_layer(int64_t index, const std::string& shard, OutputFolder& folder) {
    LayerResult result;
    if (const std::optional<Json> note = folder.find_shard(shard)) {
      report(index, 0, "resuming");
      result = result_of(*note);
      if (run_) {
        const auto stored = open_checkpoint_weights(folder.shard_path(shard));
        run_written(index, load(*stored, config_of(declare(result)), index));
      }
      ++summary_.num_layers_resumed;
    } else {
      result = quantize(index);
      folder.write_shard(shard, result.tensors, note_of(result));
    }
    add_to_summary(std::move(result));
  }

  void add_to_summary(LayerResult result) {
    for (const RoundingReport& report : result.roundings) {
      if (report.kept_because.empty()) continue;
      summary_.notes.push_back(
          str(report.name, " stays ", report.dtype, ": ", report.kept_because));
    }
    for (RoundingReport& report : result.roundings) {
      summary_.roundings.push_back(std::move(report));
    }
    for (LinearReport& report : result.reports) summary_.reports.push_back(std::move(report));
    for (WrittenLayer& written : result.written) written_.push_back(std::move(written));
    for (std::string& note : result.notes) summary_.notes.push_back(std::move(note));
  }

  /// Gathers the statistics of the layer's inputs.
  void calibrate(int64_t index, const LayerInWork& layer, LayerStats& stats) {
    if (run_) {
      const LayerWeights weights = load(rotated_ ? layer.tensors : original_, {}, index);
      run_->run_layer(index, weights, {.observer = &stats});
    }
    stats.finish();
    if (!run_) stats.fill_rows(kRandomRows);
  }

  LayerResult quantize(int64_t index) {
    report(index, 0, run_ ? "calibrating" : "reading");
    const Recipe& recipe = job_.recipe;
    LayerStats stats(context_, config_.layers[static_cast<size_t>(index)],
                     {.has_gram = run_ && (recipe.is_compensated || recipe.is_clipped),
                      .num_rows = kSampleRows,
                      .num_tokens = run_ ? run_->num_tokens() : 0});
    LayerInWork layer = {.context = context_,
                         .config = config_,
                         .index = index,
                         .tensors = read_layer_tensors(config_, index, source()),
                         .stats = stats,
                         .notes = {}};
    check_finite(layer.tensors);
    calibrate(index, layer, stats);
    report(index, 0.4, "quantizing");
    LayerResult result = quantize_layer(
        recipe, job_.overrides, layer, original_, config_.dtype,
        {.whole =
             [&](const TensorSource& tensors, LayerObserver& observer) {
               // The layer's kernels were checked when it was calibrated.
               run_->run_layer(index, load(tensors, {}, index, /*has_self_check=*/false),
                               {.observer = &observer});
             },
         .attention = [&](const TensorSource& tensors,
                          LayerObserver& observer) { run_attention(index, tensors, observer); }});
    report(index, 0.8, "checking");
    TensorStore written("the quantized layer");
    for (const CheckpointTensor& tensor : result.tensors) {
      written.set(tensor.info.name, tensor.info.dtype, tensor.info.shape, tensor.data);
    }
    const LayerWeights weights = load(written, config_of(declare(result)), index);
    measure_errors(layer, weights, result.reports);
    if (run_) run_written(index, weights);
    return result;
  }

  void summarize() {
    double num_s4 = 0, num_quantized = 0;
    for (const LinearReport& report : summary_.reports) {
      const auto count = static_cast<double>(report.num_weights);
      if (report.is_quantized) num_quantized += count;
      num_s4 += count * report.s4_share;
    }
    if (num_quantized > 0) summary_.s4_share = num_s4 / num_quantized;
  }

  ExecContext& context_;
  const TensorSource& original_;
  QuantizeJob job_;
  const std::function<void(const QuantizeProgress&)>& on_progress_;
  DecoderConfig config_;
  std::unique_ptr<TensorSource> rotated_;
  std::optional<CalibrationRun> run_;  // where there are calibration tokens
  std::vector<WrittenLayer> written_;
  QuantizeSummary summary_;
};

}  // namespace

QuantizeSummary quantize_model(ExecContext& context, const HfConfig& config,
                               const TensorSource& source, const QuantizeJob& job,
                               const std::function<void(const QuantizeProgress&)>& on_progress) {
  return ModelQuantizer(context, config, source, job, on_progress).run();
}

}  // namespace halley
