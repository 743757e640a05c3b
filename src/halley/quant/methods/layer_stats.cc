#include "halley/quant/methods/layer_stats.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace halley {

std::vector<const LinearSpec*> list_linears(const LayerSpec& spec) {
  std::vector<const LinearSpec*> linears = {&spec.qkv, &spec.o};
  if (spec.mlp.router) linears.push_back(&*spec.mlp.router);
  for (size_t i = 0; i < spec.mlp.gate_up.size(); ++i) {
    linears.push_back(&spec.mlp.gate_up[i]);
    linears.push_back(&spec.mlp.down[i]);
  }
  return linears;
}

LayerStats::LayerStats(ExecContext& context, const LayerSpec& spec, const Request& request)
    : context_(context) {
  const double num_experts = static_cast<double>(spec.mlp.gate_up.size());
  const double expert_share =
      spec.mlp.router ? static_cast<double>(spec.mlp.num_experts_per_token) / num_experts : 1.0;
  for (const LinearSpec* linear : list_linears(spec)) {
    const bool is_everywhere = linear == &spec.qkv || linear == &spec.o ||
                               (spec.mlp.router && linear == &*spec.mlp.router);
    add_collector(*linear, request, is_everywhere ? 1.0 : expert_share);
  }
}

void LayerStats::add_collector(const LinearSpec& spec, const Request& request,
                               double share_of_tokens) {
  const StatsRequest wanted = {
      .has_gram = request.has_gram,
      .num_rows = request.num_rows,
      .num_tokens_expected = std::max<int64_t>(
          1, std::llround(static_cast<double>(request.num_tokens) * share_of_tokens))};
  collectors_.emplace(&spec, InputStatsCollector(spec.in_features, wanted));
}

void LayerStats::on_linear(const LinearSpec& spec, const LinearOp&, ConstMatrix x, ConstMatrix) {
  collectors_.at(&spec).add(context_, x);
}

void LayerStats::on_keys_values(ConstMatrix k, ConstMatrix v) {
  if (!key_collector_) {
    key_collector_.emplace(k.num_cols, StatsRequest());
    value_collector_.emplace(v.num_cols, StatsRequest());
  }
  key_collector_->add(context_, k);
  value_collector_->add(context_, v);
}

void LayerStats::finish() {
  for (auto& [spec, collector] : collectors_) stats_.emplace(spec, collector.finish(context_));
  collectors_.clear();
  if (!key_collector_) return;
  keys_ = key_collector_->finish(context_);
  values_ = value_collector_->finish(context_);
}

void LayerStats::fill_rows(int64_t num_rows) {
  for (auto& [spec, stats] : stats_) {
    std::mt19937 random(static_cast<uint32_t>(spec->in_features));
    std::normal_distribution<float> normal;
    stats.num_rows = num_rows;
    stats.rows.resize(static_cast<size_t>(num_rows * spec->in_features));
    for (float& value : stats.rows) value = normal(random);
  }
}

}  // namespace halley
