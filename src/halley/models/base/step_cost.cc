#include "halley/models/base/step_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "halley/base/check.h"

namespace halley {
namespace {

double operations_of(const LinearSpec& linear) {
  return 2 * static_cast<double>(linear.out_features()) * static_cast<double>(linear.in_features);
}

// Those that are here, on average.
double experts_of_a_row(const MlpSpec& mlp) {
  const double share =
      static_cast<double>(mlp.down.size()) / static_cast<double>(mlp.router->out_features());
  return static_cast<double>(mlp.num_experts_per_token) * share;
}

// Positions that the new rows see together: row i sees num_past + i + 1 of them, or the window.
double seen_positions(const SequenceStep& sequence, int64_t window) {
  const int64_t first = sequence.num_past + 1, last = sequence.num_past + sequence.num_new;
  const int64_t limit = window > 0 ? window : last;
  const auto sum = [](int64_t low, int64_t high) {
    return high < low ? 0.0
                      : static_cast<double>(low + high) * static_cast<double>(high - low + 1) / 2;
  };
  const int64_t num_capped = last - std::max(limit, first - 1);
  return sum(first, std::min(last, limit)) +
         static_cast<double>(std::max<int64_t>(0, num_capped)) * static_cast<double>(limit);
}

// Positions that at least one row sees: those that are read.
double read_positions(const SequenceStep& sequence, int64_t window) {
  const int64_t length = sequence.num_past + sequence.num_new;
  return static_cast<double>(window > 0 ? std::min(length, window + sequence.num_new - 1) : length);
}

double bytes_of(const std::vector<WeightMemory::Bytes>& parts) {
  double num_bytes = 0;
  for (const auto& part : parts) num_bytes += static_cast<double>(part.size());
  return num_bytes;
}

double time_of(double amount, double per_second) {
  return per_second > 0 ? amount / per_second : 0;
}

}  // namespace

double DeviceRates::operations(GemmType type) const {
  switch (type) {
    case GemmType::kF16:
      return f16;
    case GemmType::kE4m3:
      return e4m3;
    case GemmType::kS8:
      return s8;
  }
  HALLEY_CHECK(false, static_cast<int>(type));
  return 0;
}

DecoderCost decoder_cost(const DecoderConfig& config, const WeightMemory& memory, KvDType kv_dtype,
                         GemmType linear_type) {
  DecoderCost cost = {.linear_type = linear_type,
                      .logit_operations = 2 * static_cast<double>(config.vocab_size) *
                                          static_cast<double>(config.hidden_size),
                      .position_operations = 4 * static_cast<double>(config.num_heads) *
                                             static_cast<double>(config.head_dim),
                      .windows = {},
                      .always_bytes = bytes_of(memory.always_read),
                      .expert_bytes = bytes_of(memory.experts),
                      .expert_share = memory.expert_share};
  for (const LayerSpec& layer : config.layers) {
    cost.windows.push_back(layer.window);
    cost.row_linear_operations += operations_of(layer.qkv) + operations_of(layer.o);
    const MlpSpec& mlp = layer.mlp;
    const double num_experts = mlp.router ? experts_of_a_row(mlp) : 1.0;
    // All experts of a layer have one size.
    cost.row_linear_operations +=
        num_experts * (operations_of(mlp.gate_up.front()) + operations_of(mlp.down.front()));
    if (mlp.router) cost.row_dense_operations += operations_of(*mlp.router);
  }
  const KvPageLayout layout = {
      .dtype = kv_dtype, .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
  cost.position_bytes = static_cast<double>(layout.token_bytes());
  return cost;
}

StepCost step_cost(const DecoderCost& cost, std::span<const SequenceStep> sequences,
                   int64_t num_logit_rows) {
  double num_rows = 0, num_seen = 0, num_read = 0;
  for (const SequenceStep& sequence : sequences) num_rows += static_cast<double>(sequence.num_new);
  // Layers mostly share one window, or take turns between two.
  for (size_t layer = 0; layer < cost.windows.size(); ++layer) {
    const int64_t window = cost.windows[layer];
    const auto begin = cost.windows.begin();
    const auto here = begin + static_cast<std::ptrdiff_t>(layer);
    if (std::find(begin, here, window) != here) continue;
    const auto num_layers = static_cast<double>(std::count(here, cost.windows.end(), window));
    for (const SequenceStep& sequence : sequences) {
      num_seen += num_layers * seen_positions(sequence, window);
      num_read += num_layers * read_positions(sequence, window);
    }
  }
  const double expert_part = 1 - std::pow(1 - std::min(1.0, cost.expert_share), num_rows);
  return {
      .bytes = cost.always_bytes + expert_part * cost.expert_bytes + num_read * cost.position_bytes,
      .linear_operations = num_rows * cost.row_linear_operations,
      .dense_operations = num_rows * cost.row_dense_operations +
                          static_cast<double>(num_logit_rows) * cost.logit_operations +
                          num_seen * cost.position_operations};
}

std::vector<PrecisionLevel> nested_levels(const DecoderConfig& config, const WeightMemory& full,
                                          const WeightMemory& low, KvDType kv_dtype) {
  return nested_levels(decoder_cost(config, full, kv_dtype, GemmType::kF16),
                       decoder_cost(config, low, kv_dtype, GemmType::kE4m3));
}

std::vector<PrecisionLevel> nested_levels(DecoderCost full, DecoderCost low) {
  if (low.always_bytes + low.expert_bytes >= full.always_bytes + full.expert_bytes) return {};
  // The upper byte keeps 3 of the 10 mantissa bits of f16, rounded.
  constexpr double kUpperByteError = 1.0 / 16;
  return {{.name = "f16", .precision = Precision::kFull, .cost = std::move(full)},
          {.name = "e4m3",
           .precision = Precision::kLow,
           .weight_error = kUpperByteError,
           .cost = std::move(low)}};
}

double floor_seconds(const StepCost& step, GemmType linear_type, const DeviceRates& rates) {
  return std::max(time_of(step.bytes, rates.bytes),
                  time_of(step.linear_operations, rates.operations(linear_type)) +
                      time_of(step.dense_operations, rates.f16));
}

}  // namespace halley
