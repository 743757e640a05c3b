#include "halley/quant/base/config_field.h"

#include <algorithm>
#include <cctype>

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

void reject_field(const HfConfig& config, std::string_view field, const std::string& expected,
                  const std::string& advice) {
  throw UnsupportedError(message(config, field, expected, advice));
}

void fail_field(const HfConfig& config, std::string_view field, const std::string& expected,
                const std::string& advice) {
  throw InputError(message(config, field, expected, advice));
}

void reject_as(const HfConfig& config, std::string_view field, const std::string& text) {
  throw UnsupportedError(str(config.where(), ": field '", field_path(config, field), "': ", text));
}

const char* declared_name(const HfConfig& config, const char* name, const char* synonym) {
  if (!config.has(synonym)) return name;
  if (!config.has(name)) return synonym;
  const Json &value = config.json().at(name), &other = config.json().at(synonym);
  if (value != other) {
    config.fail(synonym, str("expected ", quote(value.dump()), ", as field '", name, "' has, got ",
                             quote(other.dump()), ". Remove one."));
  }
  return name;
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return text;
}

}  // namespace halley
