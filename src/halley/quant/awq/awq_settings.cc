#include "halley/quant/awq/awq_settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"

namespace halley {
namespace {

constexpr int kBits = 4;
constexpr int64_t kGroupSizeMax = int64_t{1} << 31;

struct VersionName {
  std::string_view name;
  AwqStorage storage;
};
// exllama and ipex name the kernel that the codes are repacked for after loading; the file is gemm.
constexpr std::array<VersionName, 8> kVersions = {{{"gemm", AwqStorage::kByInput},
                                                   {"exllama", AwqStorage::kByInput},
                                                   {"exllamav2", AwqStorage::kByInput},
                                                   {"ipex", AwqStorage::kByInput},
                                                   {"gemv", AwqStorage::kByFeature},
                                                   {"gemv_fast", AwqStorage::kInterleaved},
                                                   {"gemvfast", AwqStorage::kInterleaved},
                                                   {"llm-awq", AwqStorage::kInterleaved}}};

}  // namespace

const char* name_of(AwqStorage storage) {
  switch (storage) {
    case AwqStorage::kByInput:
      return "gemm";
    case AwqStorage::kByFeature:
      return "gemv";
    case AwqStorage::kInterleaved:
      return "gemv_fast";
  }
  return "";
}

AwqSettings::AwqSettings(const QuantConfig& config) : prefix_(config.fields->prefix()) {
  const HfConfig& fields = *config.fields;
  const char* bits_field = declared_name(fields, "bits", "w_bit");
  const int64_t bits = fields.integer(bits_field, 1, 64);
  if (bits != kBits) {
    reject_as(fields, bits_field,
              str("expected 4, got ", bits, ". AWQ files hold 4 bits; use such a checkpoint."));
  }
  const char* group_field = declared_name(fields, "group_size", "q_group_size");
  group_size_ = fields.integer(group_field, -1, kGroupSizeMax);
  if (group_size_ == 0) {
    fields.fail(group_field, "expected -1 for all inputs, or a group's inputs, got 0.");
  }
  has_zero_points_ = fields.boolean_or("zero_point", true);
  skipped_ = fields.strings("modules_to_not_convert");
  read_storage(fields);
}

void AwqSettings::read_storage(const HfConfig& fields) {
  const char* field = "version";
  if (!fields.has(field)) field = declared_name(fields, "checkpoint_format", "format");
  // Files for the backend llm-awq come in two layouts under one version.
  if (!fields.has(field) || lower_case(fields.string_or("backend", "")) == "llm-awq") return;
  storage_field_ = prefix_ + field;
  const std::string name = lower_case(fields.string(field));
  for (const VersionName& version : kVersions) {
    if (name == version.name) storage_ = version.storage;
  }
  if (storage_) return;
  const char* advice = "Use a checkpoint of version gemm.";
  if (name == "marlin") {
    advice = has_zero_points_
                 ? "Marlin tiles with zero points are not read; use a checkpoint of version gemm."
                 : "Its tiles without zero points are those of GPTQ: state quant_method gptq, "
                   "checkpoint_format marlin and sym true, and leave out version and zero_point.";
  }
  reject_as(fields, field,
            str("expected gemm, gemv, gemv_fast, llm-awq, exllama or ipex, got ", quote(name), ". ",
                advice));
}

int64_t AwqSettings::inputs_per_group(int64_t K) const {
  return std::max<int64_t>(1, group_size_ == -1 ? K : group_size_);
}

AwqSettings::Layer AwqSettings::layer(const LinearSpec::Part& part) const {
  for (const std::string& text : skipped_) {
    if (part.name.find(text) == std::string::npos) continue;
    return {.says = ConfigSays::kDense,
            .because = str("field '", prefix_, "modules_to_not_convert' holds ", quote(text))};
  }
  if (skipped_.empty() || part.is_usually_dense) return {};
  return {.says = ConfigSays::kQuantized,
          .because = str("field '", prefix_,
                         "modules_to_not_convert' holds nothing that is part of its name")};
}

}  // namespace halley
