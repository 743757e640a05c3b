// Element types of tensors, as safetensors names them, and their sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

namespace halley {

enum class DType : uint8_t {
  kBool,
  kF4,  // e2m1, two a byte
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,  // the finite variant ("fn"): no infinity, one NaN code 0x7F
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// Bits of one element.
int bits_of(DType dtype);

/// Lower-case name for messages: "f16", "bf16", "i32", "f8_e4m3".
const char* name_of(DType dtype);

/// From the name in a safetensors header ("F16", "BF16", "F8_E4M3", ...).
std::optional<DType> dtype_from_safetensors(std::string_view name);

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace halley
