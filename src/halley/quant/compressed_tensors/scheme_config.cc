#include "halley/quant/compressed_tensors/scheme_config.h"

#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"
#include "halley/quant/stored/kv_scheme.h"

namespace halley {
namespace {

constexpr size_t kGroupsMax = 1024;
/// The class name of Python's linear modules; no other class has a quantized GEMM weight.
constexpr const char* kClassName = "Linear";
constexpr std::string_view kRegexMark = "re:";

void reject_sparsity(const HfConfig& fields) {
  const auto sparsity = fields.object("sparsity_config");
  if (!sparsity || sparsity->json().empty()) return;
  if (sparsity->string_or("format", "dense") == "dense") return;
  reject_field(*sparsity, "format", "\"dense\"",
               "Decompress the model, or quantize it without sparsity.");
}

/// Transforms change the inputs of layers: without them the outputs would be wrong.
void reject_transforms(const HfConfig& fields) {
  const auto transform = fields.object("transform_config");
  if (!transform) return;
  for (const auto& [name, value] : transform->json().items()) {
    if (value.is_null() || value.empty()) continue;
    reject_field(fields, "transform_config", "nothing",
                 "Quantize the model without transforms (SpinQuant, QuIP).");
  }
}

void warn_of_status(const HfConfig& fields, std::vector<std::string>& warnings) {
  const std::string status = fields.string_or("quantization_status", "compressed");
  if (status == "compressed" || status == "frozen") return;
  warnings.push_back(str(fields.where(), ": field '", field_path(fields, "quantization_status"),
                         "': expected \"compressed\" or \"frozen\", got ", quote(status),
                         ": the scales may not be final."));
}

}  // namespace

std::vector<SchemeConfig::Target> SchemeConfig::read_targets(const HfConfig& object,
                                                             std::string_view field, size_t group) {
  const std::string path = field_path(object, field);
  const std::string where = str(object.where(), ": field '", path, "'");
  std::vector<Target> targets;
  for (const std::string& text : object.strings(field)) {
    Target target = {.kind = text == kClassName ? TargetKind::kClass : TargetKind::kName,
                     .pattern = NamePattern::exact(text),
                     .group = group,
                     .because = str("field '", path, "' holds ", quote(text))};
    if (text.starts_with(kRegexMark)) {
      target.kind = TargetKind::kRegex;
      target.pattern = NamePattern::regex(text.substr(kRegexMark.size()), where);
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

void SchemeConfig::read_groups(const HfConfig& fields) {
  const auto groups = fields.object("config_groups");
  const std::string format = fields.string_or("format", "");
  if (!groups || groups->json().empty()) {
    if (format == "dense" || fields.has("kv_cache_scheme")) return;
    fail_field(fields, "config_groups", "groups of layers with their schemes",
               "State them, or remove quantization_config from an unquantized model.");
  }
  const std::vector<std::string> names = groups->member_names();
  if (names.size() > kGroupsMax) {
    fail_field(fields, "config_groups", str("at most ", kGroupsMax, " groups"),
               "Join groups that have the same scheme.");
  }
  for (const std::string& name : names) {
    const auto group = groups->object(name);
    if (!group) continue;
    if (!group->has("targets")) {
      fail_field(*group, "targets", "a list of names, expressions or \"Linear\"",
                 "State which layers the group has.");
    }
    for (Target& target : read_targets(*group, "targets", groups_.size())) {
      targets_.push_back(std::move(target));
    }
    groups_.push_back(read_group_scheme(*group, fields));
    if (!groups_.back().warning.empty()) warnings_.push_back(groups_.back().warning);
  }
}

SchemeConfig::SchemeConfig(const HfConfig& fields) {
  reject_sparsity(fields);
  reject_transforms(fields);
  read_groups(fields);
  ignored_ = read_targets(fields, "ignore", 0);
  no_target_ = str("no target in field '", field_path(fields, "config_groups"), "' names it");
  declared_kv_ = read_kv_cache_scheme(fields);
  warn_of_status(fields, warnings_);
}

const SchemeConfig::Target* SchemeConfig::find_target(const std::vector<Target>& targets,
                                                      std::string_view layer) {
  for (const TargetKind kind : {TargetKind::kName, TargetKind::kRegex, TargetKind::kClass}) {
    for (const Target& target : targets) {
      if (target.kind != kind) continue;
      if (kind == TargetKind::kClass || target.pattern.matches(layer)) return &target;
    }
  }
  return nullptr;
}

SchemeConfig::Verdict SchemeConfig::verdict(std::string_view layer, bool is_usually_dense) const {
  if (const Target* ignored = find_target(ignored_, layer)) {
    return {ConfigSays::kDense, nullptr, ignored->because};
  }
  const Target* target = find_target(targets_, layer);
  if (target == nullptr) return {ConfigSays::kDense, nullptr, no_target_};
  const bool is_open = is_usually_dense && target->kind == TargetKind::kClass;
  return {is_open ? ConfigSays::kEither : ConfigSays::kQuantized, &groups_[target->group],
          target->because};
}

}  // namespace halley
