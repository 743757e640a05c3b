#include "halley/quant/inspection/activation_stats.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/all/load_model.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/models/transform/scale_points.h"
#include "halley/quant/all/formats.h"
#include "halley/quant/fmpq/block_weight.h"
#include "halley/quant/fmpq/plan_blocks.h"
#include "halley/quant/methods/block_inputs.h"
#include "halley/quant/methods/layer_stats.h"
#include "halley/quant/methods/layer_transforms.h"
#include "halley/quant/methods/recipe.h"

namespace halley {
namespace {

// The rows of each input by which the quantizer ranks channels.
constexpr int64_t kSampleRows = 512;

/// FMPQ without what changes codes alone.
Recipe transforms_of_fmpq() {
  return make_recipe("fmpq", {.without = {"clip", "compensation", "activation-clip"}});
}

ChannelMagnitudes magnitudes_of(const InputStats& stats) { return {stats.abs_max, stats.abs_mean}; }

LayerWeights load(ExecContext& context, const DecoderConfig& config, const TensorSource& tensors,
                  int64_t index) {
  const std::unique_ptr<QuantScheme> scheme = detect_quant_scheme({}, tensors);
  const KernelDemands demands;
  return load_layer_weights(context, config, {*scheme, tensors, demands, true}, index);
}

ActivationSite head_site(const char* name, const DecoderConfig& config, int64_t index,
                         const InputStats& before, const InputStats& after) {
  ActivationSite site;
  site.name = str("layers.", index, ".", name);
  site.layer = index;
  site.num_tokens = before.num_tokens;
  site.before = magnitudes_of(before);
  site.after = magnitudes_of(after);
  site.head_dim = config.head_dim;
  return site;
}

/// The consumer whose statistics show the point: the router sees all tokens.
const LinearSpec& shown_consumer(const LayerSpec& spec, const ScalePoint& point) {
  return point.kind == InputKind::kMlpIn && spec.mlp.router ? *spec.mlp.router
                                                            : *point.consumers.front();
}

class LayerMeasurement {
 public:
  LayerMeasurement(ExecContext& context, const DecoderConfig& config, const TensorSource& source,
                   CalibrationRun& run)
      : context_(context), config_(config), source_(source), run_(run) {}

  void measure(int64_t index, const LayerWeights& weights, ActivationReport& report) {
    const LayerSpec& spec = config_.layers.at(static_cast<size_t>(index));
    LayerStats stats(context_, spec, {.num_rows = kSampleRows, .num_tokens = run_.num_tokens()});
    run_.run_layer(index, weights, {.observer = &stats});
    stats.finish();
    const InputStats keys = copy_of(stats.keys()), values = copy_of(stats.values());
    const std::vector<ScalePoint> points = list_scale_points(config_, index);
    std::vector<ActivationSite> sites;
    for (const ScalePoint& point : points) {
      const InputStats& of_point = stats.of(shown_consumer(spec, point));
      ActivationSite site;
      site.name = point.name;
      site.layer = index;
      site.num_tokens = of_point.num_tokens;
      site.before = magnitudes_of(of_point);
      sites.push_back(std::move(site));
    }
    LayerInWork layer = {.context = context_,
                         .config = config_,
                         .index = index,
                         .tensors = read_layer_tensors(config_, index, source_),
                         .stats = stats,
                         .notes = {}};
    const Recipe recipe = transforms_of_fmpq();
    transform_layer(recipe, layer);
    LayerStats after(context_, spec, {.num_rows = 0, .num_tokens = run_.num_tokens()});
    run_.run_layer(index, load(context_, config_, layer.tensors, index), {.observer = &after});
    after.finish();
    for (size_t i = 0; i < points.size(); ++i) {
      const BlockPlan plan = plan_point(recipe, layer, points[i]);
      InputStats moved = copy_of(after.of(shown_consumer(spec, points[i])));
      permute_stats(moved, plan.input_perm);
      sites[i].after = magnitudes_of(moved);
      sites[i].perm = plan.input_perm;
      sites[i].num_s8_inputs = plan.num_s8_inputs;
      report.sites.push_back(std::move(sites[i]));
    }
    report.sites.push_back(head_site("keys", config_, index, keys, after.keys()));
    report.sites.push_back(head_site("values", config_, index, values, after.values()));
    for (std::string& note : layer.notes) report.notes.push_back(std::move(note));
  }

 private:
  ExecContext& context_;
  const DecoderConfig& config_;
  const TensorSource& source_;
  CalibrationRun& run_;
};

struct WorstChannel {
  int64_t channel = 0;
  double ratio = 0;
};

/// The largest ratio to the median, each `group` of channels having a median of its own.
WorstChannel worst_channel(std::span<const float> abs_max, size_t group) {
  WorstChannel worst;
  for (size_t first = 0; first < abs_max.size(); first += group) {
    const auto part = abs_max.subspan(first, std::min(group, abs_max.size() - first));
    const double median = outlier_limit(part, 1);
    if (median == 0) continue;
    const auto largest = std::max_element(part.begin(), part.end());
    const double ratio = double{*largest} / median;
    if (ratio <= worst.ratio) continue;
    worst = {static_cast<int64_t>(first) + (largest - part.begin()), ratio};
  }
  return worst;
}

struct OutlierCount {
  int64_t num_outliers = 0, num_blocks = 0, num_behind = 0;
};

OutlierCount count_outliers(std::span<const float> abs_max, int64_t num_s8_inputs) {
  const double limit = outlier_limit(abs_max);
  OutlierCount count;
  int64_t last_block = -1;
  for (size_t k = 0; k < abs_max.size(); ++k) {
    if (abs_max[k] <= 0 || double{abs_max[k]} < limit) continue;
    const auto channel = static_cast<int64_t>(k);
    ++count.num_outliers;
    if (channel >= num_s8_inputs) ++count.num_behind;
    if (channel / kFmpqBlock != last_block) ++count.num_blocks;
    last_block = channel / kFmpqBlock;
  }
  return count;
}

std::string text_of(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

int64_t parse_layer(std::string_view text, std::string_view whole, int64_t num_layers) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0 &&
      value < num_layers) {
    return value;
  }
  throw InputError(str("--layers: expected layers of 0 to ", num_layers - 1, " as in 0,3-5, got ",
                       quote(std::string(whole)), "."));
}

}  // namespace

