#include "halley/checkpoint/chat_template/text.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include <utf8proc.h>

#include "halley/checkpoint/chat_template/special_case.h"

namespace halley::jinja {
namespace {

utf8proc_category_t category_of(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool is_cased(uint32_t code_point) {
  const auto c = static_cast<utf8proc_int32_t>(code_point);
  const utf8proc_category_t category = category_of(code_point);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT || utf8proc_isupper(c) != 0 || utf8proc_islower(c) != 0;
}

void append_upper(std::string& out, uint32_t code_point) {
  if (const SpecialCase* special = find_special_case(code_point)) {
    out += special->upper;
    return;
  }
  append_code_point(
      out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point))));
}

void append_title(std::string& out, uint32_t code_point) {
  if (const SpecialCase* special = find_special_case(code_point)) {
    out += special->title;
    return;
  }
  append_code_point(
      out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code_point))));
}

// Start of the code point that ends before `end`.
size_t previous_position(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

// Whether the nearest letter in a direction is cased, where marks without case do not count.
bool cased_letter_before(std::string_view text, size_t end) {
  while (end > 0) {
    end = previous_position(text, end);
    size_t at = end;
    const uint32_t c = next_code_point(text, at);
    if (category_of(c) == UTF8PROC_CATEGORY_MN || c == '\'' || c == '.' || c == ':') continue;
    return is_cased(c);
  }
  return false;
}

bool cased_letter_after(std::string_view text, size_t at) {
  while (at < text.size()) {
    const uint32_t c = next_code_point(text, at);
    if (category_of(c) == UTF8PROC_CATEGORY_MN || c == '\'' || c == '.' || c == ':') continue;
    return is_cased(c);
  }
  return false;
}

// `begin` and `end` are the byte positions of the code point in `text`.
void append_lower(std::string& out, std::string_view text, size_t begin, size_t end) {
  constexpr uint32_t kCapitalSigma = 0x3A3;
  constexpr uint32_t kCapitalIWithDot = 0x130;
  size_t at = begin;
  const uint32_t c = next_code_point(text, at);
  if (c == kCapitalIWithDot) {
    out += "i\u0307";
  } else if (c == kCapitalSigma) {
    const bool is_final = cased_letter_before(text, begin) && !cased_letter_after(text, end);
    out += is_final ? "\u03C2" : "\u03C3";
  } else {
    append_code_point(out,
                      static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

template <typename IsStripped>
std::string_view strip_if(std::string_view text, Side side, IsStripped is_stripped) {
  if (side != Side::kRight) {
    size_t at = 0;
    while (at < text.size()) {
      size_t behind = at;
      if (!is_stripped(next_code_point(text, behind))) break;
      at = behind;
    }
    text.remove_prefix(at);
  }
  while (side != Side::kLeft && !text.empty()) {
    const size_t begin = previous_position(text, text.size());
    size_t at = begin;
    if (!is_stripped(next_code_point(text, at))) break;
    text = text.substr(0, begin);
  }
  return text;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &code_point);
    if (length <= 0) return at;
    at += static_cast<size_t>(length);
  }
  return std::string_view::npos;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

uint32_t next_code_point(std::string_view text, size_t& position) {
  const auto first = static_cast<uint8_t>(text[position]);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  uint32_t code_point = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length && position + i < text.size(); ++i) {
    code_point = (code_point << 6) | (static_cast<uint8_t>(text[position + i]) & 0x3Fu);
  }
  position = std::min(position + length, text.size());
  return code_point;
}

void append_code_point(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

size_t byte_position(std::string_view text, size_t index) {
  size_t at = 0;
  while (at < text.size()) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) != 0x80 && index-- == 0) return at;
    ++at;
  }
  return text.size();
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found =
      ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_text(std::string_view text, std::string_view needle) {
  const std::string text_reversed(text.rbegin(), text.rend());
  const std::string needle_reversed(needle.rbegin(), needle.rend());
  const size_t found = find_text(text_reversed, needle_reversed);
  return found == std::string_view::npos ? found : text.size() - found - needle.size();
}

bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_line_end(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_letter(uint32_t code_point) {
  const utf8proc_category_t category = category_of(code_point);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal_digit(uint32_t code_point) {
  return category_of(code_point) == UTF8PROC_CATEGORY_ND;
}

bool is_word(uint32_t code_point) {
  const utf8proc_category_t category = category_of(code_point);
  return is_letter(code_point) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) append_upper(out, next_code_point(text, at));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_code_point(text, at);
    append_lower(out, text, begin, at);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = next_code_point(text, at);
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, begin, at);
    }
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool is_inside_word = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = next_code_point(text, at);
    if (is_inside_word) {
      append_lower(out, text, begin, at);
    } else {
      append_title(out, c);
    }
    is_inside_word = is_cased(c);
  }
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = next_code_point(text, at);
    if (utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0) {
      append_lower(out, text, begin, at);
    } else if (utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0) {
      append_upper(out, c);
    } else {
      append_code_point(out, c);
    }
  }
  return out;
}

bool is_upper_text(std::string_view text) {
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    if (utf8proc_islower(c) != 0 || utf8proc_category(c) == UTF8PROC_CATEGORY_LT) return false;
    found = found || utf8proc_isupper(c) != 0;
  }
  return found;
}

bool is_lower_text(std::string_view text) {
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    if (utf8proc_isupper(c) != 0 || utf8proc_category(c) == UTF8PROC_CATEGORY_LT) return false;
    found = found || utf8proc_islower(c) != 0;
  }
  return found;
}

std::string_view strip_spaces(std::string_view text, Side side) {
  return strip_if(text, side, is_space);
}

std::string_view strip_characters(std::string_view text, std::string_view characters, Side side) {
  std::unordered_set<uint32_t> set;
  for (size_t at = 0; at < characters.size();) set.insert(next_code_point(characters, at));
  return strip_if(text, side, [&](uint32_t c) { return set.count(c) > 0; });
}

std::vector<std::string_view> split_lines(std::string_view text, bool keeps_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const uint32_t c = next_code_point(text, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keeps_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace halley::jinja
