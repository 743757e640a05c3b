#include "halley/simulation/simulated_runner.h"

#include <algorithm>
#include <chrono>

#include "halley/base/check.h"

namespace halley {

void SimulatedRunner::launch(const RunnerStep& step, const KvCacheView&) {
  std::vector<SequenceStep> sequences;
  for (const BatchSequence& sequence : step.batch.sequences) {
    sequences.push_back({.num_past = sequence.num_past_tokens, .num_new = sequence.num_new_tokens});
  }
  const auto level = std::find_if(
      engine_.levels.begin(), engine_.levels.end(),
      [&](const PrecisionLevel& other) { return other.precision == step.batch.precision; });
  HALLEY_CHECK(level != engine_.levels.end());
  const double seconds = engine_.step_seconds(static_cast<size_t>(level - engine_.levels.begin()),
                                              sequences, static_cast<int64_t>(step.choices.size()));
  now_ += std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace halley
