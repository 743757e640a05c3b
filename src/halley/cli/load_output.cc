#include "halley/cli/load_output.h"

#include <cmath>
#include <iostream>

#include "halley/client/load/series_report.h"
#include "halley/slo/slo.h"

namespace halley::cli {

void add_load_output_options(CLI::App& app, LoadOutputOptions& options) {
  constexpr const char* kGroup = "Report";
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->group(kGroup);
  };
  add("--slo", options.slo,
      "Objectives for goodput and seconds of violation: ttft=200ms,tpot=33ms,e2el=5s");
  add("--percentile-metrics", options.metrics, "Metrics to print: ttft, tpot, itl, e2el")
      ->delimiter(',')
      ->check(CLI::IsMember({"ttft", "tpot", "itl", "e2el"}))
      ->capture_default_str();
  add("--metric-percentiles", options.percents, "Percentiles to print: 50,90,99")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_flag("--per-second", options.prints_seconds,
               "Print rate, tokens, percentiles and violations of every second")
      ->group(kGroup);
  add("--timeline-svg", options.timeline_file,
      "Plot rate, TTFT, TPOT and precision over the seconds to a file");
}

LoadReportOptions report_options_of(const LoadOutputOptions& options,
                                    const TrafficOptions& traffic_options, const Traffic& traffic) {
  LoadReportOptions report;
  report.percents = options.percents;
  report.metrics = options.metrics;
  if (!options.slo.empty()) report.slo = parse_slo(options.slo, "--slo");
  if (traffic_options.trace.empty() && std::isfinite(traffic_options.request_rate)) {
    report.request_rate = traffic_options.request_rate;
  }
  report.input_lens = traffic.input_lens;
  report.num_load_seconds = traffic.num_seconds;
  return report;
}

void print_load(const LoadReport& report, const LoadReportOptions& report_options,
                const LoadOutputOptions& options) {
  std::cout << format_load_report(report, report_options);
  if (options.prints_seconds) std::cout << format_load_series(report.seconds, report_options.slo);
  std::cout << std::flush;
}

}  // namespace halley::cli
