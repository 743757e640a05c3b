#include <cmath>
#include <cstring>
#include <limits>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/gguf_file.h"

namespace halley {
namespace {

constexpr uint64_t kElementsMax = 1 << 24;  // as many as a vocabulary may have

template <typename T>
T load(const GgufValue& value, uint64_t index) {
  T element;
  std::memcpy(&element, value.bytes.data() + index * sizeof(T), sizeof(T));
  return element;
}

bool is_integer(GgufValueType type) {
  return type != GgufValueType::kF32 && type != GgufValueType::kF64 &&
         type != GgufValueType::kBool && type != GgufValueType::kString;
}
bool is_number(GgufValueType type) {
  return type != GgufValueType::kBool && type != GgufValueType::kString;
}
bool is_bool(GgufValueType type) { return type == GgufValueType::kBool; }
bool is_string(GgufValueType type) { return type == GgufValueType::kString; }

/// Nothing where a u64 does not fit.
std::optional<int64_t> integer_at(const GgufValue& value, uint64_t index) {
  switch (value.type) {
    case GgufValueType::kU8:
      return load<uint8_t>(value, index);
    case GgufValueType::kI8:
      return load<int8_t>(value, index);
    case GgufValueType::kU16:
      return load<uint16_t>(value, index);
    case GgufValueType::kI16:
      return load<int16_t>(value, index);
    case GgufValueType::kU32:
      return load<uint32_t>(value, index);
    case GgufValueType::kI32:
      return load<int32_t>(value, index);
    case GgufValueType::kI64:
      return load<int64_t>(value, index);
    default:
      break;
  }
  const auto wide = load<uint64_t>(value, index);
  if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(wide);
}

double number_at(const GgufValue& value, uint64_t index) {
  if (value.type == GgufValueType::kF32) return load<float>(value, index);
  if (value.type == GgufValueType::kF64) return load<double>(value, index);
  const auto integer = integer_at(value, index);
  return integer ? static_cast<double>(*integer) : std::numeric_limits<double>::infinity();
}

}  // namespace

bool GgufMetadata::add(std::string_view key, const GgufValue& value) {
  return values_.emplace(key, value).second;
}

void GgufMetadata::fail(std::string_view key, const std::string& problem) const {
  throw InputError(str(where_, ": metadata ", quote(key), ": ", problem));
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

bool GgufMetadata::is_array(std::string_view key) const {
  const GgufValue* value = find(key);
  return value != nullptr && value->is_array;
}

const GgufValue* GgufMetadata::find_as(std::string_view key, const char* expected,
                                       bool may_be_array, bool (*accepts)(GgufValueType)) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (value->count > kElementsMax) {
    fail(key, str("expected at most ", kElementsMax, " elements, got ", value->count, "."));
  }
  if (!accepts(value->type) || (value->is_array && !may_be_array)) {
    fail(key, str("expected ", expected, ", got ", value->is_array ? "an array of " : "",
                  name_of(value->type), ". Convert the model again."));
  }
  return value;
}

std::optional<int64_t> GgufMetadata::integer(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* value = find_as(key, "an integer", false, is_integer);
  if (value == nullptr) return std::nullopt;
  const auto integer = integer_at(*value, 0);
  if (!integer || *integer < min || *integer > max) {
    fail(key, str("expected an integer in [", min, ", ", max, "], got ",
                  integer ? str(*integer) : "a larger one", "."));
  }
  return integer;
}

int64_t GgufMetadata::required_integer(std::string_view key, int64_t min, int64_t max) const {
  const auto value = integer(key, min, max);
  if (!value) fail(key, "expected an integer, got nothing. Convert the model again.");
  return *value;
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const GgufValue* value = find_as(key, "a number", false, is_number);
  if (value == nullptr) return std::nullopt;
  const double number = number_at(*value, 0);
  if (!std::isfinite(number)) fail(key, str("expected a finite number, got ", number, "."));
  return number;
}

std::optional<bool> GgufMetadata::boolean(std::string_view key) const {
  const GgufValue* value = find_as(key, "a boolean", false, is_bool);
  if (value == nullptr) return std::nullopt;
  return load<uint8_t>(*value, 0) != 0;
}

std::optional<std::string> GgufMetadata::string(std::string_view key) const {
  if (find_as(key, "a string", false, is_string) == nullptr) return std::nullopt;
  return std::string((*strings(key))[0]);
}

std::optional<std::vector<int64_t>> GgufMetadata::integers(std::string_view key) const {
  const GgufValue* value = find_as(key, "integers", true, is_integer);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> integers;
  integers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto integer = integer_at(*value, i);
    if (!integer) fail(key, str("expected integers below 2^63, got a larger one at ", i, "."));
    integers.push_back(*integer);
  }
  return integers;
}

std::optional<std::vector<double>> GgufMetadata::numbers(std::string_view key) const {
  const GgufValue* value = find_as(key, "numbers", true, is_number);
  if (value == nullptr) return std::nullopt;
  std::vector<double> numbers;
  numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    numbers.push_back(number_at(*value, i));
    if (std::isfinite(numbers.back())) continue;
    fail(key, str("expected finite numbers, got ", numbers.back(), " at ", i, "."));
  }
  return numbers;
}

std::optional<std::vector<bool>> GgufMetadata::booleans(std::string_view key) const {
  const GgufValue* value = find_as(key, "booleans", true, is_bool);
  if (value == nullptr) return std::nullopt;
  std::vector<bool> booleans;
  for (uint64_t i = 0; i < value->count; ++i) booleans.push_back(load<uint8_t>(*value, i) != 0);
  return booleans;
}

std::optional<std::vector<std::string_view>> GgufMetadata::strings(std::string_view key) const {
  const GgufValue* value = find_as(key, "strings", true, is_string);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  const std::byte* at = value->bytes.data();
  for (uint64_t i = 0; i < value->count; ++i) {
    uint64_t length = 0;
    std::memcpy(&length, at, sizeof(length));
    at += sizeof(length);
    strings.emplace_back(reinterpret_cast<const char*>(at), length);
    at += length;
  }
  return strings;
}

}  // namespace halley
