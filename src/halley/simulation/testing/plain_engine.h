// Engines whose step times can be computed by hand.
#pragma once

#include <cstdint>
#include <vector>

#include "halley/core/precision.h"
#include "halley/engine/engine_plan.h"
#include "halley/models/base/step_cost.h"
#include "halley/precision/precision_policy.h"
#include "halley/simulation/simulated_engine.h"
#include "halley/slo/slo.h"

namespace halley {

struct PlainEngine {
  std::vector<double> step_ms = {10};  // of a small step, by level
  double row_ms = 0;                   // of one more row, where rows take longer than the step
  int64_t num_pages = 100'000;
  PrecisionMode mode = PrecisionMode::kFull;
  Slo slo = {};
  int64_t max_model_len = 2048;  // the others: as EngineConfig's
  int64_t max_num_seqs = 0, max_num_batched_tokens = 0, max_num_queued = 1024;
};

/// A step takes the longer of step_ms and rows times row_ms at its level; the context costs
/// nothing. A second level computes rows faster, as FP8 does.
inline SimulatedEngine make_plain_engine(const PlainEngine& options) {
  constexpr double kBytesPerMs = 1e-3 * kH200Rates.bytes;
  constexpr double kOperationsPerMs = 1e-3 * kH200Rates.f16;
  const ModelShape shape = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 64, .vocab_size = 100, .max_positions = 4096};
  EngineConfig config;
  config.max_model_len = options.max_model_len;
  config.max_num_seqs = options.max_num_seqs;
  config.max_num_batched_tokens = options.max_num_batched_tokens;
  config.max_num_queued = options.max_num_queued;
  config.precision = options.mode;
  config.itl_target.kind = ItlTarget::Kind::kAutoOnHost;  // as a server's
  config.slo = options.slo;
  config.has_prefix_caching = false;  // tokens have no values
  config = with_defaults(config, shape, /*is_on_host=*/false);
  SimulatedEngine engine = {.plan = plan_engine(config, shape, device_kv_room(int64_t{1} << 40)),
                            .levels = {},
                            .ratios = {},
                            .rates = kH200Rates};
  engine.plan.num_pages = options.num_pages;
  for (const double step_ms : options.step_ms) {
    const bool is_low = !engine.levels.empty();
    engine.levels.push_back({.name = is_low ? "e4m3" : "f16",
                             .precision = is_low ? Precision::kLow : Precision::kFull,
                             .cost = {.linear_type = is_low ? GemmType::kE4m3 : GemmType::kF16,
                                      .row_linear_operations = options.row_ms * kOperationsPerMs,
                                      .always_bytes = step_ms * kBytesPerMs}});
    engine.ratios.push_back(StepRatio({{1, 1.0}}));
  }
  return engine;
}

}  // namespace halley
