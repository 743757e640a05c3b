#include "halley/checkpoint/tokenizer/component.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {

Component::Component(const Json& value, std::string where)
    : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) {
    throw InputError(str(where_, ": expected an object, got ", type_name_of(value), "."));
  }
}

std::string Component::where(const char* member) const { return str(where_, ".", member); }

void Component::fail(const char* member, const std::string& expected) const {
  const auto found = value_->find(member);
  std::string got = "nothing";
  if (found != value_->end()) {
    got = found->is_primitive() ? quote(found->dump(), 60) : std::string(type_name_of(*found));
  }
  throw InputError(str(where(member), ": expected ", expected, ", got ", got, "."));
}

const Json* Component::find(const char* member) const {
  const auto found = value_->find(member);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

const Json& Component::member(const char* member) const {
  const Json* found = find(member);
  if (found == nullptr) fail(member, "a value");
  return *found;
}

std::string Component::text(const char* member) const {
  const Json* found = find(member);
  if (found == nullptr || !found->is_string()) fail(member, "a string");
  return found->get<std::string>();
}

std::string Component::text_or(const char* member, const std::string& otherwise) const {
  return find(member) == nullptr ? otherwise : text(member);
}

bool Component::boolean(const char* member) const {
  const Json* found = find(member);
  if (found == nullptr || !found->is_boolean()) fail(member, "true or false");
  return found->get<bool>();
}

bool Component::boolean_or(const char* member, bool otherwise) const {
  return find(member) == nullptr ? otherwise : boolean(member);
}

int64_t Component::integer(const char* member, int64_t max) const {
  const Json* found = find(member);
  const bool is_fit = found != nullptr && found->is_number_unsigned() &&
                      found->get<uint64_t>() <= static_cast<uint64_t>(max);
  if (!is_fit) fail(member, str("an integer from 0 to ", max));
  return found->get<int64_t>();
}

uint32_t Component::character(const char* member) const {
  const std::string value = text(member);
  if (value.empty() || first_char(value).num_bytes != value.size()) {
    fail(member, "a string of one character");
  }
  return first_char(value).code;
}

const Json& Component::array(const char* member) const {
  const Json* found = find(member);
  if (found == nullptr || !found->is_array()) fail(member, "an array");
  return *found;
}

}  // namespace halley
