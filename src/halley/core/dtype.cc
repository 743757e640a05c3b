#include "halley/core/dtype.h"

#include <array>

#include "halley/base/check.h"

namespace halley {
namespace {

struct DTypeRow {
  DType dtype;
  const char* safetensors_name;
  const char* name;
  int bits;
};

constexpr std::array<DTypeRow, 22> kDTypes = {{
    {DType::kBool, "BOOL", "bool", 8},
    {DType::kF4, "F4", "f4", 4},
    {DType::kF6E2M3, "F6_E2M3", "f6_e2m3", 6},
    {DType::kF6E3M2, "F6_E3M2", "f6_e3m2", 6},
    {DType::kU8, "U8", "u8", 8},
    {DType::kI8, "I8", "i8", 8},
    {DType::kF8E5M2, "F8_E5M2", "f8_e5m2", 8},
    {DType::kF8E4M3, "F8_E4M3", "f8_e4m3", 8},
    {DType::kF8E8M0, "F8_E8M0", "f8_e8m0", 8},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", "f8_e4m3fnuz", 8},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", "f8_e5m2fnuz", 8},
    {DType::kI16, "I16", "i16", 16},
    {DType::kU16, "U16", "u16", 16},
    {DType::kF16, "F16", "f16", 16},
    {DType::kBf16, "BF16", "bf16", 16},
    {DType::kI32, "I32", "i32", 32},
    {DType::kU32, "U32", "u32", 32},
    {DType::kF32, "F32", "f32", 32},
    {DType::kC64, "C64", "c64", 64},
    {DType::kF64, "F64", "f64", 64},
    {DType::kI64, "I64", "i64", 64},
    {DType::kU64, "U64", "u64", 64},
}};

const DTypeRow& row_of(DType dtype) {
  const auto& row = kDTypes.at(static_cast<size_t>(dtype));
  HALLEY_CHECK(row.dtype == dtype, static_cast<int>(dtype));
  return row;
}

}  // namespace

int bits_of(DType dtype) { return row_of(dtype).bits; }

const char* name_of(DType dtype) { return row_of(dtype).name; }

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.safetensors_name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace halley
