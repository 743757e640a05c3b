// Reading the members of a tokenizer.json component ("normalizer", "decoder", ...), with messages
// that name the place.
#pragma once

#include <cstdint>
#include <string>

#include "halley/json/json.h"

namespace halley {

/// One JSON object of the file and where it stands: "tokenizer.json:
/// pre_tokenizer.pretokenizers[0]".
class Component {
 public:
  /// Throws InputError where `value` is no object. `value` must outlive this.
  Component(const Json& value, std::string where);

  const std::string& where() const { return where_; }
  const Json& json() const { return *value_; }
  std::string where(const char* member) const;

  /// The member "type".
  std::string type() const { return text("type"); }
  /// Null where the member is missing or null.
  const Json* find(const char* member) const;
  const Json& member(const char* member) const;

  std::string text(const char* member) const;
  std::string text_or(const char* member, const std::string& otherwise) const;
  bool boolean(const char* member) const;
  bool boolean_or(const char* member, bool otherwise) const;
  /// An integer in [0, max].
  int64_t integer(const char* member, int64_t max) const;
  /// A text of exactly one character, as its code.
  uint32_t character(const char* member) const;
  const Json& array(const char* member) const;

  /// For a member that is missing or of the wrong kind.
  [[noreturn]] void fail(const char* member, const std::string& expected) const;

 private:
  const Json* value_;
  std::string where_;
};

}  // namespace halley
