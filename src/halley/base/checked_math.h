// Integer arithmetic for sizes: checked where a number comes from a file or a request.
#pragma once

#include <concepts>
#include <optional>

namespace halley {

/// a * b, or nothing where it does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) {
  T result{};
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

/// a + b, or nothing where it does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
  T result{};
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

/// The smallest integer >= a / b, for a >= 0 and b > 0.
template <std::integral T>
[[nodiscard]] constexpr T ceil_div(T a, T b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// The smallest multiple of b that is >= a, for a >= 0 and b > 0.
template <std::integral T>
[[nodiscard]] constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

}  // namespace halley
