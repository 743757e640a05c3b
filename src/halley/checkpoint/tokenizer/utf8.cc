#include "halley/checkpoint/tokenizer/utf8.h"

#include <utf8proc.h>

namespace halley {
namespace {

bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

utf8proc_category_t category_of(uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

// Number of bytes that this lead byte announces; 0 where no character starts with it.
size_t num_bytes_announced(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Overlong forms, surrogates and code points above U+10FFFF show in the second byte.
bool is_second_byte(uint8_t lead, uint8_t second) {
  if (!is_continuation(second)) return false;
  if (lead == 0xE0) return second >= 0xA0;
  if (lead == 0xED) return second < 0xA0;
  if (lead == 0xF0) return second >= 0x90;
  if (lead == 0xF4) return second < 0x90;
  return true;
}

}  // namespace

Utf8State utf8_state(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const size_t num_bytes = num_bytes_announced(at(0));
  if (num_bytes == 0) return Utf8State::kInvalid;
  if (num_bytes == 1) return Utf8State::kComplete;
  if (bytes.size() < 2) return Utf8State::kIncomplete;
  if (!is_second_byte(at(0), at(1))) return Utf8State::kInvalid;
  for (size_t i = 2; i < num_bytes; ++i) {
    if (i == bytes.size()) return Utf8State::kIncomplete;
    if (!is_continuation(at(i))) return Utf8State::kInvalid;
  }
  return Utf8State::kComplete;
}

bool is_valid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const uint8_t lead = static_cast<uint8_t>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (utf8_state(text.substr(i)) != Utf8State::kComplete) return false;
    i += num_bytes_announced(lead);
  }
  return true;
}

size_t last_char_begin(std::string_view text) {
  size_t i = text.size() - 1;
  while (i > 0 && is_continuation(static_cast<uint8_t>(text[i]))) --i;
  return i;
}

void append_utf8(std::string& text, uint32_t code) {
  const auto add = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6);
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

void LossyUtf8::push(std::string_view bytes, std::string& text) {
  for (const char c : bytes) {
    if (pending_.empty() && static_cast<uint8_t>(c) < 0x80) {
      text.push_back(c);
      continue;
    }
    pending_.push_back(c);
    const Utf8State state = utf8_state(pending_);
    if (state == Utf8State::kIncomplete) continue;
    if (state == Utf8State::kComplete) {
      text += pending_;
      pending_.clear();
      continue;
    }
    // The bytes before this one were the start of a character; this one may start another.
    text += kReplacementCharacter;
    const bool is_alone = pending_.size() == 1;
    pending_.clear();
    if (!is_alone) push(std::string_view(&c, 1), text);
  }
}

void LossyUtf8::finish(std::string& text) {
  if (!pending_.empty()) text += kReplacementCharacter;
  pending_.clear();
}

bool is_white_space(uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_numeric(uint32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(uint32_t code) {
  if (code < 0x80) {
    return (code >= 0x21 && code <= 0x2F) || (code >= 0x3A && code <= 0x40) ||
           (code >= 0x5B && code <= 0x60) || (code >= 0x7B && code <= 0x7E);
  }
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(uint32_t code) {
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(uint32_t code) { return category_of(code) == UTF8PROC_CATEGORY_MN; }

bool is_other(uint32_t code) {
  const auto category = category_of(code);
  return category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_CC;
}

void append_lower_case(std::string& text, uint32_t code) {
  if (code == 0x130) {  // the only character whose lower-case form has two
    text += "i\xCC\x87";
    return;
  }
  append_utf8(text, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

}  // namespace halley
