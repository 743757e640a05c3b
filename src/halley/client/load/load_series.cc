#include "halley/client/load/load_series.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "halley/client/load/summary.h"

namespace halley {
namespace {

constexpr double kSecondsMax = 1'000'000;

SecondLatency latency_of(const std::vector<double>& values) {
  const Summary summary = summarize(values, {50, 90, 99});
  return {.count = static_cast<int64_t>(values.size()),
          .p50 = summary.percentiles[0].second,
          .p90 = summary.percentiles[1].second,
          .p99 = summary.percentiles[2].second};
}

// Sorts events into seconds.
class Seconds {
 public:
  explicit Seconds(size_t count) : seconds_(count), ttfts_(count), tpots_(count) {}

  void add(const LoadOutcome& outcome) {
    LoadSecond& first = seconds_[index_of(outcome.start)];
    ++first.requests;
    if (!outcome.error.empty()) {
      ++first.failed;
      return;
    }
    const size_t last = index_of(outcome.start + outcome.latency);
    for (size_t i = index_of(outcome.start); i <= last; ++i) ++seconds_[i].running;
    add_events(outcome);
  }

  std::vector<LoadSecond> finish() {
    for (size_t i = 0; i < seconds_.size(); ++i) {
      seconds_[i].ttft = latency_of(ttfts_[i]);
      seconds_[i].tpot = latency_of(tpots_[i]);
    }
    return std::move(seconds_);
  }

 private:
  // Times are sums of intervals: rounding may carry the last one past the end.
  size_t index_of(double time) const {
    return std::min(static_cast<size_t>(time), seconds_.size() - 1);
  }

  void add_events(const LoadOutcome& outcome) {
    double time = outcome.start + outcome.time_to_first_token;
    add_latency(ttfts_, outcome.start, time, outcome.time_to_first_token);
    size_t next = 0;  // of event_tokens
    count_tokens(outcome, 0, next, seconds_[index_of(time)]);
    int64_t event = 0;
    for (const double interval : outcome.inter_token_latencies) {
      const double begin = time;
      time += interval;
      const int64_t num_tokens = count_tokens(outcome, ++event, next, seconds_[index_of(time)]);
      const double per_token = interval / static_cast<double>(std::max<int64_t>(1, num_tokens));
      add_latency(tpots_, begin, time, per_token);
    }
  }

  // Returns the tokens of the event. `next` is the first of event_tokens that is not counted yet.
  static int64_t count_tokens(const LoadOutcome& outcome, int64_t event, size_t& next,
                              LoadSecond& second) {
    const auto& counts = outcome.event_tokens;
    if (counts.empty()) {
      ++second.tokens;
      return 1;
    }
    int64_t num_tokens = 0;
    for (; next < counts.size() && counts[next].event == event; ++next) {
      const EventTokens& tokens = counts[next];
      num_tokens += tokens.count;
      if (tokens.precision < 0) continue;
      const std::string& name = outcome.precisions.at(static_cast<size_t>(tokens.precision));
      second.precision_tokens[name] += tokens.count;
    }
    second.tokens += num_tokens;
    return num_tokens;
  }

  void add_latency(std::vector<std::vector<double>>& latencies, double begin, double end,
                   double value) const {
    const size_t last = index_of(end);
    for (auto i = static_cast<size_t>(std::ceil(begin)); i < last; ++i) {
      latencies[i].push_back(value);
    }
    latencies[last].push_back(value);
  }

  std::vector<LoadSecond> seconds_;
  std::vector<std::vector<double>> ttfts_, tpots_;
};

}  // namespace

std::vector<LoadSecond> make_load_series(const std::vector<LoadOutcome>& outcomes) {
  if (outcomes.empty()) return {};
  double end = 0;
  for (const LoadOutcome& outcome : outcomes) {
    end = std::max(end, outcome.start + (outcome.error.empty() ? outcome.latency : 0));
  }
  if (!(end < kSecondsMax)) return {};
  Seconds seconds(static_cast<size_t>(end) + 1);
  for (const LoadOutcome& outcome : outcomes) seconds.add(outcome);
  return seconds.finish();
}

std::vector<std::string> precisions_of(const std::vector<LoadSecond>& series) {
  std::set<std::string> names;
  for (const LoadSecond& second : series) {
    for (const auto& [name, count] : second.precision_tokens) names.insert(name);
  }
  return {names.begin(), names.end()};
}

SecondViolation violation_of(const LoadSecond& second, const Slo& slo) {
  const auto is_above = [](const SecondLatency& latency, const std::optional<double>& limit) {
    return limit && latency.count > 0 && latency.p90 > *limit;
  };
  return {.ttft = is_above(second.ttft, slo.ttft), .tpot = is_above(second.tpot, slo.tpot)};
}

}  // namespace halley
