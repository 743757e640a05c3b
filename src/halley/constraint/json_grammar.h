// JSON texts (RFC 8259) as grammars, written as models write them.
//
// White space is bounded, so that a model cannot write blanks for ever. After '{', '[' and ',' and
// before '}' and ']' it is nothing, one space, or a line end with at most 20 spaces or tabs; after
// ':' nothing or one space; elsewhere nothing. Numbers have at most 18 digits a part and 2 in the
// exponent.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/constraint/grammar.h"
#include "halley/json/json.h"

namespace halley {

/// A member of an object; members have the order in which they are given.
struct JsonMember {
  std::string name;
  ExprId value = 0;
  bool is_required = false;
};

struct JsonArrayShape {
  std::vector<ExprId> first_items;  // by position
  std::optional<ExprId> items;      // later items; absent: none
  int32_t num_min = 0;
  int32_t num_max = kUnbounded;
};

/// Not thread-safe.
class JsonGrammar {
 public:
  /// Longest name of a declared member in an object with additional members.
  static constexpr size_t kNameBytesMax = 512;

  explicit JsonGrammar(GrammarBuilder& builder) : builder_(builder) {}

  GrammarBuilder& builder() { return builder_; }

  ExprId any_value();
  ExprId any_object();
  ExprId null() { return builder_.text("null"); }
  ExprId boolean() { return builder_.choice({builder_.text("true"), builder_.text("false")}); }
  ExprId number();
  /// Characters are Unicode characters; an escape is one.
  ExprId string(int32_t num_chars_min, int32_t num_chars_max);
  /// A string whose content matches `content`, encoded as in a JSON string.
  ExprId quoted(ExprId content);
  /// Exactly this value, with optional white space.
  ExprId literal(const OrderedJson& value);
  ExprId array(const JsonArrayShape& shape);
  /// Names are different. With `additional`, members with other names and these values may
  /// follow the declared ones; such a name has no escapes. (Without declared members it may have.)
  ExprId object(std::span<const JsonMember> members, std::optional<ExprId> additional);
  /// num_min to num_max members with such names (JSON strings) and values; a name may occur twice.
  /// num_min <= num_max.
  ExprId map(ExprId name, ExprId value, int32_t num_min, int32_t num_max);
  /// White space after '{', '[' and ','.
  ExprId space();

 private:
  ExprId member(ExprId name, ExprId value);
  ExprId literal_object(const OrderedJson& value);
  ExprId plain_char_but(const std::u32string& taken);
  ExprId other_name(std::span<const JsonMember> members);
  ExprId other_name_from(std::span<const std::u32string> names, size_t num_shared);
  ExprId any_char();
  ExprId plain_text();

  GrammarBuilder& builder_;
  std::optional<ExprId> space_;
  std::optional<ExprId> char_;
  std::optional<ExprId> number_;
  std::optional<ExprId> plain_text_;
  std::optional<ExprId> any_value_;
  std::optional<ExprId> any_object_;
  std::map<std::u32string, ExprId> plain_chars_but_;
};

}  // namespace halley
