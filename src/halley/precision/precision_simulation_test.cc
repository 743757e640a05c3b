// The policy and the predictor in a small server under bursts: decodes, prefill chunks, a queue,
// and steps whose times vary. The choice alone is checked, after every step of 1,000 seeds; the
// scheduler has simulations of its own.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/precision/precision_policy.h"
#include "halley/precision/step_predictor.h"

namespace halley {
namespace {

constexpr double kTpot = 33.3e-3, kTtft = 0.2;
constexpr size_t kNumLevels = 2;

struct Job {
  double arrival = 0;
  int64_t num_prompt = 0, num_output = 0;
  double last_token = 0;
};

struct Outcome {
  int64_t num_steps = 0, num_full = 0, num_switches = 0, num_returns = 0;
  int64_t num_late = 0, num_late_in_full = 0, num_done = 0, num_submitted = 0;
  double seconds = 0;
};

/// The shapes of Llama-3-8B on an H200, in f16 and e4m3 weights.
class Server {
 public:
  Server(uint64_t seed, const PrecisionPolicyConfig& config)
      : random_(seed),
        config_(config),
        policy_(config),
        predictor_(kNumLevels),
        rate_max_(uniform(1, 40)),
        period_(uniform(2, 20)),
        is_noisy_(seed % 2 == 1) {}

  Outcome run(double seconds) {
    next_arrival_ = uniform(0, 1);
    while (now_ < seconds || !waiting_.empty() || !running_.empty()) {
      while (next_arrival_ <= now_ && now_ < seconds) submit();
      if (waiting_.empty() && running_.empty()) {
        if (next_arrival_ >= seconds) break;
        now_ = next_arrival_;
        continue;
      }
      step();
      if (testing::Test::HasFatalFailure()) break;
    }
    outcome_.seconds = now_;
    return outcome_;
  }

 private:
  static constexpr int64_t kChunkRows = 1024;
  static constexpr size_t kNumSeqsMax = 256;

  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  void submit() {
    waiting_.push_back({.arrival = next_arrival_,
                        .num_prompt = static_cast<int64_t>(uniform(20, 3000)),
                        .num_output = static_cast<int64_t>(uniform(10, 400))});
    ++outcome_.num_submitted;
    // Bursts: the rate goes from 1 to rate_max_ requests a second and back within a period.
    const double phase = std::sin(M_PI * std::fmod(next_arrival_, period_) / period_);
    const double rate = 1 + (rate_max_ - 1) * phase * phase;
    next_arrival_ += std::exponential_distribution<double>(rate)(random_);
  }

  static double floor_of(size_t level, int64_t num_rows, int64_t num_positions) {
    const double bytes = (level == 0 ? 16e9 : 8.5e9) + static_cast<double>(num_positions) * 131072;
    return std::max(bytes / 4.66e12,
                    static_cast<double>(num_rows) * 16e9 / (level == 0 ? 968e12 : 1733e12));
  }

  double measured(double floor, int64_t num_rows) {
    const double ratio = num_rows < 64 ? 1.5 : 1.3;
    const double noise =
        is_noisy_ ? std::exp(std::normal_distribution<double>(0, 0.05)(random_)) : 1;
    const bool is_stalled = is_noisy_ && uniform(0, 1) < 1e-3;
    return ratio * noise * floor + (is_stalled ? 0.05 : 0);
  }

  void step() {
    const bool has_prefill = !waiting_.empty() && running_.size() < kNumSeqsMax;
    const int64_t num_prefill = has_prefill ? std::min(kChunkRows, waiting_.front().num_prompt) : 0;
    const int64_t num_rows = static_cast<int64_t>(running_.size()) + num_prefill;
    int64_t num_positions = 0;
    for (const Job& job : running_) num_positions += job.num_prompt;
    StepOutlook outlook = {.now = now_, .start = now_, .step = {}};
    std::vector<double> floors;
    for (size_t level = 0; level < kNumLevels; ++level) {
      floors.push_back(floor_of(level, num_rows, num_positions));
      if (const auto step = predictor_.predict(level, num_rows, floors[level])) {
        outlook.step.push_back(*step);
        const double chunk_floor = floor_of(level, kChunkRows, num_positions);
        outlook.prompt_token_seconds.push_back(
            predictor_.predict(level, kChunkRows, chunk_floor)->seconds / kChunkRows);
      }
    }
    for (const Job& job : running_) {
      outlook.token_due = std::min(outlook.token_due.value_or(1e9), job.last_token + kTpot);
    }
    int64_t num_ahead = 0;
    for (const Job& job : waiting_) {
      num_ahead += job.num_prompt;
      outlook.first_tokens.push_back({.due = job.arrival + kTtft, .num_tokens_ahead = num_ahead});
    }
    const PrecisionChoice choice = policy_.choose(outlook);
    check(outlook, choice);
    const double seconds = measured(floors[choice.level], num_rows);
    now_ += seconds;
    predictor_.learn(choice.level, num_rows, floors[choice.level], seconds);
    count(outlook, choice);
    give_tokens(num_prefill);
  }

