// The state of one rendering: its limits, their use so far, and the makers of values.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/base/str.h"
#include "halley/checkpoint/chat_template/template_limits.h"
#include "halley/checkpoint/chat_template/value.h"

namespace halley::jinja {

struct Scope;

/// Throws TemplateFailure with the joined message.
template <typename... Args>
[[noreturn]] void fail(const Args&... args) {
  throw TemplateFailure(str(args...));
}

class Runtime {
 public:
  Runtime(const TemplateLimits& limits, const TemplateClock& clock);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  /// Takes apart what may lead back to itself.
  ~Runtime();

  /// Counts work. Throws TemplateFailure where the limit is passed.
  void step(size_t num_steps = 1);
  /// Counts work that grows with a number of bytes.
  void step_bytes(size_t num_bytes) { step(1 + num_bytes / kBytesPerStep); }
  /// Variables of a scope and those around it, counting the search.
  const Value* find_variable(const Scope& scope, std::string_view name);
  void set_variable(Scope& scope, const std::string& name, Value value);
  /// Throws where a string of that many bytes may not be made. Before making it.
  void check_string_size(size_t num_bytes) const;
  /// The same for a list.
  void check_num_items(size_t num_items) const;

  Value string(std::string text);
  Value string(std::string_view text) { return string(std::string(text)); }
  Value string(const char* text) { return string(std::string(text)); }
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value pair(Value first, Value second);
  /// Later members replace earlier ones of the same key. Throws where a key is not hashable.
  Value dict(Members members);
  Value view(std::vector<Value> items, const char* name);
  Value generator(std::vector<Value> items);
  Value range(int64_t start, int64_t stop, int64_t step_value);
  Value undefined(std::string message);
  Value make_namespace();
  /// Sets an attribute of a namespace; counts what it takes.
  void set_attribute(NamespacePayload& target, const std::string& name, Value value);

  void keep(std::shared_ptr<Scope> scope);
  void keep(std::shared_ptr<std::vector<Value>> values) { values_.push_back(std::move(values)); }

  Meter& meter() { return meter_; }
  const TemplateLimits& limits() const { return limits_; }
  std::tm now() const { return clock_(); }

  /// Line of the template that is being evaluated, for messages.
  int line = 1;
  /// Evaluations inside evaluations, over all macro calls.
  int num_frames = 0;
  /// Macro calls inside macro calls.
  int num_calls = 0;

 private:
  static constexpr size_t kBytesPerStep = 64;

  TemplateLimits limits_;
  const TemplateClock& clock_;
  Meter meter_;
  size_t num_steps_ = 0;
  std::vector<std::shared_ptr<NamespacePayload>> namespaces_;
  std::vector<std::shared_ptr<Scope>> scopes_;
  std::vector<std::shared_ptr<std::vector<Value>>> values_;
};

/// Text that grows within the limits, and gives its memory back at its end.
class OutputBuffer {
 public:
  explicit OutputBuffer(Runtime& runtime) : runtime_(runtime) {}
  OutputBuffer(const OutputBuffer&) = delete;
  OutputBuffer& operator=(const OutputBuffer&) = delete;
  ~OutputBuffer() { runtime_.meter().release(text_.size()); }

  void append(std::string_view text);
  const std::string& text() const { return text_; }

 private:
  Runtime& runtime_;
  std::string text_;
};

}  // namespace halley::jinja
