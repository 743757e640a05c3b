#include "halley/cli/load_plots.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "halley/base/str.h"
#include "halley/cli/svg_plot.h"
#include "halley/cli/svg_timeline.h"
#include "halley/client/load/load_report.h"

namespace halley::cli {
namespace {

constexpr double kMillisecondsPerSecond = 1000;

// The share of requests whose value is at most x.
PlotLine distribution(const char* label, std::vector<double> values) {
  PlotLine line{label, {}};
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    line.points.emplace_back(values[i], static_cast<double>(i) / count);
    line.points.emplace_back(values[i], static_cast<double>(i + 1) / count);
  }
  return line;
}

TimelinePanel latency_panel(const std::vector<LoadSecond>& series,
                            SecondLatency LoadSecond::*latency, const char* label,
                            const std::optional<double>& limit) {
  TimelinePanel panel{.label = str("P90 ", label, " (ms)")};
  for (const LoadSecond& second : series) {
    const SecondLatency& values = second.*latency;
    panel.values.emplace_back();
    if (values.count > 0) panel.values.back() = kMillisecondsPerSecond * values.p90;
  }
  if (!limit) return panel;
  panel.limit = kMillisecondsPerSecond * *limit;
  panel.limit_label = str("SLO ", *panel.limit, " ms");
  return panel;
}

void add_band(const std::vector<LoadSecond>& series, Timeline& timeline) {
  timeline.band_names = precisions_of(series);
  for (const LoadSecond& second : series) {
    timeline.band.emplace_back();
    for (const std::string& name : timeline.band_names) {
      const auto count = second.precision_tokens.find(name);
      timeline.band.back().push_back(
          count == second.precision_tokens.end() ? 0 : static_cast<double>(count->second));
    }
  }
}

}  // namespace

std::string plot_distributions(const LoadResult& result, const std::string& title) {
  std::vector<double> ttfts, tpots;
  for (const LoadOutcome& outcome : result.outcomes) {
    if (!outcome.error.empty()) continue;
    ttfts.push_back(kMillisecondsPerSecond * outcome.time_to_first_token);
    if (outcome.num_output_tokens > 1) {
      tpots.push_back(kMillisecondsPerSecond * time_per_output_token(outcome));
    }
  }
  Plot plot{title, "milliseconds", "share of requests", {}, {}};
  plot.lines = {distribution("TTFT", std::move(ttfts)), distribution("TPOT", std::move(tpots))};
  return render_svg(plot);
}

std::string plot_seconds(const std::vector<LoadSecond>& series, const Slo& slo,
                         const std::string& title) {
  Timeline timeline{.title = title};
  TimelinePanel rate{.label = "requests/s"};
  for (const LoadSecond& second : series) {
    rate.values.emplace_back(static_cast<double>(second.requests));
  }
  timeline.panels = {std::move(rate), latency_panel(series, &LoadSecond::ttft, "TTFT", slo.ttft),
                     latency_panel(series, &LoadSecond::tpot, "TPOT", slo.tpot)};
  add_band(series, timeline);
  return render_timeline(timeline);
}

}  // namespace halley::cli
