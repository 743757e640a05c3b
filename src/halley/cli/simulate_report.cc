#include "halley/cli/simulate_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "halley/base/str.h"

namespace halley::cli {
namespace {

std::string number(double value, int num_digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", num_digits, value);
  return text.data();
}

std::string percent(double part) { return number(100 * part, 1); }

std::string row(const std::string& name, const std::string& value) {
  constexpr size_t kWidth = 41;
  return name + std::string(kWidth - std::min(kWidth - 1, name.size()), ' ') + value + "\n";
}

int64_t num_kv_tokens(const SimulatedEngine& engine) {
  return engine.plan.num_pages * engine.plan.config.page_tokens;
}

// The part of the run in which the devices worked.
double busy_share(const SimulatedRun& run) {
  const double seconds = run.report.duration * static_cast<double>(run.result.num_replicas);
  return seconds > 0 ? run.result.stats.busy_seconds / seconds : 0;
}

double percentile_of(const Summary& summary, double percent) {
  for (const auto& [each, value] : summary.percentiles) {
    if (each == percent) return value;
  }
  return 0;
}

std::string count_text(const std::optional<int64_t>& count) {
  return count ? std::to_string(*count) : "-";
}

// The columns of a row of the comparison.
std::vector<std::string> cells_of(const SimulatedRun& run) {
  const LoadReport& report = run.report;
  std::vector<std::string> cells = {name_of(run.mode), std::to_string(run.result.num_replicas),
                                    std::to_string(report.completed),
                                    std::to_string(report.failed)};
  for (const Summary& summary : {report.ttft, report.tpot}) {
    for (const double percent : {50.0, 90.0, 99.0}) {
      cells.push_back(number(percentile_of(summary, percent), 1));
    }
  }
  cells.push_back(count_text(report.violating.ttft));
  cells.push_back(count_text(report.violating.tpot));
  const auto share = run.result.share_of_time_in_full();
  cells.push_back(share ? percent(*share) : "-");
  const auto low = report.precision_tokens.find(name_of(Precision::kLow));
  const int64_t num_low = low == report.precision_tokens.end() ? 0 : low->second;
  cells.push_back(std::to_string(num_low));
  cells.push_back(percent(run.result.stats.peak_kv_usage));
  cells.push_back(percent(busy_share(run)));
  return cells;
}

}  // namespace

std::string format_simulation(const SimulatedRun& run, const SimulatedEngine& engine) {
  const ReplicaStats& stats = run.result.stats;
  std::string text = row("GPUs:", std::to_string(run.result.num_replicas));
  if (run.report.violating.ttft || run.report.violating.tpot) {
    text += row("Seconds that keep the SLO:", str(run.seconds.kept, " of ", run.seconds.of));
  }
  for (const LevelStats& level : stats.precision.levels) {
    text += row(str("Device time in ", level.name, " (s):"), number(level.seconds, 2));
  }
  if (const auto share = run.result.share_of_time_in_full()) {
    text += row("Share of device time in full (%):", percent(*share));
    text += row("Switches of precision:", std::to_string(stats.precision.num_switches));
  }
  text += row("Device busy (%):", percent(busy_share(run)));
  text += row("Steps:", std::to_string(stats.num_steps));
  text += row("Preemptions:", std::to_string(stats.num_preemptions));
  text += row("KV cache per GPU (tokens):", std::to_string(num_kv_tokens(engine)));
  text += row("Peak use of the KV cache (%):", percent(stats.peak_kv_usage));
  return text;
}

std::string format_comparison(const std::vector<SimulatedRun>& runs) {
  std::vector<std::vector<std::string>> table = {
      {"precision", "GPUs", "done", "failed", "TTFT p50", "p90", "p99", "TPOT p50", "p90", "p99",
       "TTFT late s", "TPOT late s", "full %", "low tokens", "KV peak %", "busy %"}};
  for (const SimulatedRun& run : runs) table.push_back(cells_of(run));
  std::string text;
  for (const std::vector<std::string>& cells : table) {
    for (size_t i = 0; i < cells.size(); ++i) {
      size_t width = 0;
      for (const auto& other : table) width = std::max(width, other[i].size());
      text += std::string(width - cells[i].size() + (i == 0 ? 0 : 2), ' ') + cells[i];
    }
    text += "\n";
  }
  return text;
}

OrderedJson simulation_json(const SimulatedRun& run, const SimulatedEngine& engine) {
  const ReplicaStats& stats = run.result.stats;
  const EngineConfig& config = engine.plan.config;
  OrderedJson json = {{"precision", name_of(run.mode)},
                      {"num_gpus", run.result.num_replicas},
                      {"seconds_that_keep_slo", run.seconds.kept},
                      {"seconds", run.seconds.of},
                      {"kv_dtype", name_of(*config.kv_dtype)},
                      {"kv_cache_tokens", num_kv_tokens(engine)},
                      {"peak_kv_cache_usage", stats.peak_kv_usage},
                      {"max_model_len", config.max_model_len},
                      {"max_num_seqs", config.max_num_seqs},
                      {"max_num_batched_tokens", config.max_num_batched_tokens},
                      {"itl_target", text_of(config.itl_target)},
                      {"num_steps", stats.num_steps},
                      {"num_preemptions", stats.num_preemptions},
                      {"device_busy_share", busy_share(run)}};
  if (run.meets_goal) json["meets_goal"] = *run.meets_goal;
  if (const auto share = run.result.share_of_time_in_full()) {
    json["share_of_time_in_full"] = *share;
    json["num_switches"] = stats.precision.num_switches;
    for (const LevelStats& level : stats.precision.levels) {
      json["seconds_by_precision"][level.name] = level.seconds;
      json["steps_by_precision"][level.name] = level.num_steps;
    }
  }
  return json;
}

}  // namespace halley::cli
