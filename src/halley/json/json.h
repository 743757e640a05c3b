// JSON from files and requests, which are untrusted: parsed strictly with limits. The type is
// nlohmann::json; every text goes through parse_json, which rejects what the library lets pass.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace halley {

using Json = nlohmann::json;
/// Keeps the order of an object's members. Look-up is linear: for small documents only.
using OrderedJson = nlohmann::ordered_json;

struct JsonLimits {
  int depth_max = 128;
  /// Values and keys of the whole document together.
  size_t num_values_max = 20'000'000;
};

/// Strict JSON: valid UTF-8, no duplicate key in an object, no NaN, numbers that fit a double,
/// nothing behind the document, within the limits. Throws InputError as
/// "<where>: not valid JSON at byte 17: ...".
Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

/// The same for documents whose order of members counts. At most 10,000 members an object.
OrderedJson parse_ordered_json(std::string_view text, const std::string& where,
                               const JsonLimits& limits = {});

/// "string", "number", "object", ... for messages.
const char* type_name_of(const Json& value);

}  // namespace halley