SiteSummary summarize(const ActivationSite& site) {
  const size_t num_channels = std::max<size_t>(1, site.before.abs_max.size());
  const size_t group = site.is_head_site() ? static_cast<size_t>(site.head_dim) : num_channels;
  const WorstChannel worst = worst_channel(site.before.abs_max, group);
  SiteSummary summary;
  summary.worst_channel = worst.channel;
  summary.ratio = worst.ratio;
  summary.ratio_after = worst_channel(site.after.abs_max, group).ratio;
  if (site.is_head_site()) return summary;
  const OutlierCount before = count_outliers(site.before.abs_max, 0);
  const OutlierCount after = count_outliers(site.after.abs_max, site.num_s8_inputs);
  summary.num_blocks = (static_cast<int64_t>(num_channels) + kFmpqBlock - 1) / kFmpqBlock;
  summary.num_outliers = before.num_outliers;
  summary.outlier_blocks = before.num_blocks;
  summary.num_outliers_after = after.num_outliers;
  summary.outlier_blocks_after = after.num_blocks;
  summary.num_outliers_in_s4 = after.num_behind;
  return summary;
}

std::string reason_of(const ActivationSite& site) {
  const SiteSummary summary = summarize(site);
  const std::string ratio = text_of(summary.ratio, "%.3g");
  if (site.is_head_site()) {
    return str("head ", summary.worst_channel / site.head_dim, ", channel ",
               summary.worst_channel % site.head_dim, " is ", ratio,
               " times the median channel of its head; ", text_of(summary.ratio_after, "%.3g"),
               " times at most after smoothing");
  }
  const double share = 100.0 * static_cast<double>(summary.outlier_blocks) /
                       static_cast<double>(std::max<int64_t>(1, summary.num_blocks));
  return str("channel ", summary.worst_channel, " is ", ratio, " times the median channel; ",
             text_of(share, "%.1f"), " % of blocks of ", kFmpqBlock, " hold an outlier (",
             summary.outlier_blocks, " of ", summary.num_blocks, "), ",
             summary.outlier_blocks_after, " after smoothing and permutation; ",
             summary.num_outliers_in_s4, " of ", summary.num_outliers_after,
             " outliers are left to 4 bits");
}

std::vector<size_t> worst_sites(const std::vector<ActivationSite>& sites, size_t count) {
  std::vector<double> ratios;
  for (const ActivationSite& site : sites) ratios.push_back(summarize(site).ratio);
  std::vector<size_t> order(sites.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ratios[a] > ratios[b]; });
  order.resize(std::min(count, order.size()));
  return order;
}

std::vector<int64_t> parse_layers(std::string_view text, int64_t num_layers) {
  std::vector<int64_t> layers;
  if (text.empty()) {
    layers.resize(static_cast<size_t>(num_layers));
    std::iota(layers.begin(), layers.end(), int64_t{0});
    return layers;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const size_t dash = item.find('-');
    const int64_t first = parse_layer(item.substr(0, dash), text, num_layers);
    const int64_t last = dash == std::string_view::npos
                             ? first
                             : parse_layer(item.substr(dash + 1), text, num_layers);
    for (int64_t layer = first; layer <= last; ++layer) layers.push_back(layer);
    if (last < first) parse_layer("", text, num_layers);
    std::sort(layers.begin(), layers.end());
    layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
    begin = end + 1;
  }
  return layers;
}

ActivationReport measure_activations(
    ExecContext& context, const HfConfig& hf_config, const TensorSource& source,
    const CalibrationTokens& tokens, const std::vector<int64_t>& layers,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  const DecoderConfig config = read_decoder_config(hf_config, source, 0);
  CalibrationRun run(context, config, tokens, source);
  ActivationReport report;
  report.num_layers = config.num_layers;
  report.num_sequences = tokens.num_sequences();
  report.sequence_length = tokens.sequence_length;
  LayerMeasurement measurement(context, config, source, run);
  const int64_t end = layers.empty() ? 0 : layers.back() + 1;
  for (int64_t i = 0; i < end; ++i) {
    if (progress) progress(i, end);
    const LayerWeights weights = load(context, config, source, i);
    if (std::binary_search(layers.begin(), layers.end(), i)) {
      measurement.measure(i, weights, report);
    }
    if (i + 1 < end) run.run_layer(i, weights, {.is_kept = true});
  }
  return report;
}

}  // namespace halley
