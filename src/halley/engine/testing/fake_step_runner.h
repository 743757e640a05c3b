// For tests: the fake model on a device of its own, where what is launched runs either when the
// engine waits for it or at once. It samples with the engine's sampler, so every text equals that
// of the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/engine/host_slot.h"
#include "halley/engine/testing/fake_causal_lm.h"
#include "halley/models/base/step_runner.h"
#include "halley/sampling/base/sampler.h"

namespace halley {

/// Checks the caller's side of StepRunner's contract, and that each row whose token is sampled
/// finds the prompt and the output of its slot in the pages. So it detects pages that a later
/// launch has overwritten or an earlier one has not written.
class FakeStepRunner final : public StepRunner {
 public:
  FakeStepRunner(FakeCausalLm& model, bool runs_at_launch)
      : model_(model), runs_at_launch_(runs_at_launch) {}

  void prepare(const StepLimits& limits) {
    limits_ = limits;
    slots_.resize(static_cast<size_t>(limits.num_sequences));
  }

  void start_slot(int32_t slot, const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                  std::span<const int32_t> output_ids) override {
    Slot started = {.sampling = HostSlot(choice, prompt_ids, output_ids),
                    .tokens = {prompt_ids.begin(), prompt_ids.end()}};
    started.tokens.insert(started.tokens.end(), output_ids.begin(), output_ids.end());
    HALLEY_CHECK(slot >= 0 && slot < limits_.num_sequences, slot);
    starts_.emplace_back(slot, std::move(started));
  }

  void launch(const RunnerStep& step, const KvCacheView& cache) override {
    if (on_launch) on_launch(step);
    HALLEY_CHECK(num_in_flight(false) < kNumInFlightMax, queue_.size());
    check_limits(step);
    queue_.push_back(queued(step, cache));
    if (runs_at_launch_) run(queue_.back());
  }

  void choose(std::span<const MaskedChoice> choices) override {
    HALLEY_CHECK(num_in_flight(true) < kNumInFlightMax, queue_.size());
    HALLEY_CHECK(!choices.empty());
    Step step = {.starts = std::exchange(starts_, {})};
    std::set<int32_t> slots;
    for (const MaskedChoice& choice : choices) {
      HALLEY_CHECK(slots.insert(choice.slot).second, choice.slot);
      step.masked.emplace_back(choice.slot, *choice.allowed);
    }
    queue_.push_back(std::move(step));
    if (runs_at_launch_) run(queue_.back());
  }

  const StepResult& wait() override {
    HALLEY_CHECK(!queue_.empty(), queue_.size());
    if (has_failed_) throw DeviceError("fake: what was launched is lost");
    Step step = std::move(queue_.front());
    queue_.pop_front();
    if (!runs_at_launch_) run(step);
    logits_ = std::move(step.logits);
    result_.chosen = std::move(step.chosen);
    const auto num_rows = static_cast<int64_t>(step.logit_rows.size());
    result_.logits = f32_matrix(logits_.data(), num_rows, model_.shape().vocab_size);
    hidden_ = std::move(step.hidden);
    result_.hidden = f32_matrix(hidden_.data(), static_cast<int64_t>(step.hidden_rows.size()),
                                FakeCausalLm::kHiddenSize);
    return result_;
  }

  /// Now and then not yet, where steps run when they are waited for.
  bool is_ready() const override {
    HALLEY_CHECK(!queue_.empty());
    return runs_at_launch_ || ++num_asked_ % 3 == 0;
  }

  std::function<void(const RunnerStep&)> on_launch;

 private:
  struct Slot {
    std::optional<HostSlot> sampling = {};
    std::vector<int32_t> tokens = {};  // prompt and output
    bool is_broken = false;            // sampling failed: the slot is not checked any more
  };
  /// Copies of the inputs of launch() or choose(), and the results.
  struct Step {
    std::vector<std::pair<int32_t, Slot>> starts = {};
    std::vector<int32_t> token_ids = {}, logit_rows = {}, hidden_rows = {};
    std::vector<const Adapter*> adapters = {};
    std::vector<BatchSequence> sequences = {};
    std::vector<std::vector<int32_t>> page_tables = {};
    std::vector<RowChoice> choices = {};
    std::vector<KvLayerView> layers = {};
    std::optional<Precision> precision = {};
    std::vector<std::pair<int32_t, TokenMask>> masked = {};  // of choose()
    std::vector<float> logits = {}, hidden = {};
    std::vector<ChosenToken> chosen = {};

    bool is_choice() const { return !masked.empty(); }
  };

  int num_in_flight(bool is_choice) const {
    return static_cast<int>(std::count_if(queue_.begin(), queue_.end(), [&](const Step& step) {
      return step.is_choice() == is_choice;
    }));
  }

  void check_limits(const RunnerStep& step) const {
    const auto size = [](const auto& list) { return static_cast<int64_t>(list.size()); };
    HALLEY_CHECK(size(step.batch.sequences) <= limits_.num_sequences, size(step.batch.sequences));
    HALLEY_CHECK(size(step.batch.token_ids) <= limits_.num_rows, size(step.batch.token_ids));
    HALLEY_CHECK(size(step.batch.logit_rows) + size(step.choices) <= limits_.num_logit_rows,
                 size(step.batch.logit_rows), size(step.choices));
    for (const BatchSequence& sequence : step.batch.sequences) {
      const int64_t length = sequence.num_past_tokens + sequence.num_new_tokens;
      HALLEY_CHECK(length <= limits_.max_length, length);
    }
    std::set<int32_t> slots;
    int32_t row_before = -1;
    for (const RowChoice& choice : step.choices) {
      HALLEY_CHECK(choice.row > row_before, choice.row, row_before);
      HALLEY_CHECK(slots.insert(choice.slot).second, choice.slot);
      row_before = choice.row;
    }
  }

