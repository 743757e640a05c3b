// A model that samples tokens on its device, and runs a step while its caller prepares the next
// one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/models/base/causal_lm.h"
#include "halley/sampling/base/token_choice.h"

namespace halley {

/// A row of a step and the slot whose next token its logits give.
struct RowChoice {
  int32_t row = 0;
  int32_t slot = 0;
};

struct RunnerStep {
  /// An id below 0 is slot_token(slot): the token that was chosen last for the slot, in an earlier
  /// step, whether or not the caller has seen it. `logit_rows` are those whose logits the host
  /// gets; rows of `choices` need not be among them.
  ForwardBatch batch;
  std::span<const RowChoice> choices;  // rows ascending; a slot at most once
};

/// The token id that stands for "chosen last for the slot", and back.
constexpr int32_t slot_token(int32_t slot) { return -1 - slot; }
constexpr int32_t slot_of_token(int32_t token_id) { return -1 - token_id; }

/// When a device worked on a step, by its own clock.
struct StepSpan {
  double begin_us = 0, end_us = 0;
};

struct StepResult {
  std::vector<ChosenToken> chosen;  // as RunnerStep::choices
  ConstMatrix logits;               // [batch.logit_rows.size(), V] f32 in host memory
  std::optional<StepSpan> span;     // where a device has a clock
};

/// A slot holds the sampling state of one sequence: its parameters, counts of its tokens, the index
/// of the next random draw. Slots are indices below StepLimits::num_sequences.
///
/// Calls come from one thread. Steps run in the order of their launches, and see the cache as the
/// steps before left it: a page may be reused for another sequence as soon as no later launch
/// refers to its old contents.
class StepRunner {
 public:
  /// Steps that may be launched and not waited for.
  static constexpr int kNumInFlightMax = 2;

  virtual ~StepRunner() = default;

  /// Assigns the slot to this sequence from the next launch on, with the output it already has.
  /// Tokens that launched steps choose for the slot's former sequence are still returned by their
  /// wait().
  virtual void start_slot(int32_t slot, const TokenChoice& choice,
                          std::span<const int32_t> prompt_ids,
                          std::span<const int32_t> output_ids) = 0;

  /// Queues a step within the limits and returns at once; nothing that is passed is needed
  /// afterwards. Throws InputError as CausalLm::forward(), before anything is queued.
  virtual void launch(const RunnerStep& step, const KvCacheView& cache) = 0;

  /// Waits for the oldest step that has been launched and not waited for. The result is valid until
  /// the next wait(). Throws DeviceError where the device failed; the model cannot be
  /// used afterwards.
  virtual const StepResult& wait() = 0;
};

}  // namespace halley
