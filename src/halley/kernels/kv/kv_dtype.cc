#include "halley/kernels/kv/kv_dtype.h"

#include "halley/base/check.h"

namespace halley {
namespace {

constexpr KvDType kAll[] = {KvDType::kF32,  KvDType::kF16,  KvDType::kBf16,
                            KvDType::kInt8, KvDType::kInt4, KvDType::kFp8E4M3};

}  // namespace

std::span<const KvDType> all_kv_dtypes() { return kAll; }

int bits_of(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32:
      return 32;
    case KvDType::kF16:
    case KvDType::kBf16:
      return 16;
    case KvDType::kInt8:
    case KvDType::kFp8E4M3:
      return 8;
    case KvDType::kInt4:
      break;
  }
  return 4;
}

const char* name_of(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32:
      return "f32";
    case KvDType::kF16:
      return "f16";
    case KvDType::kBf16:
      return "bf16";
    case KvDType::kInt8:
      return "int8";
    case KvDType::kInt4:
      return "int4";
    case KvDType::kFp8E4M3:
      break;
  }
  return "fp8";
}

std::optional<KvDType> kv_dtype_from_name(std::string_view name) {
  for (const KvDType dtype : kAll) {
    if (name == name_of(dtype)) return dtype;
  }
  if (name == "fp8_e4m3") return KvDType::kFp8E4M3;
  return std::nullopt;
}

KvDType kv_dtype_of(DType dtype) {
  HALLEY_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBf16, dtype);
  if (dtype == DType::kF32) return KvDType::kF32;
  return dtype == DType::kF16 ? KvDType::kF16 : KvDType::kBf16;
}

}  // namespace halley
