#include "halley/checkpoint/tokenizer/pcre.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>

#include <pcre2.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

// PCRE2 counts backtracking steps for each start of a match, not for a search, and a step may scan
// a run of characters that nothing counts. So a search goes in two passes. The first is compiled,
// covers kStartsPerPass starts and has a budget of steps that keeps it below a second even where
// each step scans the whole text. Patterns of published tokenizers need a few steps a match. The
// second runs where the budget is spent: interpreted, with a look at the clock every few items.
constexpr size_t kStartsPerPass = 16;
constexpr uint32_t kFirstPassStepsMin = 64;
constexpr size_t kFirstPassStepBytes = 240'000'000;
constexpr uint32_t kMatchLimit = 5'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kJitStackBytesMax = 16 * 1024 * 1024;
constexpr int kMatchesPerClockRead = 4;
constexpr uint32_t kItemsPerClockRead = 16;

using Clock = std::chrono::steady_clock;

pcre2_code* compile(const std::string& pattern, uint32_t options, int& error_code,
                    size_t& error_offset) {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT | options,
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

std::shared_ptr<void> compile_or_throw(const std::string& pattern, uint32_t options,
                                       const std::string& where) {
  int error_code = 0;
  size_t error_offset = 0;
  pcre2_code* code = compile(pattern, options, error_code, error_offset);
  if (code == nullptr) {
    throw InputError(str(where, ": expected a regular expression, got one that PCRE2 rejects: ",
                         error_text(error_code), " at byte ", error_offset, " of ",
                         quote(pattern, 200), "."));
  }
  return std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
}

// The end of a search in time; callouts get it.
struct Deadline {
  Clock::time_point time;
  uint32_t num_items = 0;  // tried in passes with a clock; may wrap

  bool is_over() const { return Clock::now() > time; }
};

int stop_if_late(pcre2_callout_block* /*block*/, void* data) {
  auto& deadline = *static_cast<Deadline*>(data);
  const bool is_late = ++deadline.num_items % kItemsPerClockRead == 0 && deadline.is_over();
  return is_late ? PCRE2_ERROR_CALLOUT : 0;
}

bool is_utf8_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

uint32_t first_pass_steps(size_t num_bytes) {
  const size_t num_steps = kFirstPassStepBytes / (num_bytes + 1);
  return static_cast<uint32_t>(
      std::clamp<size_t>(num_steps, kFirstPassStepsMin, size_t{kMatchLimit}));
}

// The buffers and limits of a match; one for each thread.
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
    pcre2_set_depth_limit(context_, kMatchLimit);
    pcre2_set_heap_limit(context_, kHeapLimitKib);
    pcre2_jit_stack_assign(context_, nullptr, jit_stack_);
    pcre2_set_callout(context_, stop_if_late, &deadline_);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  ~MatchScratch() { release(); }

  pcre2_match_data* data() const { return data_; }
  pcre2_match_context* context() const { return context_; }
  Deadline& deadline() { return deadline_; }

 private:
  void release() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(jit_stack_);
  }

  Deadline deadline_;
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
  pcre2_code* code = compile(pattern, 0, error_code, error_offset);
  pcre2_code_free(code);
  return code != nullptr;
}

PcrePattern::PcrePattern(const std::string& pattern, const std::string& where)
    : code_(compile_or_throw(pattern, 0, where)),
      timed_code_(compile_or_throw(pattern, PCRE2_AUTO_CALLOUT, where)),
      where_(where) {
  is_jit_ = pcre2_jit_compile(static_cast<pcre2_code*>(code_.get()), PCRE2_JIT_COMPLETE) == 0;
}

bool PcrePattern::find_among(std::string_view text, size_t start, size_t last_start,
                             TextRange& match) const {
  const MatchScratch& scratch = match_scratch();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  pcre2_set_offset_limit(scratch.context(), last_start);
  pcre2_set_match_limit(scratch.context(), first_pass_steps(text.size()));
  constexpr uint32_t kInterpreted = PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK;
  int rc = is_jit_ ? pcre2_jit_match(code, subject, text.size(), start, 0, scratch.data(),
                                     scratch.context())
                   : pcre2_match(code, subject, text.size(), start, kInterpreted, scratch.data(),
                                 scratch.context());
  // The interpreter keeps its steps on the heap, which has a higher limit than the JIT's stack.
  if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    pcre2_set_match_limit(scratch.context(), kMatchLimit);
    rc = pcre2_match(static_cast<const pcre2_code*>(timed_code_.get()), subject, text.size(), start,
                     kInterpreted, scratch.data(), scratch.context());
  }
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    throw InputError(str(where_, ": the pattern needs too much time or memory on a text of ",
                         text.size(), " bytes (",
                         rc == PCRE2_ERROR_CALLOUT ? "time limit exceeded" : error_text(rc),
                         "). Use a simpler pattern or a shorter text."));
  }
  const size_t* bounds = pcre2_get_ovector_pointer(scratch.data());
  match = {bounds[0], bounds[1]};
  return true;
}

bool PcrePattern::find(std::string_view text, size_t start, TextRange& match) const {
  while (true) {
    const size_t last_start = std::min(start + kStartsPerPass, text.size());
    if (find_among(text, start, last_start, match)) return true;
    if (last_start == text.size()) return false;
    throw_if_late(text.size());
    start = last_start + 1;
    while (start < text.size() && is_utf8_continuation(text[start])) ++start;
  }
}

void PcrePattern::throw_if_late(size_t num_bytes) const {
  if (!match_scratch().deadline().is_over()) return;
  throw InputError(str(where_, ": the pattern needs too much time on a text of ", num_bytes,
                       " bytes. Use a simpler pattern or a shorter text."));
}

std::vector<TextRange> PcrePattern::find_all(std::string_view text, const TimeLimit& limit) const {
  std::vector<TextRange> matches;
  if (text.empty()) return matches;
  const std::chrono::duration<double> seconds(limit.seconds + limit.seconds_per_byte *
                                                                  static_cast<double>(text.size()));
  match_scratch().deadline() = {Clock::now() +
                                std::chrono::duration_cast<Clock::duration>(seconds)};
  size_t start = 0;
  int num_tries = 0;
  TextRange match{};
  while (start <= text.size() && find(text, start, match)) {
    if (++num_tries % kMatchesPerClockRead == 0) throw_if_late(text.size());
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
