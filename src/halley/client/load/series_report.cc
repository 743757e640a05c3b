#include "halley/client/load/series_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace halley {
namespace {

constexpr double kMillisecondsPerSecond = 1000;

std::vector<std::string> names_of(const SecondViolation& violation) {
  std::vector<std::string> names;
  if (violation.ttft) names.emplace_back("ttft");
  if (violation.tpot) names.emplace_back("tpot");
  return names;
}

// `text` at the right edge of a column, behind a space.
std::string cell(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()) + 1, ' ') + text;
}

std::string latency_cells(const SecondLatency& latency) {
  constexpr size_t kWidth = 8;
  std::string text;
  for (const double value : {latency.p50, latency.p90, latency.p99}) {
    std::array<char, 32> number = {'-', '\0'};
    if (latency.count > 0) {
      std::snprintf(number.data(), number.size(), "%.1f", kMillisecondsPerSecond * value);
    }
    text += cell(number.data(), kWidth);
  }
  return text;
}

size_t width_of(const std::string& precision) { return std::max<size_t>(6, precision.size()); }

OrderedJson latency_json(const SecondLatency& latency) {
  if (latency.count == 0) return nullptr;
  return {{"count", latency.count},
          {"p50", kMillisecondsPerSecond * latency.p50},
          {"p90", kMillisecondsPerSecond * latency.p90},
          {"p99", kMillisecondsPerSecond * latency.p99}};
}

}  // namespace

std::string format_load_series(const std::vector<LoadSecond>& series, const Slo& slo) {
  const auto precisions = precisions_of(series);
  std::string text =
      "second  req/s failed  tok/s  TTFT p50      p90      p99  TPOT p50      p90      p99";
  for (const std::string& name : precisions) text += cell(name, width_of(name));
  text += slo.is_empty() ? "\n" : "  violates\n";
  for (size_t i = 0; i < series.size(); ++i) {
    const LoadSecond& second = series[i];
    std::string row = cell(std::to_string(i), 5) + cell(std::to_string(second.requests), 6) +
                      cell(std::to_string(second.failed), 6) +
                      cell(std::to_string(second.tokens), 6) + " " + latency_cells(second.ttft) +
                      " " + latency_cells(second.tpot);
    for (const std::string& name : precisions) {
      const auto count = second.precision_tokens.find(name);
      row += cell(count == second.precision_tokens.end() ? "0" : std::to_string(count->second),
                  width_of(name));
    }
    std::string separator = "  ";
    for (const std::string& name : names_of(violation_of(second, slo))) {
      row += separator + name;
      separator = " ";
    }
    text += row + "\n";
  }
  return text;
}

OrderedJson load_series_json(const std::vector<LoadSecond>& series, const Slo& slo) {
  OrderedJson json = OrderedJson::array();
  for (const LoadSecond& second : series) {
    OrderedJson object = {{"requests", second.requests},
                          {"failed", second.failed},
                          {"running", second.running},
                          {"output_tokens", second.tokens},
                          {"ttft_ms", latency_json(second.ttft)},
                          {"tpot_ms", latency_json(second.tpot)}};
    if (!second.precision_tokens.empty()) {
      object["output_tokens_by_precision"] = second.precision_tokens;
    }
    object["violations"] = names_of(violation_of(second, slo));
    json.push_back(std::move(object));
  }
  return json;
}

}  // namespace halley
