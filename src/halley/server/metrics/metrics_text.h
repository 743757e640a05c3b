// Prometheus' text format, version 0.0.4 (prometheus.io, "Exposition formats").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/server/metrics/histogram.h"

namespace halley {

/// The content type of an answer with this text.
inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

/// Collects metric families one after the other. Names must be valid; label values may be any text.
class MetricsText {
 public:
  /// `labels` come before the own labels of every sample.
  explicit MetricsText(MetricLabels labels) : labels_(std::move(labels)) {}

  /// Begins a family: all samples up to the next call belong to it. `type`: "gauge", "counter",
  /// "histogram".
  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(double value, const MetricLabels& labels = {});
  void histogram(const Histogram& histogram, const MetricLabels& labels = {});
  /// `counts` are per bucket (not cumulative), one more than `bounds`.
  void histogram(std::span<const double> bounds, std::span<const uint64_t> counts, double sum,
                 const MetricLabels& labels = {});

  const std::string& text() const { return text_; }

 private:
  void line(std::string_view suffix, const MetricLabels& labels, const std::string& value);

  MetricLabels labels_;
  std::string name_;
  std::string text_;
};

}  // namespace halley
