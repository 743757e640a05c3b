#include "halley/checkpoint/chat_template/json_value.h"

#include <cstdint>

#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {
namespace {

Value string_value(Runtime& runtime, const std::string& text) {
  if (find_invalid_utf8(text) != std::string_view::npos) {
    fail("the context has the text ", quote(text), ", which is not valid UTF-8");
  }
  return runtime.string(text);
}

Value convert(Runtime& runtime, const OrderedJson& json, int depth) {
  if (depth > kValueDepthMax) fail("the context is nested deeper than ", kValueDepthMax, " levels");
  runtime.step();
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return Value::none();
    case OrderedJson::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value > INT64_MAX)
        fail("the context's number ", value, " does not fit 64 bits with sign");
      return Value::integer(static_cast<int64_t>(value));
    }
    case OrderedJson::value_t::number_float:
      return Value::real(json.get<double>());
    case OrderedJson::value_t::string:
      return string_value(runtime, json.get_ref<const std::string&>());
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const OrderedJson& item : json) items.push_back(convert(runtime, item, depth + 1));
      return runtime.list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      Members members;
      for (auto it = json.begin(); it != json.end(); ++it) {
        members.emplace_back(string_value(runtime, it.key()), convert(runtime, *it, depth + 1));
      }
      return runtime.dict(std::move(members));
    }
    default:
      fail("the context holds a value that is not JSON");
  }
}

}  // namespace

Value from_json(Runtime& runtime, const OrderedJson& json) { return convert(runtime, json, 1); }

}  // namespace halley::jinja
