#include "halley/kernels/kv/testing/kv_reference.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "halley/core/float16.h"

namespace halley {
namespace {

template <typename T>
T read(const std::byte* from, int64_t index) {
  T value;
  std::memcpy(&value, from + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

double f16_at(const std::byte* from, int64_t index) {
  return static_cast<double>(f16_to_f32(read<uint16_t>(from, index)));
}

}  // namespace

double e4m3_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double sign = bits >= 128 ? -1 : 1;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, -9);
  return sign * std::ldexp(8 + mantissa, exponent - 10);
}

double kv_element(KvDType dtype, const std::byte* data, const std::byte* scale, int64_t index) {
  switch (dtype) {
    case KvDType::kF32:
      return static_cast<double>(read<float>(data, index));
    case KvDType::kF16:
      return f16_at(data, index);
    case KvDType::kBf16:
      return static_cast<double>(bf16_to_f32(read<uint16_t>(data, index)));
    case KvDType::kInt8:
      return read<uint8_t>(data, index) * f16_at(scale, 0) + f16_at(scale, 1);
    case KvDType::kInt4: {
      const int both = read<uint8_t>(data, index / 2);
      return (index % 2 == 0 ? both & 15 : both >> 4) * f16_at(scale, 0) + f16_at(scale, 1);
    }
    case KvDType::kFp8E4M3:
      break;
  }
  return e4m3_value(read<uint8_t>(data, index)) * static_cast<double>(read<float>(scale, 0));
}

}  // namespace halley
