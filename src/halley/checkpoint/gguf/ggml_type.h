// The element types of GGUF tensors: names, blocks and sizes, as ggml numbers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "halley/core/dtype.h"

namespace halley {

/// The types that are read. Values are those of the file.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kIq4Nl = 20,
  kIq4Xs = 23,
  kBf16 = 30,
  kMxfp4 = 39,
};

struct GgmlTypeInfo {
  GgmlType type = GgmlType::kF32;
  const char* name = "";       // "Q4_K"
  const char* suffix = "";     // ".q4_k" of a quantized tensor's name in a TensorSource
  int64_t block_values = 1;    // consecutive inputs of a row that are stored together
  size_t block_bytes = 0;      // of them
  std::optional<DType> dense;  // set iff the type is not quantized
};

/// Null where the type is unknown or not read.
const GgmlTypeInfo* find_ggml_type(uint32_t type);

/// The type whose suffix `name` ends in; null where there is none.
const GgmlTypeInfo* ggml_type_of_suffix(std::string_view name);

/// "IQ2_XXS" for a type that exists and is not read, else "99".
std::string ggml_type_name(uint32_t type);

/// "F32, F16, Q4_0, ...": all that are read.
std::string known_ggml_types();

}  // namespace halley
