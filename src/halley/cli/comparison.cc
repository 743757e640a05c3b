#include "halley/cli/comparison.h"

#include <algorithm>
#include <cstdio>

namespace halley::cli {

void add_window_options(CLI::App& app, WindowOptions& options) {
  app.add_option("--window", options.window,
                 "Tokens per window; windows do not overlap, and their first token is not scored")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--windows", options.num_windows,
                 "Number of windows, from the beginning; 0: the whole text")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
}

std::string in_words(const Estimate& estimate, int num_digits) {
  std::string text(128, '\0');
  const int length =
      estimate.interval
          ? std::snprintf(text.data(), text.size(), "%.*f [%.*f, %.*f]", num_digits, estimate.value,
                          num_digits, estimate.interval->low, num_digits, estimate.interval->high)
          : std::snprintf(text.data(), text.size(), "%.*f", num_digits, estimate.value);
  text.resize(std::min(static_cast<size_t>(length), text.size() - 1));
  return text;
}

}  // namespace halley::cli
