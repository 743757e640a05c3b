#include "halley/cli/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <unistd.h>

namespace halley::cli {
namespace {

constexpr int kBarWidth = 30;
constexpr std::chrono::milliseconds kDrawInterval{100};

}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), is_terminal_(::isatty(STDERR_FILENO) == 1), start_(Clock::now()) {}

ProgressBar::~ProgressBar() {
  if (is_drawn_) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::update(double done, double total, const std::string& note) {
  const auto now = Clock::now();
  if (!is_terminal_ || total <= 0 || (is_drawn_ && now - last_drawn_ < kDrawInterval)) return;
  last_drawn_ = now;
  is_drawn_ = true;
  const double share = std::clamp(done / total, 0.0, 1.0);
  const auto num_full = static_cast<int>(share * kBarWidth);
  std::string bar(static_cast<size_t>(num_full), '#');
  bar.resize(kBarWidth, '.');
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double seconds_left = share > 0 ? seconds / share - seconds : 0;
  std::fprintf(stderr, "\r\033[K%s [%s] %3.0f %%, %.0f s left%s%s", label_.c_str(), bar.c_str(),
               100 * share, seconds_left, note.empty() ? "" : ", ", note.c_str());
  std::fflush(stderr);
}

}  // namespace halley::cli
