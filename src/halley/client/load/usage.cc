#include "halley/client/load/usage.h"

#include <algorithm>
#include <string_view>

namespace halley {
namespace {

constexpr int64_t kCountMax = int64_t{1} << 32;
constexpr size_t kPrecisionsMax = 8, kNameBytesMax = 32;

std::optional<int64_t> count_of(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto count = value.get<int64_t>();  // above INT64_MAX it wraps to a negative value
  if (count < 0 || count > kCountMax) return std::nullopt;
  return count;
}

std::optional<int64_t> count_of(const Json& object, const char* name) {
  const auto value = object.find(name);
  return value == object.end() ? std::nullopt : count_of(*value);
}

// Names are printed: nothing else of them may reach a terminal.
bool is_name(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= kNameBytesMax && std::ranges::all_of(text, is_plain);
}

}  // namespace

Usage read_usage(const Json& usage) {
  Usage result;
  if (!usage.is_object()) return result;
  result.prompt_tokens = count_of(usage, "prompt_tokens");
  result.completion_tokens = count_of(usage, "completion_tokens");
  const auto details = usage.find("completion_tokens_details");
  if (details == usage.end() || !details->is_object()) return result;
  const auto precisions = details->find("precision");
  if (precisions == details->end() || !precisions->is_object()) return result;
  for (const auto& [name, value] : precisions->items()) {
    const auto count = count_of(value);
    if (!count || !is_name(name)) continue;
    if (result.precision_tokens.size() == kPrecisionsMax) break;
    result.precision_tokens.emplace(name, *count);
  }
  return result;
}

}  // namespace halley
