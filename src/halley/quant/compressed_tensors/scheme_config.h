// The quantization_config of compressed-tensors: groups of layers, each with a scheme.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/core/packed_weight.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/base/format.h"
#include "halley/quant/base/name_pattern.h"

namespace halley {

/// How a group's weights are stored.
enum class CodeStorage : uint8_t {
  kPacked,  // "pack-quantized": integers of 2, 3, 4 or 8 bits in i32 words
  kInt8,    // "int-quantized": i8
  kFloat8,  // "float-quantized": e4m3
  kNvFp4,   // "nvfp4-pack-quantized": e2m1, scales in e4m3 and one in f32
  kMxFp4,   // "mxfp4-pack-quantized": e2m1, scales in e8m0
};

/// One member of config_groups.
struct GroupScheme {
  std::string path;  // "quantization_config.config_groups.group_0"
  CodeStorage storage = CodeStorage::kPacked;
  int bits = 4;
  bool is_symmetric = true;
  bool has_input_perm = false;  // actorder "group"
  /// Weights that share a scale; 0: all rows, all inputs.
  int64_t block_rows = 1;
  int64_t group_size = 0;
  ActivationQuant activation = ActivationQuant::kNone;
  std::string warning = {};

  bool is_float4() const {
    return storage == CodeStorage::kNvFp4 || storage == CodeStorage::kMxFp4;
  }
};

/// Throws InputError or UnsupportedError that names file and field. `group` is a member of the
/// `whole` configuration, whose format it has where it declares none.
GroupScheme read_group_scheme(const HfConfig& group, const HfConfig& whole);

/// The whole quantization_config.
class SchemeConfig {
 public:
  /// Throws InputError or UnsupportedError that names file and field.
  explicit SchemeConfig(const HfConfig& fields);

  /// The scheme of a layer, and the field that decides it.
  struct Verdict {
    ConfigSays says = ConfigSays::kDense;
    const GroupScheme* group = nullptr;  // where it is quantized
    std::string because;                 // for check_agreement()
  };
  /// `ignore` goes first; then, over all groups in the order of the file, targets that are the
  /// layer's name, regular expressions, and the class name Linear. A layer that tools usually leave
  /// alone and that only the class name targets may be either.
  Verdict verdict(std::string_view layer, bool is_usually_dense) const;

  const std::vector<GroupScheme>& groups() const { return groups_; }
  DeclaredKv declared_kv() const { return declared_kv_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  enum class TargetKind : uint8_t { kName, kRegex, kClass };
  struct Target {
    TargetKind kind = TargetKind::kName;
    NamePattern pattern;
    size_t group = 0;
    std::string because;
  };
  static std::vector<Target> read_targets(const HfConfig& object, std::string_view field,
                                          size_t group);
  static const Target* find_target(const std::vector<Target>& targets, std::string_view layer);
  void read_groups(const HfConfig& fields);

  std::vector<GroupScheme> groups_;
  std::vector<Target> targets_, ignored_;
  std::string no_target_;
  DeclaredKv declared_kv_ = DeclaredKv::kNothing;
  std::vector<std::string> warnings_;
};

}  // namespace halley
