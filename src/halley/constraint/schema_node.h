// One schema of a document: its checked keywords, and its JSON pointer for messages.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/constraint/number_range.h"
#include "halley/json/json.h"

namespace halley {

/// `schema` outlives this. The methods throw InputError if a value is invalid for its
/// keyword.
class SchemaNode {
 public:
  SchemaNode(const OrderedJson& schema, std::string path)
      : schema_(&schema), path_(std::move(path)) {}

  const OrderedJson& json() const { return *schema_; }
  const std::string& path() const { return path_; }

  /// Throws UnsupportedError for an unsupported keyword, InputError if this is no object.
  void check_keywords() const;
  bool has(const char* keyword) const { return schema_->contains(keyword); }
  /// The first keyword of a schema that restricts values and is not among `allowed`.
  std::optional<std::string> other_keyword(std::initializer_list<std::string_view> allowed) const;

  SchemaNode child(const char* keyword) const;
  SchemaNode child(const char* keyword, size_t index) const;

  /// The array at the keyword.
  const OrderedJson& array(const char* keyword) const;
  const OrderedJson& object(const char* keyword) const;
  std::string text(const char* keyword) const;
  bool boolean_or(const char* keyword, bool otherwise) const;
  /// A count. Above kRepeatMax: an error for a minimum, no limit for a maximum.
  int32_t count_min(const char* keyword) const;
  int32_t count_max(const char* keyword) const;
  /// The tighter one of the inclusive and the exclusive bound.
  std::optional<DecimalBound> bound(const char* inclusive, const char* exclusive,
                                    bool is_upper) const;
  /// The value of "multipleOf".
  std::optional<Decimal> divisor() const;
  /// The names in "type", or those that the keywords imply; empty: any type.
  std::vector<std::string> types() const;

  [[noreturn]] void reject(const char* keyword, const std::string& message) const;
  [[noreturn]] void reject_unsupported(const std::string& message) const;
  std::string place(const char* keyword) const;

 private:
  std::optional<int64_t> count(const char* keyword) const;
  DecimalBound one_bound(const char* keyword, bool is_exclusive, bool is_upper) const;

  const OrderedJson* schema_;
  std::string path_;
};

/// Whether a value has the schema's type.
bool has_type(const OrderedJson& value, std::string_view type);

/// `name` as a part of a JSON pointer (RFC 6901).
std::string pointer_part(std::string_view name);

}  // namespace halley
