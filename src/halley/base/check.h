// Checks for our own bugs. HALLEY_CHECK is always on: it prints the expression, the values and the
// place, and ends the process. HALLEY_DCHECK is for inner loops and vanishes in release builds.
// Never for what a user, a file or a request can cause: throw an Error (error.h) there.
#pragma once

#include <string>

#include "halley/base/str.h"

namespace halley {

[[noreturn]] void check_failed(const char* expression, const std::string& values, const char* file,
                               int line);

namespace check_detail {

inline std::string join_values() { return {}; }

template <typename First, typename... Rest>
std::string join_values(const First& first, const Rest&... rest) {
  std::string text = str(first);
  ((text += str(", ", rest)), ...);
  return text;
}

}  // namespace check_detail
}  // namespace halley

// HALLEY_CHECK(a == b, a, b)
#define HALLEY_CHECK(condition, ...)                                                       \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      ::halley::check_failed(#condition, ::halley::check_detail::join_values(__VA_ARGS__), \
                             __FILE__, __LINE__);                                          \
    }                                                                                      \
  } while (false)

#ifdef NDEBUG
#define HALLEY_DCHECK(condition, ...) \
  do {                                \
    if (false && (condition)) {       \
    }                                 \
  } while (false)
#else
#define HALLEY_DCHECK(condition, ...) HALLEY_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
