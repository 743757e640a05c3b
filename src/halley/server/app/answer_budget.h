// The memory of answers in the making: the most that one can take, and the budget of all together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "halley/base/byte_budget.h"
#include "halley/engine/engine.h"
#include "halley/server/openai/api_request.h"

namespace halley {

/// 0 bytes stand for a quarter of the memory that is available now.
std::shared_ptr<ByteBudget> make_answer_budget(int64_t num_bytes_max);

/// The size of an answer depends on these and on its request.
struct AnswerSizes {
  int64_t token_text_bytes = 0;                     // of the vocabulary's longest token
  int64_t stream_events_bytes_max = 0;              // AppConfig
  int64_t num_text_copies = 0;                      // Reply; 0: there is none
  std::span<const int64_t> num_prompt_tokens = {};  // one per prompt
  std::span<const int64_t> max_tokens = {};         // one per prompt
};

/// The most bytes that an answer takes until it is sent.
struct AnswerBytes {
  int64_t events = 0;  // of a stream: events that wait for the response thread
  int64_t all = 0;     // with these
};

/// Whole answers: every token's text and log probabilities, since they wait for the last one.
/// Streams: what may wait for the response thread and for the client. Nothing: more bytes than an
/// int64_t counts.
std::optional<AnswerBytes> most_answer_bytes(const ApiRequest& request, const AnswerSizes& sizes);

/// The memory that an event takes while it waits.
int64_t waiting_bytes(const TokenEvent& event);

/// Takes the answer's bytes out of the budget. Throws ApiError 400 if they exceed all of it, 503 if
/// the other answers leave too little.
ByteReservation reserve_answer(const std::shared_ptr<ByteBudget>& budget,
                               const std::optional<AnswerBytes>& bytes, const ApiRequest& request);

}  // namespace halley
