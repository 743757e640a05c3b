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
#include "halley/sampling/base/token_mask.h"

namespace halley {

/// A row of a step and the slot whose next token its logits give.
struct RowChoice {
  int32_t row = 0;
  int32_t slot = 0;
  /// The step chooses no token: the logits stay at the slot for choose().
  bool is_deferred = false;
};

struct RunnerStep {
  /// An id below 0 is slot_token(slot): the token that was chosen last for the slot, by an earlier
  /// launch() or choose(), whether or not the caller has seen it. `logit_rows` are those whose
  /// logits the host gets; rows of `choices` need not be among them. `hidden_rows` are those whose
  /// hidden states it gets; `hidden` is not used.
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
  std::vector<ChosenToken> chosen;  // as RunnerStep::choices without deferred ones, or as choose()
  ConstMatrix logits;               // [batch.logit_rows.size(), V] f32 in host memory
  ConstMatrix hidden;               // [batch.hidden_rows.size(), hidden_size] f32 in host memory
  std::optional<StepSpan> span;     // of a step, where a device has a clock
};

/// A slot holds the sampling state of one sequence: its parameters, counts of its tokens, the index
/// of the next random draw, logits that wait for their choice. Slots are indices below
/// StepLimits::num_sequences.
///
/// Calls come from one thread. What they queue runs in the order of the calls, and sees the cache
/// as the steps before left it: a page may be reused for another sequence as soon as no later
/// launch refers to its old contents.
class StepRunner {
 public:
  static constexpr int kNumInFlightMax = 2;

  virtual ~StepRunner() = default;

  /// Whether it has all of the host's sampler (sampling/base): whether it takes choices with
  /// needs_host_sampler().
  virtual bool samples_on_host() const { return false; }

  /// Calls of launch(), and calls of choose(), that may not have been waited for.
  virtual int num_in_flight_max() const { return kNumInFlightMax; }

  /// Assigns the slot to this sequence from the next launch on, with the output it already has.
  /// Tokens that were queued for the slot's former sequence are still returned by their wait().
  virtual void start_slot(int32_t slot, const TokenChoice& choice,
                          std::span<const int32_t> prompt_ids,
                          std::span<const int32_t> output_ids) = 0;

  /// Queues a step within the limits and returns at once; nothing that is passed is needed
  /// afterwards. Throws InputError as CausalLm::forward(), before anything is queued.
  virtual void launch(const RunnerStep& step, const KvCacheView& cache) = 0;

  /// Queues choices from the logits that the last launch() with a deferred choice for each slot has
  /// left there, and returns at once; nothing that is passed is needed afterwards. A slot at most
  /// once; its logits are used up. Log probabilities are those without the mask.
  virtual void choose(std::span<const MaskedChoice> choices) = 0;

  /// Waits for the oldest launch() or choose() that has not been waited for. The result is valid
  /// until the next wait(). Throws DeviceError where the device failed; the model cannot be used
  /// afterwards.
  virtual const StepResult& wait() = 0;
  /// Whether wait() would return at once. There is something to wait for.
  virtual bool is_ready() const = 0;
};

}  // namespace halley
