#include "halley/checkpoint/tokenizer/pcre.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <chrono>
#include <cstdint>
#include <new>

#include <pcre2.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

// Backtracking steps of one match. Patterns of published tokenizers need a few steps a byte of the
// longest run of spaces; a untrusted one reaches this in well under a second.
constexpr uint32_t kMatchLimit = 5'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kJitStackBytesMax = 16 * 1024 * 1024;
// Many slow matches together: real patterns run at megabytes a second.
constexpr double kSecondsMax = 10.0;
constexpr double kSecondsMaxPerByte = 10e-6;
constexpr int kMatchesPerClockRead = 16;

using Clock = std::chrono::steady_clock;

pcre2_code* compile(const std::string& pattern, int& error_code, size_t& error_offset) {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                   &error_code, &error_offset, context);
  pcre2_compile_context_free(context);
  return code;
}

std::string error_text(int error_code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error_code, text, sizeof(text)) < 0) {
    return str("error ", error_code);
  }
  return reinterpret_cast<const char*>(text);
}

// What a match needs besides the pattern; one for each thread.
class MatchScratch {
 public:
  MatchScratch() {
    data_ = pcre2_match_data_create(1, nullptr);
    context_ = pcre2_match_context_create(nullptr);
    jit_stack_ = pcre2_jit_stack_create(32 * 1024, kJitStackBytesMax, nullptr);
    if (data_ == nullptr || context_ == nullptr || jit_stack_ == nullptr) {
      release();
      throw std::bad_alloc();
    }
    pcre2_set_match_limit(context_, kMatchLimit);
    pcre2_set_depth_limit(context_, kMatchLimit);
    pcre2_set_heap_limit(context_, kHeapLimitKib);
    pcre2_jit_stack_assign(context_, nullptr, jit_stack_);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  ~MatchScratch() { release(); }

  pcre2_match_data* data() const { return data_; }
  pcre2_match_context* context() const { return context_; }

 private:
  void release() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(jit_stack_);
  }

  pcre2_match_data* data_ = nullptr;
  pcre2_match_context* context_ = nullptr;
  pcre2_jit_stack* jit_stack_ = nullptr;
};

MatchScratch& match_scratch() {
  thread_local MatchScratch scratch;
  return scratch;
}

}  // namespace

bool pcre_accepts(const std::string& pattern) {
  int error_code = 0;
  size_t error_offset = 0;
  pcre2_code* code = compile(pattern, error_code, error_offset);
  pcre2_code_free(code);
  return code != nullptr;
}

PcrePattern::PcrePattern(const std::string& pattern, const std::string& where) : where_(where) {
  int error_code = 0;
  size_t error_offset = 0;
  pcre2_code* code = compile(pattern, error_code, error_offset);
  if (code == nullptr) {
    throw InputError(str(where, ": expected a regular expression, got one that PCRE2 rejects: ",
                         error_text(error_code), " at byte ", error_offset, " of ",
                         quote(pattern, 200), "."));
  }
  code_ =
      std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  is_jit_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
}

bool PcrePattern::find(std::string_view text, size_t start, TextRange& match) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchScratch& scratch = match_scratch();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (is_jit_) {
    rc = pcre2_jit_match(code, subject, text.size(), start, 0, scratch.data(), scratch.context());
  }
  // The interpreter keeps its steps on the heap, which has a higher limit.
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(code, subject, text.size(), start, PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK,
                     scratch.data(), scratch.context());
  }
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    throw InputError(str(where_, ": the pattern needs too much time or memory on a text of ",
                         text.size(), " bytes (", error_text(rc),
                         "). Use a simpler pattern or a shorter text."));
  }
  const size_t* bounds = pcre2_get_ovector_pointer(scratch.data());
  match = {bounds[0], bounds[1]};
  return true;
}

std::vector<TextRange> PcrePattern::find_all(std::string_view text) const {
  std::vector<TextRange> matches;
  if (text.empty()) return matches;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                         kSecondsMax + kSecondsMaxPerByte * static_cast<double>(text.size())));
  size_t start = 0;
  int num_tries = 0;
  TextRange match{};
  while (start <= text.size() && find(text, start, match)) {
    if (++num_tries % kMatchesPerClockRead == 0 && Clock::now() > deadline) {
      throw InputError(str(where_, ": the pattern needs too much time on a text of ", text.size(),
                           " bytes. Use a simpler pattern or a shorter text."));
    }
    const bool is_empty = match.begin == match.end;
    if (is_empty && !matches.empty() && matches.back().end == match.end) {
      if (match.end >= text.size()) break;
      start = match.end + first_char(text.substr(match.end)).num_bytes;
      continue;
    }
    matches.push_back(match);
    start = match.end;
  }
  return matches;
}

}  // namespace halley
