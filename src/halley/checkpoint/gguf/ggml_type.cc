#include "halley/checkpoint/gguf/ggml_type.h"

#include <array>

#include "halley/base/str.h"

namespace halley {
namespace {

/// Values of a super-block, the unit of the K and of most IQ types.
constexpr int64_t kSuper = 256;

constexpr std::array kTypes = {
    GgmlTypeInfo{GgmlType::kF32, "F32", "", 1, 4, DType::kF32},
    GgmlTypeInfo{GgmlType::kF16, "F16", "", 1, 2, DType::kF16},
    GgmlTypeInfo{GgmlType::kBf16, "BF16", "", 1, 2, DType::kBf16},
    GgmlTypeInfo{GgmlType::kQ4_0, "Q4_0", ".q4_0", 32, 18, {}},
    GgmlTypeInfo{GgmlType::kQ4_1, "Q4_1", ".q4_1", 32, 20, {}},
    GgmlTypeInfo{GgmlType::kQ5_0, "Q5_0", ".q5_0", 32, 22, {}},
    GgmlTypeInfo{GgmlType::kQ5_1, "Q5_1", ".q5_1", 32, 24, {}},
    GgmlTypeInfo{GgmlType::kQ8_0, "Q8_0", ".q8_0", 32, 34, {}},
    GgmlTypeInfo{GgmlType::kQ2K, "Q2_K", ".q2_k", kSuper, 84, {}},
    GgmlTypeInfo{GgmlType::kQ3K, "Q3_K", ".q3_k", kSuper, 110, {}},
    GgmlTypeInfo{GgmlType::kQ4K, "Q4_K", ".q4_k", kSuper, 144, {}},
    GgmlTypeInfo{GgmlType::kQ5K, "Q5_K", ".q5_k", kSuper, 176, {}},
    GgmlTypeInfo{GgmlType::kQ6K, "Q6_K", ".q6_k", kSuper, 210, {}},
    GgmlTypeInfo{GgmlType::kIq4Nl, "IQ4_NL", ".iq4_nl", 32, 18, {}},
    GgmlTypeInfo{GgmlType::kIq4Xs, "IQ4_XS", ".iq4_xs", kSuper, 136, {}},
    GgmlTypeInfo{GgmlType::kMxfp4, "MXFP4", ".mxfp4", 32, 17, {}},
};

struct NamedType {
  uint32_t type;
  const char* name;
};

/// Types that exist and are not read.
constexpr std::array kOthers = {
    NamedType{9, "Q8_1"},    NamedType{15, "Q8_K"},    NamedType{16, "IQ2_XXS"},
    NamedType{17, "IQ2_XS"}, NamedType{18, "IQ3_XXS"}, NamedType{19, "IQ1_S"},
    NamedType{21, "IQ3_S"},  NamedType{22, "IQ2_S"},   NamedType{24, "I8"},
    NamedType{25, "I16"},    NamedType{26, "I32"},     NamedType{27, "I64"},
    NamedType{28, "F64"},    NamedType{29, "IQ1_M"},   NamedType{34, "TQ1_0"},
    NamedType{35, "TQ2_0"},  NamedType{40, "NVFP4"},
};

}  // namespace

const GgmlTypeInfo* find_ggml_type(uint32_t type) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == type) return &info;
  }
  return nullptr;
}

const GgmlTypeInfo* ggml_type_of_suffix(std::string_view name) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (!info.dense && name.ends_with(info.suffix)) return &info;
  }
  return nullptr;
}

std::string ggml_type_name(uint32_t type) {
  if (const GgmlTypeInfo* info = find_ggml_type(type)) return info->name;
  for (const NamedType& other : kOthers) {
    if (other.type == type) return other.name;
  }
  return str(type);
}

std::string known_ggml_types() {
  std::string names;
  for (const GgmlTypeInfo& info : kTypes) names += str(names.empty() ? "" : ", ", info.name);
  return names;
}

}  // namespace halley
