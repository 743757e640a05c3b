#include "halley/quant/stored/dense_list.h"

#include <algorithm>
#include <utility>

#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/stored/part_tensors.h"

namespace halley {
namespace {

constexpr const char* kField = "modules_to_not_convert";

}  // namespace

DenseList::DenseList(const HfConfig& fields, std::string if_unlisted)
    : path_(field_path(fields, kField)), if_unlisted_(std::move(if_unlisted)) {
  const std::string where = str(fields.where(), ": field '", path_, "'");
  for (const std::string& text : fields.strings(kField)) {
    patterns_.push_back(NamePattern::parse(text, where));
  }
}

const NamePattern* DenseList::find(const std::string& name) const {
  const auto found = std::find_if(patterns_.begin(), patterns_.end(),
                                  [&](const NamePattern& p) { return p.matches(name); });
  return found == patterns_.end() ? nullptr : &*found;
}

bool DenseList::is_quantized(const TensorSource& source, const LinearSpec::Part& part) const {
  if (part.expert >= 0) {
    reject_quantized_experts(source, part);
    return false;
  }
  const bool has_codes = source.find(part.name + ".qweight") != nullptr;
  if (const NamePattern* pattern = find(part.name)) {
    check_agreement(source, part, ConfigSays::kDense, has_codes,
                    str("field '", path_, "' holds ", quote(pattern->text())));
  } else if (!part.is_usually_dense) {
    check_agreement(source, part, ConfigSays::kQuantized, has_codes, if_unlisted_);
  }
  if (has_codes) reject_undeclared_tensor(source, part.name + ".weight", "qweight is there");
  return has_codes;
}

bool DenseList::is_declared_quantized(const LinearSpec::Part& part) const {
  return part.expert < 0 && !part.is_usually_dense && find(part.name) == nullptr;
}

}  // namespace halley
