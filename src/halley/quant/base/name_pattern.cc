#include "halley/quant/base/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <cstdint>
#include <new>

#include <pcre2.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

// Names have up to some hundred bytes; patterns in use need a few steps a byte.
constexpr uint32_t kMatchLimit = 100'000;
constexpr uint32_t kHeapLimitKib = 1024;
constexpr size_t kExpressionBytesMax = 4096;

std::string error_text(int error_code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error_code, text, sizeof(text)) < 0) {
    return str("error ", error_code);
  }
  return reinterpret_cast<const char*>(text);
}

/// The regular expression of a glob: `*` and `?` translated, everything else quoted.
std::string expression_of_glob(std::string_view text) {
  std::string expression;
  for (const char c : text) {
    if (c == '*') {
      expression += ".*";
    } else if (c == '?') {
      expression += '.';
    } else {
      const bool is_word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                           (c >= 'a' && c <= 'z') || c == '_' || (c & 0x80) != 0;
      if (!is_word) expression += '\\';
      expression += c;
    }
  }
  return expression + "\\z";
}

}  // namespace

void NamePattern::compile(const std::string& expression) {
  if (expression.size() > kExpressionBytesMax) {
    throw InputError(str(where_, ": expected a pattern of at most ", kExpressionBytesMax,
                         " bytes, got ", expression.size(), ". Write a shorter one."));
  }
  int error_code = 0;
  size_t error_offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                    PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error_code, &error_offset, nullptr);
  if (code == nullptr) {
    throw InputError(str(where_, ": expected a regular expression, got ", quote(text_), ": ",
                         error_text(error_code), " at byte ", error_offset, ". Correct it."));
  }
  code_ = std::shared_ptr<void>(
      code, [](void* pointer) { pcre2_code_free(static_cast<pcre2_code*>(pointer)); });
}

NamePattern NamePattern::regex(const std::string& expression, const std::string& where) {
  NamePattern pattern(expression, where);
  pattern.compile(expression);
  return pattern;
}

NamePattern NamePattern::glob(std::string_view text, const std::string& where) {
  NamePattern pattern(std::string(text), where);
  pattern.compile(expression_of_glob(text));
  return pattern;
}

NamePattern NamePattern::exact(std::string name) { return {std::move(name), ""}; }

NamePattern NamePattern::parse(const std::string& text, const std::string& where) {
  constexpr std::string_view kRegexMark = "re:";
  if (text.starts_with(kRegexMark)) {
    NamePattern pattern(text, where);
    pattern.compile(text.substr(kRegexMark.size()));
    return pattern;
  }
  if (text.find_first_of("*?") != std::string::npos) return glob(text, where);
  return exact(text);
}

bool NamePattern::matches(std::string_view name) const {
  if (code_ == nullptr) return name == text_;
  const auto free_data = [](pcre2_match_data* data) { pcre2_match_data_free(data); };
  const auto free_context = [](pcre2_match_context* context) { pcre2_match_context_free(context); };
  const std::unique_ptr<pcre2_match_data, decltype(free_data)> data(
      pcre2_match_data_create(1, nullptr), free_data);
  const std::unique_ptr<pcre2_match_context, decltype(free_context)> context(
      pcre2_match_context_create(nullptr), free_context);
  if (data == nullptr || context == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_depth_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  const int result = pcre2_match(static_cast<const pcre2_code*>(code_.get()),
                                 reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                 data.get(), context.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    throw InputError(str(where_, ": expected a pattern that is decided in ", kMatchLimit,
                         " steps, got ", quote(text_), " on ", quote(name), ": ",
                         error_text(result), ". Write a simpler one."));
  }
  return true;
}

}  // namespace halley
