#include "halley/server/app/answer_budget.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/engine/available_memory.h"
#include "halley/server/http/http_limits.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/logprob_list.h"

namespace halley {
namespace {

constexpr int kRetryAfterS = 1;
constexpr int64_t kDefaultShare = 4;  // of the available memory
// A piece that is being written or sent, and the request's own objects.
constexpr int64_t kAnswerBytes = int64_t{128} << 10;
// The parser of tool calls, empty lists of log probabilities, callbacks.
constexpr int64_t kSequenceBytes = int64_t{4} << 10;
constexpr int64_t kAllocationBytes = 16;  // of the allocator, for each vector
// JSON around a stream's token, and around each of its log probabilities.
constexpr int64_t kChunkBytes = 340, kChunkLogprobBytes = 100;

// Adds up sizes that are not negative.
class CheckedSum {
 public:
  void add(int64_t count, int64_t num_bytes) {
    const auto bytes = checked_mul(count, num_bytes);
    sum_ = sum_ && bytes ? checked_add(*sum_, *bytes) : std::nullopt;
  }
  std::optional<int64_t> sum() const { return sum_; }
  /// In another sum this number makes it overflow too.
  int64_t or_max() const { return sum_.value_or(std::numeric_limits<int64_t>::max()); }
  int64_t at_most(int64_t limit) const { return sum_ ? std::min(*sum_, limit) : limit; }

