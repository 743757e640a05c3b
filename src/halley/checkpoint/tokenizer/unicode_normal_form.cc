#include "halley/checkpoint/tokenizer/unicode_normal_form.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include <utf8proc.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

// Below these characters the form changes nothing and nothing composes.
uint8_t first_lead_that_may_change(NormalForm form) {
  return form == NormalForm::kNfc ? 0xCC : 0x80;  // U+0300, U+0080
}

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  const bool is_composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= is_composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  const uint8_t lead = first_lead_that_may_change(form);
  if (std::all_of(text.begin(), text.end(),
                  [&](char c) { return static_cast<uint8_t>(c) < lead; })) {
    return std::string(text);
  }
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t num_bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (num_bytes == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (num_bytes < 0) {
    throw InputError(str("Unicode normalization of ", text.size(),
                         " bytes: ", utf8proc_errmsg(num_bytes), ". Use a shorter text."));
  }
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(num_bytes));
}

}  // namespace halley