  Step queued(const RunnerStep& step, const KvCacheView& cache) {
    const ForwardBatch& batch = step.batch;
    Step copy;
    copy.starts = std::exchange(starts_, {});
    copy.token_ids.assign(batch.token_ids.begin(), batch.token_ids.end());
    copy.logit_rows.assign(batch.logit_rows.begin(), batch.logit_rows.end());
    copy.hidden_rows.assign(batch.hidden_rows.begin(), batch.hidden_rows.end());
    copy.sequences.assign(batch.sequences.begin(), batch.sequences.end());
    for (BatchSequence& sequence : copy.sequences) {
      copy.page_tables.emplace_back(sequence.page_table.begin(), sequence.page_table.end());
      sequence.page_table = copy.page_tables.back();  // moving the list keeps each table's address
    }
    copy.choices.assign(step.choices.begin(), step.choices.end());
    copy.layers.assign(cache.layers.begin(), cache.layers.end());
    copy.adapters.assign(batch.adapters.begin(), batch.adapters.end());
    copy.precision = batch.precision;
    return copy;
  }

  void run(Step& step) {
    for (auto& [slot, started] : step.starts) this->slot(slot) = std::move(started);
    if (step.is_choice()) return run_choices(step);
    for (int32_t& id : step.token_ids) {
      if (id >= 0) continue;
      id = slot(slot_of_token(id)).sampling->last_token();
    }
    std::set<int32_t> rows(step.logit_rows.begin(), step.logit_rows.end());
    for (const RowChoice& choice : step.choices) rows.insert(choice.row);
    const std::vector<int32_t> wanted(rows.begin(), rows.end());
    const auto vocab_size = static_cast<size_t>(model_.shape().vocab_size);
    std::vector<float> logits(wanted.size() * vocab_size);
    const auto num_hidden_rows = static_cast<int64_t>(step.hidden_rows.size());
    step.hidden.resize(step.hidden_rows.size() * static_cast<size_t>(FakeCausalLm::kHiddenSize));
    has_failed_ = true;
    model_.forward(
        {step.token_ids, step.sequences, wanted, step.precision, step.hidden_rows,
         f32_matrix(step.hidden.data(), num_hidden_rows, FakeCausalLm::kHiddenSize), step.adapters},
        {step.layers},
        f32_matrix(logits.data(), static_cast<int64_t>(wanted.size()),
                   static_cast<int64_t>(vocab_size)));
    has_failed_ = false;
    const auto logits_of = [&](int32_t row) {
      const auto index = static_cast<size_t>(std::distance(rows.begin(), rows.find(row)));
      return std::span<const float>(logits).subspan(index * vocab_size, vocab_size);
    };
    for (const int32_t row : step.logit_rows) {
      const std::span<const float> row_logits = logits_of(row);
      step.logits.insert(step.logits.end(), row_logits.begin(), row_logits.end());
    }
    for (const RowChoice& choice : step.choices) {
      check_pages(step, choice);
      Slot& slot = this->slot(choice.slot);
      if (choice.is_deferred) {
        slot.sampling->defer(logits_of(choice.row));
      } else {
        step.chosen.push_back(slot.sampling->choose(logits_of(choice.row), scratch_));
        note_choice(slot, step.chosen.back());
      }
    }
  }

  void run_choices(Step& step) {
    for (const auto& [index, allowed] : step.masked) {
      Slot& slot = this->slot(index);
      step.chosen.push_back(slot.sampling->choose_deferred(allowed, scratch_));
      note_choice(slot, step.chosen.back());
    }
  }

  void check_pages(const Step& step, const RowChoice& choice) {
    if (slot(choice.slot).is_broken) return;
    for (const BatchSequence& sequence : step.sequences) {
      const int64_t index = choice.row - sequence.first_row;
      if (index < 0 || index >= sequence.num_new_tokens) continue;
      const std::vector<int32_t> tokens =
          FakeCausalLm::read({step.layers}, sequence, sequence.num_past_tokens + index + 1);
      HALLEY_CHECK(tokens == slot(choice.slot).tokens, str(tokens), str(slot(choice.slot).tokens));
    }
  }

  static void note_choice(Slot& slot, const ChosenToken& chosen) {
    if (chosen.status == SampleStatus::kChosen) {
      slot.tokens.push_back(chosen.token.token_id);
    } else {
      slot.is_broken = true;
    }
  }

  Slot& slot(int32_t index) { return slots_.at(static_cast<size_t>(index)); }

  FakeCausalLm& model_;
  const bool runs_at_launch_;
  bool has_failed_ = false;  // from then on every step fails
  StepLimits limits_;
  mutable int num_asked_ = 0;                     // of is_ready()
  std::vector<std::pair<int32_t, Slot>> starts_;  // since the last launch
  std::deque<Step> queue_;
  std::vector<Slot> slots_;  // as of the last step that ran
  SamplerScratch scratch_;
  std::vector<float> logits_, hidden_;
  StepResult result_;
};

/// Claims to have memory of its own.
class FakeDeviceLm final : public FakeCausalLm {
 public:
  FakeDeviceLm(int64_t vocab_size, FakeLogits logits_of, int64_t max_positions, bool runs_at_launch)
      : FakeCausalLm(vocab_size, std::move(logits_of), max_positions),
        runner_(*this, runs_at_launch) {}

  std::optional<int64_t> prepare(const StepLimits& limits) override {
    runner_.prepare(limits);
    return int64_t{1} << 30;
  }
  FakeStepRunner* step_runner() override { return &runner_; }
  std::string device_name() const override { return "fake"; }

 private:
  FakeStepRunner runner_;
};

}  // namespace halley
