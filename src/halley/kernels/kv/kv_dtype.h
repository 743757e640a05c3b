// How the elements of the KV cache are stored.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>

#include "halley/core/dtype.h"

namespace halley {

/// kv_cache_view.h says what the bits of each type mean.
enum class KvDType : uint8_t { kF32, kF16, kBf16, kInt8, kInt4, kFp8E4M3 };

/// All of them, in the order of the enumeration.
std::span<const KvDType> all_kv_dtypes();

/// Bits of one element, without the scale of its row.
int bits_of(KvDType dtype);

/// "f32", "f16", "bf16", "int8", "int4", "fp8".
const char* name_of(KvDType dtype);

/// From its name, or from "fp8_e4m3", another name of "fp8".
std::optional<KvDType> kv_dtype_from_name(std::string_view name);

/// The type that keeps elements of `dtype` as they are. Requires f32, f16 or bf16.
KvDType kv_dtype_of(DType dtype);

/// Whether every row of a head carries a scale.
constexpr bool has_scales(KvDType dtype) { return dtype >= KvDType::kInt8; }

inline std::ostream& operator<<(std::ostream& out, KvDType dtype) { return out << name_of(dtype); }

}  // namespace halley
