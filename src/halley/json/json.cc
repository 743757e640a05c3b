#include "halley/json/json.h"

#include <string>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr size_t kOrderedMembersMax = 10'000;  // ordered_json searches linearly

// Builds the document while the parser runs, so that limits and duplicate keys stop it at once.
template <typename BasicJson>
class Builder : public nlohmann::json_sax<BasicJson> {
 public:
  using Base = nlohmann::json_sax<BasicJson>;
  using typename Base::binary_t;
  using typename Base::number_float_t;
  using typename Base::number_integer_t;
  using typename Base::number_unsigned_t;
  using typename Base::string_t;

  Builder(std::string where, const JsonLimits& limits)
      : where_(std::move(where)), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*num_members*/) override { return open(BasicJson::object()); }
  bool start_array(size_t /*num_elements*/) override { return open(BasicJson::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    count();
    BasicJson& object = open_.back().value;
    const auto [member, is_added] = object.emplace(value, nullptr);
    if (!is_added) {
      throw InputError(str(where_, ": duplicate key ", quote(value), " in a JSON object."));
    }
    if constexpr (std::is_same_v<BasicJson, OrderedJson>) {
      if (object.size() > kOrderedMembersMax) {
        throw InputError(str(where_, ": expected at most ", kOrderedMembersMax,
                             " members in a JSON object, got more."));
      }
    }
    // Stays in place: no member is added to this object before the value of this one is there.
    open_.back().member = &*member;
    return true;
  }

  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    // The library's text repeats the position; what follows the last ": " says what was expected.
    std::string reason = error.what();
    const size_t start = reason.find("syntax error");
    reason = start == std::string::npos ? std::string("syntax error") : reason.substr(start);
    throw InputError(str(where_, ": not valid JSON at byte ", position, ": ", quote(reason, 160),
                         ", last read ", quote(last_token, 40), "."));
  }

  BasicJson take() { return std::move(root_); }

 private:
  struct Open {
    BasicJson value;
    BasicJson* member = nullptr;  // of an object: the one whose value comes next
  };

  void count() {
    if (++num_values_ > limits_.num_values_max) {
      throw InputError(
          str(where_, ": expected at most ", limits_.num_values_max, " JSON values, got more."));
    }
  }

  bool open(BasicJson&& value) {
    count();
    if (static_cast<int>(open_.size()) >= limits_.depth_max) {
      throw InputError(str(where_, ": JSON nested deeper than ", limits_.depth_max, " levels."));
    }
    open_.push_back({std::move(value)});
    return true;
  }

  bool close() {
    BasicJson value = std::move(open_.back().value);
    open_.pop_back();
    place(std::move(value));
    return true;
  }

  bool add(BasicJson value) {
    count();
    place(std::move(value));
    return true;
  }

  void place(BasicJson&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.push_back(std::move(value));
    } else {
      *open_.back().member = std::move(value);
    }
  }

  std::string where_;
  JsonLimits limits_;
  size_t num_values_ = 0;
  std::vector<Open> open_;
  BasicJson root_;
};

template <typename BasicJson>
BasicJson parse(std::string_view text, const std::string& where, const JsonLimits& limits) {
  // The library takes a NUL for the end of the text and would let anything pass behind it.
  if (const size_t position = text.find('\0'); position != std::string_view::npos) {
    throw InputError(str(where, ": not valid JSON at byte ", position + 1, ": a NUL byte."));
  }
  Builder<BasicJson> builder(where, limits);
  BasicJson::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  return parse<Json>(text, where, limits);
}

OrderedJson parse_ordered_json(std::string_view text, const std::string& where,
                               const JsonLimits& limits) {
  return parse<OrderedJson>(text, where, limits);
}

const char* type_name_of(const Json& value) { return value.type_name(); }

}  // namespace halley
