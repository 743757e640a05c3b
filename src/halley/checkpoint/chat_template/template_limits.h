// How much a template may use: templates come with models from anywhere.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>

namespace halley {

/// Bounds of parsing a template and of each rendering.
struct TemplateLimits {
  size_t source_bytes_max = 1 << 20;
  size_t num_steps_max = 10'000'000;    // nodes evaluated, and one for every 64 bytes made
  int depth_max = 100;                  // nesting of expressions and blocks, and of macro calls
  size_t output_bytes_max = 16 << 20;   // also of any string or list made on the way
  int num_frames_max = 600;             // evaluations inside evaluations, over all macro calls
  size_t memory_bytes_max = 256 << 20;  // all values that live at one time
};

/// The clock that strftime_now reads.
using TemplateClock = std::function<std::tm()>;

}  // namespace halley