 private:
  std::optional<int64_t> sum_ = 0;
};

int64_t event_bytes(int64_t num_text_bytes, int64_t num_top) {
  return static_cast<int64_t>(sizeof(std::pair<size_t, TokenEvent>) +
                              sizeof(TokenLogprob) * static_cast<size_t>(num_top)) +
         num_text_bytes + kAllocationBytes;
}

// A token of a scored prompt, as the engine has it.
int64_t prompt_token_bytes(int64_t num_top) {
  return static_cast<int64_t>(sizeof(PromptLogprob) +
                              sizeof(TokenLogprob) * static_cast<size_t>(num_top)) +
         kAllocationBytes;
}

int64_t list_token_bytes(int64_t num_top) {
  return static_cast<int64_t>(LogprobList::token_bytes(static_cast<size_t>(num_top)));
}

std::optional<AnswerBytes> most_whole_bytes(const ApiRequest& request, const AnswerSizes& sizes) {
  const int64_t num_top = request.num_alternatives();
  CheckedSum sum;
  sum.add(1, kAnswerBytes);
  sum.add(request.num_sequences(), kSequenceBytes);
  int64_t text_bytes_max = 0;  // of one choice, with the prompt before it
  for (size_t i = 0; i < sizes.max_tokens.size(); ++i) {
    CheckedSum one;
    one.add(sizes.max_tokens[i], sizes.token_text_bytes);
    if (request.has_logprobs()) one.add(sizes.max_tokens[i], list_token_bytes(num_top));
    if (const auto num_alternatives = request.num_prompt_alternatives()) {
      // For a moment the engine has them too.
      one.add(sizes.num_prompt_tokens[i],
              prompt_token_bytes(*num_alternatives) + list_token_bytes(*num_alternatives));
    }
    if (request.returns_token_ids) {
      one.add(sizes.max_tokens[i], sizeof(int32_t));
      one.add(sizes.num_prompt_tokens[i], sizeof(int32_t));
    }
    sum.add(request.n, one.or_max());
    CheckedSum text;
    text.add(sizes.max_tokens[i], sizes.token_text_bytes);
    text.add(sizes.num_prompt_tokens[i], request.has_echo ? sizes.token_text_bytes : 0);
    text_bytes_max = std::max(text_bytes_max, text.or_max());
  }
  // The choice that is being written has its text twice: with its calls, or behind the prompt.
  sum.add(1, text_bytes_max);
  sum.add(sizes.num_text_copies, text_bytes_max);
  if (!sum.sum()) return std::nullopt;
  return AnswerBytes{.events = 0, .all = *sum.sum()};
}

std::optional<AnswerBytes> most_stream_bytes(const ApiRequest& request, const AnswerSizes& sizes) {
  const int64_t num_top = request.num_alternatives();
  CheckedSum events, unsent, copies;
  for (size_t i = 0; i < sizes.max_tokens.size(); ++i) {
    CheckedSum one;
    one.add(sizes.max_tokens[i], event_bytes(sizes.token_text_bytes, num_top));
    events.add(request.n, one.at_most(sizes.stream_events_bytes_max));
    if (request.has_logprobs() && request.has_echo) {
      CheckedSum prompt;  // the engine's, and the copies that wait
      prompt.add(sizes.num_prompt_tokens[i], 2 * prompt_token_bytes(num_top));
      events.add(request.n, prompt.or_max());
    }
    CheckedSum tokens, text;
    tokens.add(request.n, sizes.max_tokens[i]);
    text.add(sizes.max_tokens[i], sizes.token_text_bytes);
    copies.add(sizes.num_text_copies, text.or_max());
    // Reasoning stands in a chunk twice.
    unsent.add(tokens.or_max(),
               kChunkBytes + 2 * sizes.token_text_bytes + num_top * kChunkLogprobBytes);
  }
  CheckedSum sum;
  sum.add(1, kAnswerBytes);
  sum.add(request.num_sequences(), kSequenceBytes);
  sum.add(1, unsent.at_most(static_cast<int64_t>(HttpLimits{}.unsent_bytes_max)));
  sum.add(1, events.or_max());
  sum.add(1, copies.or_max());
  if (!sum.sum()) return std::nullopt;
  return AnswerBytes{.events = *events.sum(), .all = *sum.sum()};
}

}  // namespace

std::shared_ptr<ByteBudget> make_answer_budget(int64_t num_bytes_max) {
  if (num_bytes_max == 0) num_bytes_max = available_memory_bytes() / kDefaultShare;
  return std::make_shared<ByteBudget>(static_cast<size_t>(num_bytes_max));
}

std::optional<AnswerBytes> most_answer_bytes(const ApiRequest& request, const AnswerSizes& sizes) {
  return request.is_stream ? most_stream_bytes(request, sizes) : most_whole_bytes(request, sizes);
}

int64_t waiting_bytes(const TokenEvent& event) {
  int64_t num_bytes = event_bytes(static_cast<int64_t>(event.text.size()),
                                  static_cast<int64_t>(event.top_logprobs.size()));
  for (const PromptLogprob& entry : event.prompt_logprobs) {
    num_bytes += prompt_token_bytes(static_cast<int64_t>(entry.top.size()));
  }
  return num_bytes;
}

ByteReservation reserve_answer(const std::shared_ptr<ByteBudget>& budget,
                               const std::optional<AnswerBytes>& bytes, const ApiRequest& request) {
  const size_t num_bytes_max = budget->stats().num_bytes_max;
  const bool fits = bytes && static_cast<uint64_t>(bytes->all) <= num_bytes_max;
  if (!fits) {
    const std::string got =
        bytes ? format_bytes(static_cast<double>(bytes->all)) : std::string("more");
    throw invalid_field(
        "max_tokens",
        str("max_tokens: expected an answer that needs at most ",
            format_bytes(static_cast<double>(num_bytes_max)), " of memory until it is sent, got ",
            request.num_sequences(), " choices that may need ", got,
            ". Ask for fewer choices (n, prompts), tokens or log probabilities",
            request.is_stream ? "." : ", or set stream."));
  }
  ByteReservation reservation(budget);
  if (!reservation.try_grow(static_cast<size_t>(bytes->all))) {
    throw overloaded(
        "The answers in the making need all memory that there is for them. Try again "
        "later.",
        kRetryAfterS);
  }
  return reservation;
}

}  // namespace halley
