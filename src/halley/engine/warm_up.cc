#include "halley/engine/warm_up.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "halley/base/checked_math.h"
#include "halley/engine/step_batch.h"
#include "halley/sampling/base/token_choice.h"

namespace halley {
namespace {

// The first run of a size loads its kernels, the second one captures its graph.
constexpr int kNumRunsOfGraphs = 3;
constexpr int32_t kTokenId = 0;
// Decodes with graphs: all sizes up to here, then every eighth one.
constexpr int64_t kNumSmallSizes = 8;
constexpr int64_t kGrowth = 4;  // from one size of other steps to the next
constexpr int64_t kPrefillRowsMin = 64, kPrefillRowsMax = 4096;

class WarmUp {
 public:
  WarmUp(StepRunner& runner, const KvCacheView& cache, const WarmUpLimits& limits,
         const EngineClock& clock, StepPlanner& planner)
      : runner_(runner), cache_(cache), limits_(limits), clock_(clock), planner_(planner) {
    for (int32_t page = 0; page < limits.num_pages; ++page) pages_.push_back(page);
  }

  void run(size_t level) {
    const int64_t num_sequences = std::min(limits_.num_sequences, limits_.num_pages);
    for (int64_t n = 1; n <= num_sequences; n = next_size(n)) run(level, n, 1);
    const int64_t num_rows_max = std::min(
        {limits_.num_prefill_rows, kPrefillRowsMax, limits_.num_pages * limits_.page_tokens});
    for (int64_t rows = kPrefillRowsMin; rows <= num_rows_max; rows *= kGrowth) {
      run(level, 1, rows);
    }
  }

 private:
  int64_t next_size(int64_t num_sequences) const {
    if (!limits_.has_graphs) return kGrowth * num_sequences;
    return num_sequences + (num_sequences < kNumSmallSizes ? 1 : kNumSmallSizes);
  }

  void run(size_t level, int64_t num_sequences, int64_t num_rows) {
    const std::vector<int32_t> tokens(static_cast<size_t>(num_rows), kTokenId);
    const auto num_pages = static_cast<size_t>(ceil_div(num_rows, limits_.page_tokens));
    batch_.clear(planner_.precision().precision_of(level));
    for (int64_t i = 0; i < num_sequences; ++i) {
      batch_.add(
          {.num_rows = num_rows,
           .is_complete = true,
           .page_table = std::span(pages_).subspan(static_cast<size_t>(i) * num_pages, num_pages)},
          {.tokens = tokens, .slot = static_cast<int32_t>(i)});
    }
    double seconds = 0;
    const int num_runs = limits_.has_graphs ? kNumRunsOfGraphs : 1;
    for (int i = 0; i < num_runs; ++i) seconds = seconds_of_run(tokens, num_sequences);
    planner_.learn(level,
                   std::vector<SequenceStep>(static_cast<size_t>(num_sequences),
                                             {.num_past = 0, .num_new = num_rows}),
                   seconds);
  }

  double seconds_of_run(const std::vector<int32_t>& prompt_ids, int64_t num_sequences) {
    for (int32_t slot = 0; slot < num_sequences; ++slot) {
      runner_.start_slot(slot, TokenChoice{}, prompt_ids, {});
    }
    const TimePoint begin = clock_();
    runner_.launch(batch_.step(), cache_);
    static_cast<void>(runner_.wait());
    return std::chrono::duration<double>(clock_() - begin).count();
  }

  StepRunner& runner_;
  const KvCacheView& cache_;
  const WarmUpLimits& limits_;
  const EngineClock& clock_;
  StepPlanner& planner_;
  std::vector<int32_t> pages_;
  StepBatch batch_;
};

}  // namespace

void warm_up(StepRunner& runner, const KvCacheView& cache, const WarmUpLimits& limits,
             const EngineClock& clock, StepPlanner& planner) {
  WarmUp all(runner, cache, limits, clock, planner);
  for (size_t level = 0; level < planner.precision().stats().levels.size(); ++level) {
    all.run(level);
  }
}

}  // namespace halley
