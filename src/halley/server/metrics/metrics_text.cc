#include "halley/server/metrics/metrics_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "halley/base/str.h"

namespace halley {
namespace {

// The shortest text that reads back as the same number.
std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 64> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

// "1.0", as Python's clients write bounds: queries name them as text.
std::string bound(double value) {
  std::string text = number(value);
  if (text.find_first_of(".enI") == std::string::npos) text += ".0";
  return text;
}

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

void append(std::string& text, const MetricLabels& labels) {
  for (const auto& [name, value] : labels) {
    if (!text.empty()) text += ',';
    text += str(name, "=\"", escaped(value), "\"");
  }
}

}  // namespace

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += str("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void MetricsText::line(std::string_view suffix, const MetricLabels& labels,
                       const std::string& value) {
  std::string inside;
  append(inside, labels_);
  append(inside, labels);
  text_ += str(name_, suffix, "{", inside, "} ", value, "\n");
}

void MetricsText::sample(double value, const MetricLabels& labels) {
  line("", labels, number(value));
}

void MetricsText::histogram(const Histogram& histogram, const MetricLabels& labels) {
  this->histogram(histogram.bounds(), histogram.counts(), histogram.sum(), labels);
}

void MetricsText::histogram(std::span<const double> bounds, std::span<const uint64_t> counts,
                            double sum, const MetricLabels& labels) {
  uint64_t total = 0;
  MetricLabels with_bound = labels;
  with_bound.emplace_back("le", "");
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    with_bound.back().second = i < bounds.size() ? bound(bounds[i]) : std::string("+Inf");
    line("_bucket", with_bound, std::to_string(total));
  }
  line("_sum", labels, number(sum));
  line("_count", labels, std::to_string(total));
}

}  // namespace halley
