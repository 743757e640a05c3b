#include "halley/checkpoint/chat_template/runtime.h"

#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/scope.h"

namespace halley::jinja {

const Value* Scope::find(std::string_view name, size_t& num_compared) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->variables) {
      ++num_compared;
      if (key == name) return &value;
    }
  }
  return nullptr;
}

Runtime::Runtime(const TemplateLimits& limits, const TemplateClock& clock)
    : limits_(limits), clock_(clock), meter_(limits.memory_bytes_max) {}

Runtime::~Runtime() {
  // Each is emptied while all are still held, so that no destructor runs down a chain of them.
  for (auto& space : namespaces_) space->members.clear();
  for (auto& values : values_) values->clear();
  for (auto& scope : scopes_) scope->variables.clear();
}

const Value* Runtime::find_variable(const Scope& scope, std::string_view name) {
  constexpr size_t kNamesPerStep = 8;
  size_t num_compared = 0;
  const Value* value = scope.find(name, num_compared);
  step(num_compared / kNamesPerStep);
  return value;
}

void Runtime::set_variable(Scope& scope, const std::string& name, Value value) {
  for (auto& [key, old] : scope.variables) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  step(1 + scope.variables.size());
  scope.variables.emplace_back(name, std::move(value));
}

void Runtime::step(size_t num_steps) {
  num_steps_ += num_steps;
  if (num_steps_ > limits_.num_steps_max) {
    fail("the rendering takes more than the limit of ", limits_.num_steps_max, " steps");
  }
}

void Runtime::check_string_size(size_t num_bytes) const {
  if (num_bytes > limits_.output_bytes_max) {
    fail("a string of ", num_bytes, " bytes is over the limit of ", limits_.output_bytes_max);
  }
}

void Runtime::check_num_items(size_t num_items) const {
  const size_t num_items_max = limits_.output_bytes_max / sizeof(Value);
  if (num_items > num_items_max) {
    fail("a list of ", num_items, " items is over the limit of ", num_items_max);
  }
}

Value Runtime::string(std::string text) {
  check_string_size(text.size());
  step_bytes(text.size());
  return Value::object(Kind::kString, std::make_shared<StringPayload>(&meter_, std::move(text)));
}

Value Runtime::list(std::vector<Value> items) {
  check_num_items(items.size());
  step_bytes(items.size() * sizeof(Value));
  return Value::object(Kind::kList, std::make_shared<ListPayload>(&meter_, std::move(items)));
}

Value Runtime::tuple(std::vector<Value> items) {
  check_num_items(items.size());
  step_bytes(items.size() * sizeof(Value));
  return Value::object(Kind::kTuple, std::make_shared<ListPayload>(&meter_, std::move(items)));
}

Value Runtime::pair(Value first, Value second) {
  std::vector<Value> items;
  items.push_back(std::move(first));
  items.push_back(std::move(second));
  return tuple(std::move(items));
}

Value Runtime::dict(Members members) {
  check_num_items(members.size() * 2);
  Members unique;
  std::unordered_map<std::string_view, size_t> strings;
  std::vector<size_t> others;
  for (auto& [key, value] : members) {
    step();
    Value* same = nullptr;
    if (key.is_string()) {
      const auto [it, is_first] = strings.emplace(key.text(), unique.size());
      if (!is_first) same = &unique[it->second].second;
    } else {
      check_hashable(*this, key);
      for (const size_t i : others) {
        if (equals(*this, unique[i].first, key)) same = &unique[i].second;
      }
      if (same == nullptr) others.push_back(unique.size());
    }
    if (same != nullptr) {
      *same = std::move(value);
    } else {
      unique.emplace_back(std::move(key), std::move(value));
    }
  }
  return Value::object(Kind::kDict, std::make_shared<DictPayload>(&meter_, std::move(unique)));
}

Value Runtime::view(std::vector<Value> items, const char* name) {
  check_num_items(items.size());
  step_bytes(items.size() * sizeof(Value));
  return Value::object(Kind::kView, std::make_shared<ListPayload>(&meter_, std::move(items), name));
}

Value Runtime::generator(std::vector<Value> items) {
  check_num_items(items.size());
  step_bytes(items.size() * sizeof(Value));
  return Value::object(Kind::kGenerator,
                       std::make_shared<GeneratorPayload>(&meter_, std::move(items)));
}

Value Runtime::range(int64_t start, int64_t stop, int64_t step_value) {
  constexpr int64_t kRangeItemsMax = 100'000;  // Jinja's sandbox has the same limit
  auto payload = std::make_shared<RangePayload>(&meter_, start, stop, step_value);
  if (payload->num_items > kRangeItemsMax) {
    fail("Range too big. The sandbox blocks ranges larger than ", kRangeItemsMax, " items");
  }
  return Value::object(Kind::kRange, std::move(payload));
}

Value Runtime::undefined(std::string message) {
  return Value::object(Kind::kUndefined,
                       std::make_shared<UndefinedPayload>(&meter_, std::move(message)));
}

Value Runtime::make_namespace() {
  auto payload = std::make_shared<NamespacePayload>(&meter_);
  meter_.charge(sizeof(payload));
  namespaces_.push_back(payload);
  return Value::object(Kind::kNamespace, std::move(payload));
}

void Runtime::set_attribute(NamespacePayload& target, const std::string& name, Value value) {
  if (!name.empty() && name[0] == '_') {
    fail("a namespace cannot have the attribute ", quote(name),
         ": names that start with an underscore are rejected");
  }
  for (auto& [key, old] : target.members) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  // Never given back: namespaces live as long as the rendering.
  meter_.charge(sizeof(target.members[0]) + name.size());
  step(1 + target.members.size());
  target.members.emplace_back(name, std::move(value));
}

void Runtime::keep(std::shared_ptr<Scope> scope) {
  while (scope != nullptr && !scope->is_kept) {
    scope->is_kept = true;
    meter_.charge(sizeof(Scope) + sizeof(scope));
    scopes_.push_back(scope);
    scope = scopes_.back()->parent;
  }
}

void OutputBuffer::append(std::string_view text) {
  const size_t num_bytes = text_.size() + text.size();
  if (num_bytes > runtime_.limits().output_bytes_max) {
    fail("the output is over the limit of ", runtime_.limits().output_bytes_max, " bytes");
  }
  runtime_.meter().charge(text.size());
  runtime_.step_bytes(text.size());
  text_ += text;
}

}  // namespace halley::jinja
