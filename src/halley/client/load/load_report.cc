#include "halley/client/load/load_report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr double kMillisecondsPerSecond = 1000;
constexpr size_t kWidth = 50;
constexpr int64_t kSecondsMax = 1'000'000;  // longest run for which peaks are counted

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

// Counts peaks for each second since the first start.
void count_peaks(const std::vector<LoadOutcome>& outcomes, LoadReport& report) {
  double first = INFINITY, last = 0;
  for (const LoadOutcome& outcome : outcomes) {
    if (!outcome.error.empty()) continue;
    first = std::min(first, outcome.start);
    last = std::max(last, outcome.start + outcome.latency);
  }
  if (!(first <= last) || last - first > static_cast<double>(kSecondsMax)) return;
  const auto second_of = [&](double time) { return static_cast<size_t>(time - first); };
  std::vector<int64_t> tokens(second_of(last) + 2), running(tokens.size());
  for (const LoadOutcome& outcome : outcomes) {
    if (!outcome.error.empty()) continue;
    double time = outcome.start + outcome.time_to_first_token;
    ++tokens[second_of(time)];
    for (const double interval : outcome.inter_token_latencies) {
      time += interval;
      ++tokens[std::min(second_of(time), tokens.size() - 1)];
    }
    const size_t end = second_of(outcome.start + outcome.latency);
    for (size_t second = second_of(outcome.start); second <= end; ++second) ++running[second];
  }
  report.peak_output_throughput =
      static_cast<double>(*std::max_element(tokens.begin(), tokens.end()));
  report.peak_concurrent_requests = *std::max_element(running.begin(), running.end());
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

double parse_duration(std::string_view text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(result.ptr,
                              static_cast<size_t>(text.data() + text.size() - result.ptr));
  const double scale = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : 0;
  if (result.ec != std::errc() || !std::isfinite(value) || value <= 0 || scale == 0) {
    throw InputError(
        str("--slo: expected a duration above 0 like 200ms or 1.5s, got ", quote(text), "."));
  }
  return value * scale;
}

}  // namespace

Slo parse_slo(std::string_view text) {
  Slo slo;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    std::optional<double>* value = name == "ttft"   ? &slo.ttft
                                   : name == "tpot" ? &slo.tpot
                                   : name == "e2el" ? &slo.e2el
                                                    : nullptr;
    if (equals == std::string_view::npos || value == nullptr || value->has_value()) {
      throw InputError(
          str("--slo: expected ttft, tpot and e2el, each at most once, like "
              "ttft=200ms,tpot=33ms, got ",
              quote(part), "."));
    }
    *value = parse_duration(part.substr(equals + 1));
    if (comma == std::string_view::npos) return slo;
    text.remove_prefix(comma + 1);
  }
}

double time_per_output_token(const LoadOutcome& outcome) {
  if (outcome.num_output_tokens < 2) return 0;
  return (outcome.latency - outcome.time_to_first_token) /
         static_cast<double>(outcome.num_output_tokens - 1);
}

LoadReport make_load_report(const LoadResult& result, const LoadReportOptions& options) {
  LoadReport report;
  report.duration = result.duration;
  std::vector<double> ttfts, tpots, itls, e2els;
  int64_t num_good = 0;
  for (size_t i = 0; i < result.outcomes.size(); ++i) {
    const LoadOutcome& outcome = result.outcomes[i];
    if (!outcome.error.empty()) {
      ++report.failed;
      continue;
    }
    ++report.completed;
    report.has_usage = report.has_usage && outcome.has_usage;
    report.total_output += outcome.num_output_tokens;
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
  count_peaks(result.outcomes, report);
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
  text += row("Request throughput (req/s):", report.request_throughput);
  if (report.request_goodput) text += row("Request goodput (req/s):", *report.request_goodput);
  text += row("Output token throughput (tok/s):", report.output_throughput);
  text += row("Peak output token throughput (tok/s):", report.peak_output_throughput);
  text += row("Peak concurrent requests:", static_cast<double>(report.peak_concurrent_requests));
  text += row("Total token throughput (tok/s):", report.total_token_throughput);
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
  return json;
}

}  // namespace halley
