// The step runner of a model that several ranks run together, as its caller on rank 0 sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "halley/models/base/step_runner.h"
#include "halley/models/parallel/rank_links.h"
#include "halley/models/parallel/rank_messages.h"

namespace halley {

/// Forwards every call to rank 0's runner, after it has told the other ranks. They sample the same
/// tokens from the same logits, so that no result passes between ranks.
class RankedRunner final : public StepRunner {
 public:
  /// `write` makes the message of a launch, with this many waits before it. `own` and `links` must
  /// outlive this object.
  using WriteLaunch = std::function<std::vector<std::byte>(
      uint64_t num_waits, const RunnerStep& step, const KvCacheView& cache)>;
  RankedRunner(StepRunner& own, RankLinks& links, WriteLaunch write)
      : own_(own), links_(links), write_(std::move(write)) {}

  bool is_around(const StepRunner& runner) const { return &own_ == &runner; }

  bool samples_on_host() const override { return own_.samples_on_host(); }
  int num_in_flight_max() const override { return own_.num_in_flight_max(); }
  void start_slot(int32_t slot, const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                  std::span<const int32_t> output_ids) override {
    links_.tell(RankCall::kStartSlot, write_slot(slot, choice, prompt_ids, output_ids));
    own_.start_slot(slot, choice, prompt_ids, output_ids);
  }
  // The others are told first: what they queue may be what rank 0's work waits for, while its
  // launch loads a kernel, which waits for that work.
  void launch(const RunnerStep& step, const KvCacheView& cache) override {
    links_.tell(RankCall::kLaunch, write_(take_waits(), step, cache));
    links_.run_own([&] { own_.launch(step, cache); });
  }
  void choose(std::span<const MaskedChoice> choices) override {
    links_.tell(RankCall::kChoose, write_choices(take_waits(), choices));
    links_.run_own([&] { own_.choose(choices); });
  }
  const StepResult& wait() override {
    const StepResult& result = links_.run_own([&]() -> const StepResult& { return own_.wait(); });
    ++num_waits_;
    return result;
  }
  bool is_ready() const override { return own_.is_ready(); }

 private:
  uint64_t take_waits() { return std::exchange(num_waits_, 0); }

  StepRunner& own_;
  RankLinks& links_;
  const WriteLaunch write_;
  uint64_t num_waits_ = 0;  // since the last message
};

}  // namespace halley
