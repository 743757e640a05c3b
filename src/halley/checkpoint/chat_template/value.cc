#include "halley/checkpoint/chat_template/value.h"

#include <algorithm>

#include "halley/base/str.h"
#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {
namespace {

constexpr size_t kIndexedMembersMin = 9;  // below, a search is as quick as a hash

int depth_of_members(const Members& members) {
  int depth = 0;
  for (const auto& [key, value] : members) {
    depth = std::max({depth, key.depth(), value.depth()});
  }
  return depth;
}

}  // namespace

void Meter::charge(size_t num_bytes) {
  if (num_bytes > bytes_max_ - bytes_) {
    throw TemplateFailure(str("the values of this rendering take more than the limit of ",
                              bytes_max_, " bytes of memory"));
  }
  bytes_ += num_bytes;
}

Payload::Payload(Meter* meter, size_t num_bytes, int depth)
    : meter_(meter), num_bytes_(num_bytes), depth_(depth) {
  if (depth > kValueDepthMax) {
    throw TemplateFailure(str("a value is nested deeper than ", kValueDepthMax, " levels"));
  }
  if (meter_ != nullptr) meter_->charge(num_bytes_);
}

Payload::~Payload() {
  if (meter_ != nullptr) meter_->release(num_bytes_);
}

const char* type_name_of(Kind kind) {
  switch (kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return "dict view";
    case Kind::kGenerator:
      return "generator";
    case Kind::kRange:
      return "range";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

Value Value::boolean(bool value) {
  Value result(Kind::kBool);
  result.integer_ = value ? 1 : 0;
  return result;
}

Value Value::integer(int64_t value) {
  Value result(Kind::kInt);
  result.integer_ = value;
  return result;
}

Value Value::real(double value) {
  Value result(Kind::kFloat);
  result.real_ = value;
  return result;
}

Value Value::object(Kind kind, std::shared_ptr<Payload> payload) {
  Value result(kind);
  result.payload_ = std::move(payload);
  return result;
}

const StringPayload& Value::string() const { return get<StringPayload>(); }
const std::string& Value::text() const { return get<StringPayload>().text; }
const std::vector<Value>& Value::items() const { return get<ListPayload>().items; }
const DictPayload& Value::dict() const { return get<DictPayload>(); }

int depth_of(const std::vector<Value>& values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, value.depth());
  return depth;
}

UndefinedPayload::UndefinedPayload(Meter* meter, std::string message_text)
    : Payload(meter, sizeof(UndefinedPayload) + message_text.size(), 0),
      message(std::move(message_text)) {}

StringPayload::StringPayload(Meter* meter, std::string value)
    : Payload(meter, sizeof(StringPayload) + value.size(), 0),
      text(std::move(value)),
      num_code_points(count_code_points(text)) {}

ListPayload::ListPayload(Meter* meter, std::vector<Value> values, const char* view_name)
    : Payload(meter, sizeof(ListPayload) + values.size() * sizeof(Value), 1 + depth_of(values)),
      items(std::move(values)),
      name(view_name) {}

DictPayload::DictPayload(Meter* meter, Members values)
    : Payload(meter, sizeof(DictPayload) + values.size() * (2 * sizeof(Value) + 64),
              1 + depth_of_members(values)),
      members(std::move(values)) {
  if (members.size() < kIndexedMembersMin) return;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].first.is_string()) index.emplace(members[i].first.text(), i);
  }
}

const Value* DictPayload::find(std::string_view key) const {
  if (members.size() >= kIndexedMembersMin) {
    const auto it = index.find(key);
    return it == index.end() ? nullptr : &members[it->second].second;
  }
  for (const auto& [name, value] : members) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

GeneratorPayload::GeneratorPayload(Meter* meter, std::vector<Value> values)
    : Payload(meter, sizeof(GeneratorPayload) + values.size() * sizeof(Value),
              1 + depth_of(values)),
      items(std::move(values)) {}

RangePayload::RangePayload(Meter* meter, int64_t start_value, int64_t stop_value,
                           int64_t step_value)
    : Payload(meter, sizeof(RangePayload), 0),
      start(start_value),
      stop(stop_value),
      step(step_value),
      num_items(0) {
  // In 128 bits: stop - start may not fit 64.
  const Int128 distance = static_cast<Int128>(stop) - start;
  if ((step > 0 && distance > 0) || (step < 0 && distance < 0)) {
    const Int128 count = (distance + step - (step > 0 ? 1 : -1)) / step;
    num_items = count > INT64_MAX ? INT64_MAX : static_cast<int64_t>(count);
  }
}

NamespacePayload::NamespacePayload(Meter* meter) : Payload(meter, sizeof(NamespacePayload), 0) {}

const Value* NamespacePayload::find(std::string_view name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

CyclerPayload::CyclerPayload(Meter* meter, std::vector<Value> values)
    : Payload(meter, sizeof(CyclerPayload) + values.size() * sizeof(Value), 1 + depth_of(values)),
      items(std::move(values)) {}

JoinerPayload::JoinerPayload(Meter* meter, Value separator_value)
    : Payload(meter, sizeof(JoinerPayload), 1 + separator_value.depth()),
      separator(std::move(separator_value)) {}

LoopPayload::LoopPayload(Meter* meter, std::vector<Value> values, Condition accepts_item)
    : Payload(meter, sizeof(LoopPayload) + values.size() * (accepts_item ? 2 : 1) * sizeof(Value),
              1 + depth_of(values)),
      source(std::move(values)),
      accepts(std::move(accepts_item)) {
  if (accepts) return;
  items = std::move(source);
  source.clear();
}

bool LoopPayload::ensure(size_t count) {
  while (items.size() < count && source_position < source.size()) {
    const Value& item = source[source_position++];
    if (!accepts || accepts(item)) items.push_back(item);
  }
  return items.size() >= count;
}

}  // namespace halley::jinja
