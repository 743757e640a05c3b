// Numbers with flags, width and precision, for both kinds of format strings.
#pragma once

#include <cstdint>
#include <string>

#include "halley/checkpoint/chat_template/runtime.h"

namespace halley::jinja {

struct NumberFormat {
  char type = 'd';  // d x X o b e E f F g G %
  char sign = '-';  // '-' only negative, '+' always, ' ' a space for others
  bool is_alternate = false;
  bool has_commas = false;
  int precision = -1;  // not given
};

/// Digits with sign and prefix, without padding; `sign_size` is the length of sign and prefix,
/// behind which zeros are filled in.
struct NumberText {
  std::string text;
  size_t sign_size = 0;
};

NumberText format_integer(int64_t value, const NumberFormat& format);
NumberText format_float(double value, const NumberFormat& format);

/// Fills up to `width` code points. `align` is '<', '>', '^' or '=' (behind the sign).
std::string pad(Runtime& runtime, const NumberText& number, size_t width, char align,
                std::string_view fill);

}  // namespace halley::jinja
