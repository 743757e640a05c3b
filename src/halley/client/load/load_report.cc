#include "halley/client/load/load_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "halley/base/str.h"
#include "halley/client/load/series_report.h"

namespace halley {
namespace {

constexpr double kMillisecondsPerSecond = 1000;
constexpr size_t kWidth = 50;

struct Metric {
  const char* name;
  const char* title;
  const char* header;
  Summary LoadReport::*summary;
};

constexpr std::array<Metric, 4> kMetrics = {{
    {"ttft", "TTFT", "Time to First Token", &LoadReport::ttft},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &LoadReport::tpot},
    {"itl", "ITL", "Inter-token Latency", &LoadReport::itl},
    {"e2el", "E2EL", "End-to-end Latency", &LoadReport::e2el},
}};

bool is_good(const LoadOutcome& outcome, const Slo& slo) {
  const auto keeps = [](const std::optional<double>& limit, double value) {
    return !limit || value <= *limit;
  };
  return keeps(slo.ttft, outcome.time_to_first_token) &&
         keeps(slo.tpot, time_per_output_token(outcome)) && keeps(slo.e2el, outcome.latency);
}

ViolatingSeconds count_violations(const std::vector<LoadSecond>& series,
                                  const LoadReportOptions& options) {
  const auto num_all = static_cast<int64_t>(series.size());
  ViolatingSeconds violating;
  violating.num_seconds = options.num_load_seconds > 0 ? options.num_load_seconds : num_all;
  int64_t num_ttft = 0, num_tpot = 0;
  for (int64_t i = 0; i < std::min(violating.num_seconds, num_all); ++i) {
    const SecondViolation violation = violation_of(series[static_cast<size_t>(i)], options.slo);
    num_ttft += violation.ttft ? 1 : 0;
    num_tpot += violation.tpot ? 1 : 0;
  }
  if (options.slo.ttft) violating.ttft = num_ttft;
  if (options.slo.tpot) violating.tpot = num_tpot;
  return violating;
}

void take_series(std::vector<LoadSecond> series, const LoadReportOptions& options,
                 LoadReport& report) {
  for (const LoadSecond& second : series) {
    report.peak_output_throughput =
        std::max(report.peak_output_throughput, static_cast<double>(second.tokens));
    report.peak_concurrent_requests = std::max(report.peak_concurrent_requests, second.running);
  }
  report.violating = count_violations(series, options);
  report.seconds = std::move(series);
}

std::string row(const std::string& name, const std::string& value) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "%-40s %-10s\n", name.c_str(), value.c_str());
  return text.data();
}

std::string row(const std::string& name, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return row(name, std::string(text.data()));
}

std::string row(const std::string& name, int64_t value) { return row(name, std::to_string(value)); }

// Centres as Python's format does: the odd character goes to the right.
std::string banner(const std::string& text, char fill) {
  const size_t num_fill = kWidth - std::min(kWidth, text.size());
  return std::string(num_fill / 2, fill) + text + std::string(num_fill - num_fill / 2, fill) + "\n";
}

// "P99", "P99.9"
std::string percent_word(double percent) { return str(percent); }

}  // namespace

double time_per_output_token(const LoadOutcome& outcome) {
  if (outcome.num_output_tokens < 2) return 0;
  return (outcome.latency - outcome.time_to_first_token) /
         static_cast<double>(outcome.num_output_tokens - 1);
}

LoadReport make_load_report(const LoadResult& result, const LoadReportOptions& options) {
  LoadReport report;
  report.duration = result.duration;
  std::vector<double> ttfts, tpots, itls, e2els;
  int64_t num_good = 0, num_events = 0;
  for (size_t i = 0; i < result.outcomes.size(); ++i) {
    const LoadOutcome& outcome = result.outcomes[i];
    if (!outcome.error.empty()) {
      ++report.failed;
      continue;
    }
    ++report.completed;
    report.has_usage = report.has_usage && outcome.has_usage;
    report.total_output += outcome.num_output_tokens;
    num_events += 1 + static_cast<int64_t>(outcome.inter_token_latencies.size());
    for (const auto& [name, count] : outcome.precision_tokens) {
      report.precision_tokens[name] += count;
    }
    const int64_t asked = i < options.input_lens.size() ? options.input_lens[i] : 0;
    report.total_input += outcome.num_prompt_tokens > 0 ? outcome.num_prompt_tokens : asked;
    num_good += is_good(outcome, options.slo) ? 1 : 0;
    ttfts.push_back(kMillisecondsPerSecond * outcome.time_to_first_token);
    e2els.push_back(kMillisecondsPerSecond * outcome.latency);
    if (outcome.num_output_tokens > 1) {
      tpots.push_back(kMillisecondsPerSecond * time_per_output_token(outcome));
    }
    for (const double interval : outcome.inter_token_latencies) {
      itls.push_back(kMillisecondsPerSecond * interval);
    }
  }
  const auto rate = [&](int64_t count) {
    return report.duration > 0 ? static_cast<double>(count) / report.duration : 0;
  };
  report.request_throughput = rate(report.completed);
  report.output_throughput = rate(report.total_output);
  report.total_token_throughput = rate(report.total_input + report.total_output);
  if (!options.slo.is_empty()) report.request_goodput = rate(num_good);
  if (num_events > 0) {
    report.tokens_per_event =
        static_cast<double>(report.total_output) / static_cast<double>(num_events);
  }
  take_series(make_load_series(result.outcomes), options, report);
  report.ttft = summarize(ttfts, options.percents);
  report.tpot = summarize(tpots, options.percents);
  report.itl = summarize(itls, options.percents);
  report.e2el = summarize(e2els, options.percents);
  return report;
}

