// The values that a template computes with: Python's, as far as templates see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace halley::jinja {

/// For additions and multiplications of int64_t that must not overflow on the way.
__extension__ using Int128 = __int128;

/// A rendering or parsing that failed; its owner adds the place and throws InputError.
class TemplateFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Counts the bytes that live values and buffers of one rendering hold. Outlives all of them.
class Meter {
 public:
  explicit Meter(size_t bytes_max) : bytes_max_(bytes_max) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Throws TemplateFailure where the limit would be passed.
  void charge(size_t num_bytes);
  void release(size_t num_bytes) { bytes_ -= num_bytes; }

 private:
  size_t bytes_max_;
  size_t bytes_ = 0;
};

/// The heap part of a value. Contents never change after construction, except for the objects that
/// Python would mutate too (namespace, cycler, joiner, loop, generator).
class Payload {
 public:
  /// `meter` may be null: constants of the template are not counted.
  Payload(Meter* meter, size_t num_bytes, int depth);
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;
  virtual ~Payload();

  /// Levels of nesting: the destructor recurses that deep.
  int depth() const { return depth_; }

 private:
  Meter* meter_;
  size_t num_bytes_;
  int depth_;
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,       // dict.keys(), .values() and .items()
  kGenerator,  // what map, select and their like return: its items can be taken once
  kRange,
  kNamespace,
  kLoop,
  kMacro,
  kFunction,
  kMethod,
  kCycler,
  kJoiner,
};

/// Python's name of the type, for messages: "str", "NoneType".
const char* type_name_of(Kind kind);

/// Deepest nesting of values in values.
inline constexpr int kValueDepthMax = 200;

struct StringPayload;
struct ListPayload;
struct DictPayload;

/// One value, cheap to copy. A default-constructed one is undefined without a reason.
class Value {
 public:
  Value() = default;
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value object(Kind kind, std::shared_ptr<Payload> payload);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  /// A list or a tuple.
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  /// An integer in Python's sense, which includes True and False.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool as_bool() const { return integer_ != 0; }
  /// For integers and booleans.
  int64_t as_int() const { return integer_; }
  /// For any number.
  double as_double() const { return is_integral() ? static_cast<double>(integer_) : real_; }
  const std::string& text() const;
  const StringPayload& string() const;
  /// For kinds with a ListPayload: lists, tuples, views.
  const std::vector<Value>& items() const;
  const DictPayload& dict() const;
  template <typename T>
  T& get() const {
    return static_cast<T&>(*payload_);
  }
  const Payload* payload() const { return payload_.get(); }
  int depth() const { return payload_ ? payload_->depth() : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Payload> payload_;
};

using Members = std::vector<std::pair<Value, Value>>;

/// Why a value is undefined, and whether the sandbox made it so.
struct UndefinedPayload : Payload {
  UndefinedPayload(Meter* meter, std::string message_text);
  std::string message;
};

/// Valid UTF-8.
struct StringPayload : Payload {
  StringPayload(Meter* meter, std::string value);
  bool is_ascii() const { return num_code_points == text.size(); }
  std::string text;
  size_t num_code_points;
};

/// The name of the tuples (grouper, list) that the filter groupby gives.
inline constexpr const char* kGroupName = "group";

/// Lists, tuples and dictionary views. `name` is a view's type name, kGroupName, or null.
struct ListPayload : Payload {
  ListPayload(Meter* meter, std::vector<Value> values, const char* view_name = nullptr);
  std::vector<Value> items;
  const char* name;
};

/// Keeps the order in which keys were given first.
struct DictPayload : Payload {
  DictPayload(Meter* meter, Members values);
  /// The member with this string as its key, or null.
  const Value* find(std::string_view key) const;
  Members members;
  /// Positions by string key, only where a search would be long.
  std::unordered_map<std::string_view, size_t> index;
};

struct GeneratorPayload : Payload {
  GeneratorPayload(Meter* meter, std::vector<Value> values);
  std::vector<Value> items;
  size_t position = 0;
};

struct RangePayload : Payload {
  RangePayload(Meter* meter, int64_t start_value, int64_t stop_value, int64_t step_value);
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t num_items;
  int64_t at(int64_t index) const {
    return static_cast<int64_t>(start + static_cast<Int128>(index) * step);
  }
};

/// Lives until the rendering ends (the runtime holds it and clears it then), for it may hold
/// itself.
struct NamespacePayload : Payload {
  explicit NamespacePayload(Meter* meter);
  std::vector<std::pair<std::string, Value>> members;
  const Value* find(std::string_view name) const;
};

struct CyclerPayload : Payload {
  CyclerPayload(Meter* meter, std::vector<Value> values);
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerPayload : Payload {
  JoinerPayload(Meter* meter, Value separator_value);
  Value separator;
  bool is_used = false;
};

/// The variable `loop` of one for statement. Items that the statement's condition rejects are
/// skipped when the loop comes to them, for the condition may depend on what the body did.
struct LoopPayload : Payload {
  using Condition = std::function<bool(const Value& item)>;

  /// `accepts` may be empty: then every item of `values` is taken.
  LoopPayload(Meter* meter, std::vector<Value> values, Condition accepts_item);
  /// Looks ahead until there are `count` items. False where the loop has fewer.
  bool ensure(size_t count);

  std::vector<Value> items;  // those accepted so far
  std::vector<Value> source;
  size_t source_position = 0;
  Condition accepts;
  size_t index0 = 0;
  /// The arguments of the last call of changed(). The runtime empties it at the end, for it may
  /// lead back to this loop.
  std::shared_ptr<std::vector<Value>> last_changed;
};

/// Deepest of the values.
int depth_of(const std::vector<Value>& values);

}  // namespace halley::jinja
