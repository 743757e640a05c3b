#include "halley/checkpoint/config/hf_config.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/model_files.h"

namespace halley {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;  // real ones have up to a few hundred kilobytes
constexpr size_t kArrayLengthMax = 65'536;

// A value of the file for a message: short, and safe to show.
std::string describe(const Json* value) {
  if (value == nullptr) return "nothing";
  if (value->is_string()) return halley::quote(value->get_ref<const std::string&>());
  if (value->is_primitive()) return value->dump();
  return str("an ", type_name_of(*value), " of ", value->size());
}

std::string describe_range(int64_t min, int64_t max) {
  if (min == 1 && max == std::numeric_limits<int64_t>::max()) return "a positive integer";
  return str("an integer in [", min, ", ", max, "]");
}

// JSON integers that fit int64_t. 4096.0 is not one: Python would reject it as a size too.
std::optional<int64_t> as_integer(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

}  // namespace

HfConfig::HfConfig(Json json, std::string where, std::string prefix,
                   std::shared_ptr<const std::string> text)
    : json_(std::move(json)),
      where_(std::move(where)),
      prefix_(std::move(prefix)),
      text_(std::move(text)) {}

HfConfig HfConfig::load(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "config.json";
  return parse(read_model_file(model_dir, path.filename(), kConfigBytesMax), path.string());
}

HfConfig HfConfig::parse(std::string_view text, const std::string& where) {
  Json json = parse_json(text, where);
  if (!json.is_object()) {
    throw InputError(str(where, ": expected a JSON object, got ", describe(&json), "."));
  }
  return {std::move(json), where, "", std::make_shared<const std::string>(text)};
}

std::vector<std::string> HfConfig::member_names() const {
  const OrderedJson file = parse_ordered_json(*text_, where_);
  const OrderedJson* object = &file;
  for (const std::string& field : path_) object = &object->at(field);
  std::vector<std::string> names;
  for (const auto& member : object->items()) names.push_back(member.key());
  return names;
}

const Json* HfConfig::find(std::string_view field) const {
  const auto it = json_.find(field);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

bool HfConfig::has(std::string_view field) const { return find(field) != nullptr; }

void HfConfig::fail(std::string_view field, const std::string& problem) const {
  throw InputError(str(where_, ": field '", prefix_, field, "': ", problem));
}

std::string HfConfig::model_type() const { return string("model_type"); }

std::optional<std::string> HfConfig::dtype() const {
  for (const char* field : {"dtype", "torch_dtype"}) {
    if (has(field)) return string(field);
  }
  return std::nullopt;
}

int64_t HfConfig::integer(std::string_view field, int64_t min, int64_t max) const {
  const Json* value = find(field);
  const auto integer = value != nullptr ? as_integer(*value) : std::nullopt;
  if (!integer || *integer < min || *integer > max) {
    fail(field, str("expected ", describe_range(min, max), ", got ", describe(value), "."));
  }
  return *integer;
}

double HfConfig::number(std::string_view field) const {
  const Json* value = find(field);
  if (value == nullptr || !value->is_number()) {
    fail(field, str("expected a number, got ", describe(value), "."));
  }
  return value->get<double>();
}

std::string HfConfig::string(std::string_view field) const {
  const Json* value = find(field);
  if (value == nullptr || !value->is_string()) {
    fail(field, str("expected a string, got ", describe(value), "."));
  }
  return value->get<std::string>();
}

int64_t HfConfig::integer_or(std::string_view field, int64_t fallback, int64_t min,
                             int64_t max) const {
  return has(field) ? integer(field, min, max) : fallback;
}

double HfConfig::number_or(std::string_view field, double fallback) const {
  return has(field) ? number(field) : fallback;
}

bool HfConfig::boolean_or(std::string_view field, bool fallback) const {
  const Json* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(field, str("expected true or false, got ", describe(value), "."));
  return value->get<bool>();
}

std::string HfConfig::string_or(std::string_view field, const std::string& fallback) const {
  return has(field) ? string(field) : fallback;
}

namespace {

// The elements of an array, each through `convert`, which gives nothing for a wrong type.
template <typename T, typename Convert>
std::vector<T> read_array(const HfConfig& config, std::string_view field, const Json* value,
                          const char* expected, const Convert& convert) {
  std::vector<T> elements;
  if (value == nullptr) return elements;
  if (!value->is_array() || value->size() > kArrayLengthMax) {
    config.fail(field, str("expected an array of at most ", kArrayLengthMax, " ", expected,
                           "s, got ", describe(value), "."));
  }
  elements.reserve(value->size());
  for (const Json& item : *value) {
    std::optional<T> element = convert(item);
    if (!element) {
      config.fail(field, str("element ", elements.size(), ": expected a ", expected, ", got ",
                             describe(&item), "."));
    }
    elements.push_back(*std::move(element));
  }
  return elements;
}

}  // namespace

std::vector<double> HfConfig::numbers(std::string_view field) const {
  return read_array<double>(*this, field, find(field), "number",
                            [](const Json& item) -> std::optional<double> {
                              if (!item.is_number()) return std::nullopt;
                              return item.get<double>();
                            });
}

std::vector<int64_t> HfConfig::integers(std::string_view field) const {
  return read_array<int64_t>(*this, field, find(field), "64-bit integer", as_integer);
}

std::vector<std::string> HfConfig::strings(std::string_view field) const {
  return read_array<std::string>(*this, field, find(field), "string",
                                 [](const Json& item) -> std::optional<std::string> {
                                   if (!item.is_string()) return std::nullopt;
                                   return item.get<std::string>();
                                 });
}

std::optional<HfConfig> HfConfig::object(std::string_view field) const {
  const Json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(field, str("expected an object, got ", describe(value), "."));
  HfConfig nested(*value, where_, str(prefix_, field, "."), text_);
  nested.path_ = path_;
  nested.path_.emplace_back(field);
  return nested;
}

}  // namespace halley
