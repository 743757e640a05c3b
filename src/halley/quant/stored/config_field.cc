#include "halley/quant/stored/config_field.h"

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

std::string message(const HfConfig& config, std::string_view field, const std::string& expected,
                    const std::string& advice) {
  return str(config.where(), ": field '", field_path(config, field), "': expected ", expected,
             ", got ", shown_value(config, field), ". ", advice);
}

}  // namespace

std::string field_path(const HfConfig& config, std::string_view field) {
  return str(config.prefix(), field);
}

std::string shown_value(const HfConfig& config, std::string_view field) {
  const auto it = config.json().find(field);
  if (it == config.json().end() || it->is_null()) return "nothing";
  if (it->is_string()) return quote(it->get_ref<const std::string&>());
  if (it->is_primitive()) return it->dump();
  return str("an ", type_name_of(*it), " of ", it->size());
}

void refuse_field(const HfConfig& config, std::string_view field, const std::string& expected,
                  const std::string& advice) {
  throw UnsupportedError(message(config, field, expected, advice));
}

void fail_field(const HfConfig& config, std::string_view field, const std::string& expected,
                const std::string& advice) {
  throw InputError(message(config, field, expected, advice));
}

}  // namespace halley
