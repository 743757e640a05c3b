// A model and a tokenizer that cost next to nothing, so that what is left is the server's work:
// each token says in which step it was made.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/models/base/causal_lm.h"

namespace halley::cli {

/// Beats for the model's steps and when they were over, on the clock of all processes
/// (CLOCK_MONOTONIC). Lies in memory that the server shares with its clients.
struct StepTimes {
  /// Ids go round: a step's tokens have the id `step % kNumIds`.
  static constexpr int32_t kNumIds = 32768;

  std::atomic<int64_t> period_ns{0};  // from one step to the next; 0: as fast as it goes
  std::array<std::atomic<int64_t>, kNumIds> end_ns{};  // of the last step with this id
};
static_assert(std::atomic<int64_t>::is_always_lock_free, "shared between processes");

int64_t monotonic_ns();

/// Chooses tokens by itself, as a GPU does; all of a step have the id of the step. `times` must
/// outlive it. Requests that need logits end with an error.
std::unique_ptr<CausalLm> make_costless_model(StepTimes& times, int64_t max_positions);

/// A byte-level BPE tokenizer whose token `id` is " " and five digits.
std::unique_ptr<Tokenizer> make_step_tokenizer();
/// The id that a token's text has; nothing for other text.
std::optional<int32_t> step_of_text(std::string_view text);

}  // namespace halley::cli
