// A progress bar on stderr for long work, shown if stderr is a terminal and --quiet is not given.
#pragma once

#include <chrono>
#include <string>

namespace halley::cli {

/// Draws at most ten times a second; erases itself at the end. Not thread-safe.
class ProgressBar {
 public:
  /// `label` is before the bar: "loading".
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `note` is after the bar: "perplexity 31.2".
  void update(double done, double total, const std::string& note = {});

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  bool is_terminal_;
  bool is_drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_drawn_;
};

}  // namespace halley::cli
