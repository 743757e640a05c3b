#include "halley/checkpoint/gguf/split_name.h"

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <system_error>

namespace halley {
namespace {

constexpr std::string_view kOf = "-of-", kExtension = ".gguf";
constexpr size_t kDigits = 5;

std::optional<int> five_digits(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != kDigits || error != std::errc() || end != text.data() + text.size() ||
      value < 1) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::optional<GgufSplitName> parse_gguf_split_name(std::string_view name) {
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits + kExtension.size();
  if (name.size() <= kTail || !name.ends_with(kExtension)) return std::nullopt;
  const std::string_view tail = name.substr(name.size() - kTail);
  const auto number = five_digits(tail.substr(1, kDigits));
  const auto count = five_digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  const bool has_separators = tail.front() == '-' && tail.substr(1 + kDigits, kOf.size()) == kOf;
  if (!has_separators || !number || !count || *number > *count) return std::nullopt;
  return GgufSplitName{.prefix = std::string(name.substr(0, name.size() - kTail)),
                       .number = *number,
                       .count = *count};
}

std::string gguf_split_name(const GgufSplitName& part) {
  char tail[32];
  std::snprintf(tail, sizeof(tail), "-%05d-of-%05d.gguf", part.number, part.count);
  return part.prefix + tail;
}

}  // namespace halley