std::string format_load_report(const LoadReport& report, const LoadReportOptions& options) {
  std::string text = banner(" Serving Benchmark Result ", '=');
  text += row("Successful requests:", report.completed);
  text += row("Failed requests:", report.failed);
  if (options.max_concurrency > 0) {
    text += row("Maximum request concurrency:", options.max_concurrency);
  }
  if (options.request_rate) text += row("Request rate configured (RPS):", *options.request_rate);
  text += row("Benchmark duration (s):", report.duration);
  text += row("Total input tokens:", report.total_input);
  text += row("Total generated tokens:", report.total_output);
  for (const auto& [name, count] : report.precision_tokens) {
    text += row(str("Generated tokens in ", name, ":"), count);
  }
  text += row("Request throughput (req/s):", report.request_throughput);
  if (report.request_goodput) text += row("Request goodput (req/s):", *report.request_goodput);
  text += row("Output token throughput (tok/s):", report.output_throughput);
  text += row("Peak output token throughput (tok/s):", report.peak_output_throughput);
  text += row("Peak concurrent requests:", static_cast<double>(report.peak_concurrent_requests));
  text += row("Total token throughput (tok/s):", report.total_token_throughput);
  const ViolatingSeconds& violating = report.violating;
  if (violating.ttft || violating.tpot) text += row("Seconds of load:", violating.num_seconds);
  if (violating.ttft) text += row("Seconds with P90 TTFT above its SLO:", *violating.ttft);
  if (violating.tpot) text += row("Seconds with P90 TPOT above its SLO:", *violating.tpot);
  for (const Metric& metric : kMetrics) {
    const auto& names = options.metrics;
    if (std::find(names.begin(), names.end(), metric.name) == names.end()) continue;
    const Summary& summary = report.*metric.summary;
    text += banner(metric.header, '-');
    text += row(str("Mean ", metric.title, " (ms):"), summary.mean);
    text += row(str("Median ", metric.title, " (ms):"), summary.median);
    for (const auto& [percent, value] : summary.percentiles) {
      text += row(str("P", percent_word(percent), " ", metric.title, " (ms):"), value);
    }
  }
  return text + std::string(kWidth, '=') + "\n";
}

OrderedJson load_report_json(const LoadReport& report, const LoadResult& result,
                             const LoadReportOptions& options) {
  OrderedJson json = {{"duration", report.duration},
                      {"completed", report.completed},
                      {"failed", report.failed},
                      {"total_input_tokens", report.total_input},
                      {"total_output_tokens", report.total_output},
                      {"output_tokens_counted_by", report.has_usage ? "server" : "events"},
                      {"request_throughput", report.request_throughput},
                      {"request_goodput", nullptr},
                      {"output_throughput", report.output_throughput},
                      {"total_token_throughput", report.total_token_throughput},
                      {"max_output_tokens_per_s", report.peak_output_throughput},
                      {"max_concurrent_requests", report.peak_concurrent_requests}};
  if (report.request_goodput) json["request_goodput"] = *report.request_goodput;
  if (!report.precision_tokens.empty()) {
    json["output_tokens_by_precision"] = report.precision_tokens;
  }
  const ViolatingSeconds& violating = report.violating;
  json["violating_seconds"] = OrderedJson::object();
  if (violating.ttft) json["violating_seconds"]["ttft"] = *violating.ttft;
  if (violating.tpot) json["violating_seconds"]["tpot"] = *violating.tpot;
  json["violating_seconds"]["of"] = violating.num_seconds;
  for (const Metric& metric : kMetrics) {
    const Summary& summary = report.*metric.summary;
    json[str("mean_", metric.name, "_ms")] = summary.mean;
    json[str("median_", metric.name, "_ms")] = summary.median;
    json[str("std_", metric.name, "_ms")] = summary.standard_deviation;
    for (const auto& [percent, value] : summary.percentiles) {
      json[str("p", percent_word(percent), "_", metric.name, "_ms")] = value;
    }
  }
  for (const char* name :
       {"start_times", "input_lens", "output_lens", "ttfts", "itls", "e2els", "errors"}) {
    json[name] = OrderedJson::array();
  }
  for (size_t i = 0; i < result.outcomes.size(); ++i) {
    const LoadOutcome& outcome = result.outcomes[i];
    const int64_t asked = i < options.input_lens.size() ? options.input_lens[i] : 0;
    json["start_times"].push_back(outcome.start);
    json["input_lens"].push_back(outcome.num_prompt_tokens > 0 ? outcome.num_prompt_tokens : asked);
    json["output_lens"].push_back(outcome.num_output_tokens);
    json["ttfts"].push_back(outcome.time_to_first_token);
    json["itls"].push_back(outcome.inter_token_latencies);
    json["e2els"].push_back(outcome.latency);
    json["errors"].push_back(outcome.error);
  }
  json["seconds"] = load_series_json(report.seconds, options.slo);
  return json;
}

}  // namespace halley
