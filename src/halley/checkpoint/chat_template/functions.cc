// The functions that every template may call.
#include <array>
#include <ctime>

#include <locale.h>

#include "halley/checkpoint/chat_template/builtin_tables.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {
namespace {

Value make_range(Runtime& runtime, const Value& /*self*/, Call& call) {
  for (size_t i = 0; i < 3; ++i) {
    if (!call.was_given(i)) continue;
    check_defined(call.get(i));
    if (!call.get(i).is_integral()) {
      fail("'", type_name_of(call.get(i).kind()), "' object cannot be interpreted as an integer");
    }
  }
  const int64_t first = call.get(0).as_int();
  if (!call.was_given(1)) return runtime.range(0, first, 1);
  const int64_t step = call.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  return runtime.range(first, call.get(1).as_int(), step);
}

// dict(...) holds the members of a mapping or pairs, then the keyword arguments.
Members members_of(Runtime& runtime, Call& call) {
  Members members;
  if (call.arguments().positional.size() > 1) {
    fail(call.function(), "() expected at most 1 positional argument");
  }
  for (const Value& source : call.arguments().positional) {
    check_defined(source);
    if (source.is_dict()) {
      members = source.dict().members;
      continue;
    }
    for (const Value& item : items_of(runtime, source)) {
      std::vector<Value> pair = items_of(runtime, item);
      if (pair.size() != 2) fail("a dictionary needs pairs of a key and a value");
      members.emplace_back(std::move(pair[0]), std::move(pair[1]));
    }
  }
  for (auto& [name, value] : call.arguments().keyword) {
    members.emplace_back(runtime.string(name), std::move(value));
  }
  return members;
}

Value make_dict(Runtime& runtime, const Value& /*self*/, Call& call) {
  return runtime.dict(members_of(runtime, call));
}

Value make_namespace(Runtime& runtime, const Value& /*self*/, Call& call) {
  const Value dict = runtime.dict(members_of(runtime, call));
  Value space = runtime.make_namespace();
  for (const auto& [key, value] : dict.dict().members) {
    if (!key.is_string()) fail("attributes of a namespace must be strings");
    runtime.set_attribute(space.get<NamespacePayload>(), key.text(), value);
  }
  return space;
}

Value make_cycler(Runtime& runtime, const Value& /*self*/, Call& call) {
  if (call.arguments().positional.empty()) fail("at least one item has to be provided");
  return Value::object(
      Kind::kCycler,
      std::make_shared<CyclerPayload>(&runtime.meter(), std::move(call.arguments().positional)));
}

Value make_joiner(Runtime& runtime, const Value& /*self*/, Call& call) {
  Value separator = call.was_given(0) ? call.get(0) : runtime.string(", ");
  return Value::object(Kind::kJoiner,
                       std::make_shared<JoinerPayload>(&runtime.meter(), std::move(separator)));
}

Value raise_exception(Runtime& runtime, const Value& /*self*/, Call& call) {
  fail(to_text(runtime, call.get(0)));
}

// One conversion of strftime, in the C locale.
std::string format_time(const std::tm& time, const std::string& conversion) {
  static const locale_t kCLocale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  std::array<char, 128> buffer{};
  const size_t size =
      ::strftime_l(buffer.data(), buffer.size(), conversion.c_str(), &time, kCLocale);
  return {buffer.data(), size};
}

Value strftime_now(Runtime& runtime, const Value& /*self*/, Call& call) {
  constexpr std::string_view kConversions = "aAbBcCdDeFgGhHIjmMnpPrRStTuUVwWxXyY%";
  const std::string& format = call.text(0);
  const std::tm now = runtime.now();
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    runtime.step();
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    std::string conversion = "%";
    if (i + 1 < format.size() && format[i + 1] == '-') conversion += format[++i];  // no padding
    const char letter = i + 1 < format.size() ? format[++i] : '\0';
    if (letter == 'z' || letter == 'Z') continue;  // Python prints none for a time without zone
    if (letter == '\0' || kConversions.find(letter) == std::string_view::npos) {
      fail("strftime_now() does not support the conversion ", quote(conversion + letter));
    }
    out += format_time(now, conversion + letter);
    runtime.check_string_size(out.size());
  }
  return runtime.string(std::move(out));
}

constexpr Builtin kFunctions[] = {
    {"range", "start stop step", 1, make_range}, {"dict", "*", 0, make_dict},
    {"namespace", "*", 0, make_namespace},       {"cycler", "*", 0, make_cycler},
    {"joiner", "sep", 0, make_joiner},           {"raise_exception", "message", 1, raise_exception},
    {"strftime_now", "format", 1, strftime_now},
};

}  // namespace

std::span<const Builtin> functions() { return kFunctions; }

}  // namespace halley::jinja
