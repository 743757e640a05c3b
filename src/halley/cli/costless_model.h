// A model and a tokenizer that cost next to nothing, so that a measurement shows the server's own
// work. Each token names the step that made it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/models/base/causal_lm.h"

namespace halley::cli {

/// The period of the model's steps and the times of their ends (CLOCK_MONOTONIC). They are in
/// memory that the server shares with its client processes.
struct StepTimes {
  /// The tokens of a step have the id `step % kNumIds`.
  static constexpr int32_t kNumIds = 32768;

  std::atomic<int64_t> period_ns{0};                   // from one step to the next; 0: no pause
  std::array<std::atomic<int64_t>, kNumIds> end_ns{};  // end of the last step with this id
};
static_assert(std::atomic<int64_t>::is_always_lock_free, "shared between processes");

int64_t monotonic_ns();

/// Samples on the "device", as a GPU does; all tokens of a step have the step's id. `times` must
/// outlive it. Requests that need logits end with an error.
std::unique_ptr<CausalLm> make_costless_model(StepTimes& times, int64_t max_positions);

/// A byte-level BPE tokenizer whose token `id` is " " and five digits.
std::unique_ptr<Tokenizer> make_step_tokenizer();
/// The id of a token's text; nothing for other text.
std::optional<int32_t> step_of_text(std::string_view text);

}  // namespace halley::cli