  /// In full precision everything that is due was predicted to come in time.
  void check(const StepOutlook& outlook, const PrecisionChoice& choice) {
    if (config_.mode != PrecisionMode::kAuto || outlook.step.empty() || choice.level > 0) return;
    const double end = outlook.start + outlook.step[0].bound();
    if (outlook.token_due) {
      ASSERT_LE(end, *outlook.token_due);
    }
    for (const FirstTokenDue& first : outlook.first_tokens) {
      ASSERT_LE(outlook.start +
                    static_cast<double>(first.num_tokens_ahead) * outlook.prompt_token_seconds[0],
                first.due);
    }
  }

  void count(const StepOutlook& outlook, const PrecisionChoice& choice) {
    ++outcome_.num_steps;
    outcome_.num_full += choice.level == 0 ? 1 : 0;
    outcome_.num_switches += choice.is_switch ? 1 : 0;
    outcome_.num_returns += choice.is_switch && choice.level == 0 ? 1 : 0;
    const bool is_late = outlook.token_due && now_ > *outlook.token_due;
    outcome_.num_late += is_late ? 1 : 0;
    outcome_.num_late_in_full += is_late && choice.level == 0 && !outlook.step.empty() ? 1 : 0;
    if (is_late && choice.level == 0 && !outlook.step.empty()) {
      EXPECT_GT(now_ - outlook.start, outlook.step[0].bound()) << "a late token that was foreseen";
    }
  }

  void give_tokens(int64_t num_prefill) {
    for (Job& job : running_) {
      job.last_token = now_;
      --job.num_output;
    }
    outcome_.num_done +=
        std::erase_if(running_, [](const Job& job) { return job.num_output <= 0; });
    if (num_prefill == 0) return;
    Job& first = waiting_.front();
    first.num_prompt -= num_prefill;
    if (first.num_prompt > 0) return;
    first.num_prompt = num_prefill;
    first.last_token = now_;
    running_.push_back(first);
    waiting_.pop_front();
  }

  std::mt19937_64 random_;
  PrecisionPolicyConfig config_;
  PrecisionPolicy policy_;
  StepPredictor predictor_;
  double rate_max_, period_;
  bool is_noisy_;
  double now_ = 0, next_arrival_ = 0;
  std::deque<Job> waiting_;
  std::vector<Job> running_;
  Outcome outcome_;
};

Outcome outcome_of(uint64_t seed, PrecisionMode mode) {
  const PrecisionPolicyConfig config = {.mode = mode, .num_levels = kNumLevels};
  return Server(seed, config).run(20);
}

TEST(PrecisionSimulation, HoldsWhatItCanForeseeAndDoesNotOscillate) {
  constexpr uint64_t kNumSeeds = 1000;
  const PrecisionPolicyConfig config = {.num_levels = kNumLevels};
  int64_t num_mixed = 0, num_always_full = 0;
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Outcome outcome = outcome_of(seed, PrecisionMode::kAuto);
    ASSERT_EQ(outcome.num_done, outcome.num_submitted);
    const auto num_returns_max = static_cast<int64_t>(outcome.seconds / config.dwell_seconds) + 1;
    ASSERT_LE(outcome.num_returns, num_returns_max);
    ASSERT_LE(outcome.num_switches, 2 * outcome.num_returns + 1);
    num_always_full += outcome.num_full == outcome.num_steps ? 1 : 0;
    num_mixed += outcome.num_full > 0 && outcome.num_full < outcome.num_steps ? 1 : 0;
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  // The loads are such that both precisions are needed as a rule.
  EXPECT_GT(num_mixed, static_cast<int64_t>(kNumSeeds) / 2);
  EXPECT_GT(num_always_full, 0);
}

// If times do not vary, nothing is late that would not be late in low precision all the time, but
// for the steps that teach the predictor.
TEST(PrecisionSimulation, IsHardlyEverLaterThanLowPrecisionAlone) {
  for (uint64_t seed = 0; seed < 200; seed += 2) {
    SCOPED_TRACE(seed);
    const Outcome chosen = outcome_of(seed, PrecisionMode::kAuto);
    const Outcome low = outcome_of(seed, PrecisionMode::kLow);
    EXPECT_LE(chosen.num_late, low.num_late + 2);
  }
}

}  // namespace
}  // namespace halley
