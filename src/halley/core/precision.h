// In which of two precisions a step multiplies the weights that hold both.
#pragma once

#include <cstdint>
#include <ostream>

namespace halley {

/// Weights that are stored in one precision alone run alike in both.
enum class Precision : uint8_t { kFull, kLow };

inline const char* name_of(Precision precision) {
  return precision == Precision::kFull ? "full" : "low";
}
inline std::ostream& operator<<(std::ostream& out, Precision precision) {
  return out << name_of(precision);
}

}  // namespace halley
