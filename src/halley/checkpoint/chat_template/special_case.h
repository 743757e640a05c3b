// Characters that become several when their case changes.
#pragma once

#include <cstdint>

namespace halley::jinja {

struct SpecialCase {
  uint32_t code_point;
  const char* upper;
  const char* title;
};

/// The unconditional mappings of Unicode's SpecialCasing.txt for one code point, or null.
const SpecialCase* find_special_case(uint32_t code_point);

}  // namespace halley::jinja
