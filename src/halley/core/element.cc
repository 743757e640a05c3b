#include "halley/core/element.h"

#include <cstdint>
#include <cstring>

#include "halley/base/check.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"

namespace halley {

float element_to_f32(DType dtype, const std::byte* from) {
  const auto get = [&](auto element) {
    std::memcpy(&element, from, sizeof(element));
    return element;
  };
  switch (dtype) {
    case DType::kF32:
      return get(float{});
    case DType::kF16:
      return f16_to_f32(get(uint16_t{}));
    case DType::kBf16:
      return bf16_to_f32(get(uint16_t{}));
    case DType::kF8E4M3:
      return e4m3_to_f32(get(uint8_t{}));
    case DType::kI8:
      return static_cast<float>(get(int8_t{}));
    case DType::kI32:
      return static_cast<float>(get(int32_t{}));
    default:
      HALLEY_CHECK(false, name_of(dtype));
  }
  return 0;
}

}  // namespace halley
