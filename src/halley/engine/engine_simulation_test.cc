// A simulation of the whole engine with the fake model. Submits, cancels, the passage of time and
// failures happen only inside of its steps, from the model's forward and from callbacks; so a seed
// gives the same run every time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/simulation_options.h"
#include "halley/engine/testing/engine_fixture.h"
#include "halley/engine/testing/fake_mask_executor.h"

namespace halley {
namespace {

constexpr int64_t kNever = int64_t{1} << 60;

/// Counts how often the simulation reached the interesting cases.
struct Reached {
  int64_t num_forwards = 0, num_ended[5] = {}, num_queue_full = 0, num_stopped = 0;
  int64_t num_preemptions = 0, num_hits = 0, num_scored_prompts = 0;
  int64_t num_ids_again = 0, num_constrained = 0, num_on_device = 0;
  int64_t num_late_masks = 0, num_over_limit = 0;
};

class EngineSimulation {
 public:
  EngineSimulation(uint64_t seed, int64_t num_forwards, Reached& reached)
      : random_(seed), num_forwards_max_(num_forwards), reached_(reached) {
    config_.page_tokens = pick(1, 5);
    config_.max_model_len = 50;
    config_.max_num_seqs = pick(1, 8);
    config_.max_num_batched_tokens = config_.max_num_seqs + pick(0, 16);
    config_.kv_bytes = 16 * pick(55, 120);  // 16 bytes a token: room for one or two
    config_.max_num_queued = pick(1, 10);
    config_.max_num_queued_tokens = pick(20, 200);
    config_.scheduling_policy =
        pick(0, 1) == 0 ? SchedulingPolicy::kFcfs : SchedulingPolicy::kPriority;
    config_.has_prefix_caching = pick(0, 4) != 0;
    constexpr ItlTarget kTargets[] = {{.kind = ItlTarget::Kind::kOff},
                                      {.kind = ItlTarget::Kind::kAuto},
                                      {.kind = ItlTarget::Kind::kSeconds, .seconds = 0.002}};
    config_.itl_target = kTargets[pick(0, 2)];
    device_ = static_cast<FakeDevice>(pick(0, 2));
    if (pick(0, 4) == 0) fault_at_ = pick(1, num_forwards);
    if (pick(0, 4) == 0) drain_at_ = pick(1, num_forwards);
  }

  void run() {
    auto model = fake_model(hashed_logits, {.device = device_});
    model->on_forward = [this](const ForwardBatch&) { act(); };
    auto masks = std::make_unique<FakeMaskExecutor>(
        [this](size_t n) { return static_cast<size_t>(pick(0, static_cast<int64_t>(n) - 1)); });
    masks_ = masks.get();
    engine_ = std::make_unique<Engine>(
        std::move(model), fake_tokenizer(), std::vector<int32_t>{kFakeEos}, config_,
        [this] { return now(); }, std::move(masks));
    while (num_forwards_ < num_forwards_max_ && !is_stopped_) {
      {
        const std::lock_guard lock(turn_);
        submit();
      }
      engine_->wait_until_idle();
    }
    check_end();
  }

 private:
  struct Live {
    GenerateRequest request;
    std::vector<int32_t> output;
    bool has_first_event = false;
    bool is_cancelled = false;
  };

  int64_t pick(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(random_() % static_cast<uint64_t>(max - min + 1));
  }
  TimePoint now() const { return TimePoint(std::chrono::milliseconds(now_ms_.load())); }

  // Events from outside while the model computes.
  void act() {
    const std::lock_guard lock(turn_);
    ++num_forwards_;
    ++reached_.num_forwards;
    reached_.num_on_device += device_ != FakeDevice::kHost;
    now_ms_ += pick(0, 3);
    check_counts();
    if (num_forwards_ < num_forwards_max_) {
      while (pick(0, 2) == 0) submit();
    }
    if (pick(0, 20) == 0) cancel_any();
    // Some masks are made while the model computes, others come late.
    reached_.num_late_masks += masks_->num_jobs() > 0;
    while (pick(0, 2) != 0 && masks_->work_here()) {
    }
    if (num_forwards_ == drain_at_) {
      engine_->drain(now() + std::chrono::milliseconds(pick(0, 60)));
      is_draining_ = is_stopped_ = true;
    }
    if (num_forwards_ == fault_at_) {
      has_failed_ = is_stopped_ = true;
      throw DeviceError("a fault of the simulation");
    }
  }

  void check_counts() {
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.num_running + stats.num_waiting, static_cast<int64_t>(live_.size()));
    EXPECT_LE(stats.num_queued, stats.num_waiting);
    EXPECT_LE(stats.num_cached_pages, stats.num_free_pages);
  }

  GenerateRequest random_request() {
    GenerateRequest request;
    const int64_t num_same = pick(0, 1) * pick(0, 20);
    for (int64_t i = 0; i < num_same; ++i) {
      request.prompt_ids.push_back(static_cast<int32_t>(1 + i % 7));
    }
    const int64_t num_own = pick(1, 20);
    for (int64_t i = 0; i < num_own; ++i) {
      request.prompt_ids.push_back(static_cast<int32_t>(pick(1, 43)));
    }
    request.sampling.max_tokens = pick(1, 20);
    request.sampling.temperature = 0.5 * static_cast<double>(pick(0, 2));
    request.sampling.seed = random_();
    if (pick(0, 3) == 0) request.sampling.presence_penalty = 2;
    if (pick(0, 3) == 0) request.sampling.repetition_penalty = 1.5;
    if (pick(0, 3) == 0) request.sampling.min_tokens = request.sampling.max_tokens / 2;
    if (pick(0, 5) == 0) request.constraint = constraint_;
    if (pick(0, 30) == 0) request.constraint = unmatchable_;
    if (pick(0, 9) == 0) request.sampling.num_prompt_logprobs = static_cast<int>(pick(0, 3));
    request.priority = static_cast<int32_t>(pick(-1, 1));
    if (pick(0, 3) == 0) request.cache_salt = "salt";
    if (pick(0, 5) == 0) request.deadline = now() + std::chrono::milliseconds(pick(0, 100));
    return request;
  }

  // The expected result of a submit, given stats() before it.
  Submit expected_answer(int64_t num_prompt_tokens) const {
    if (is_stopped_) return Submit::kStopped;
    const EngineStats stats = engine_->stats();
    const bool is_full = stats.num_queued >= config_.max_num_queued ||
                         (stats.num_queued > 0 && stats.num_queued_tokens + num_prompt_tokens >
                                                      config_.max_num_queued_tokens);
    return is_full ? Submit::kQueueFull : Submit::kQueued;
  }

  // A new id, or that of a request that has ended.
  RequestId pick_id() {
    if (ended_ids_.empty() || pick(0, 2) == 0) return next_id_++;
    const RequestId id = ended_ids_.back();
    ended_ids_.pop_back();
    ++reached_.num_ids_again;
    return id;
  }

  void submit() {
    const RequestId id = pick_id();
    GenerateRequest request = random_request();
    const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
    const Submit expected = expected_answer(num_prompt_tokens);
    EXPECT_EQ(engine_->would_admit(num_prompt_tokens).status, expected);
    const Submit status =
        engine_->submit(request, id, [this, id](const TokenEvent& event) { receive(id, event); })
            .status;
    EXPECT_EQ(status, expected);
    reached_.num_queue_full += status == Submit::kQueueFull;
    reached_.num_stopped += status == Submit::kStopped;
    if (status == Submit::kQueued) live_[id].request = std::move(request);
  }

  void cancel_any() {
    engine_->cancel(next_id_ + 5);  // nobody
    if (live_.empty()) return;
    const auto it = std::next(live_.begin(), pick(0, static_cast<int64_t>(live_.size()) - 1));
    it->second.is_cancelled = true;
    engine_->cancel(it->first);
  }

  void receive(RequestId id, const TokenEvent& event) {
    const std::lock_guard lock(turn_);
    const auto it = live_.find(id);
    ASSERT_NE(it, live_.end()) << "an event after the last, of " << id;
    Live& live = it->second;
    if (event.token_id) {
      if (!live.has_first_event) check_prompt_logprobs(live.request, event.prompt_logprobs);
      live.has_first_event = true;
      live.output.push_back(*event.token_id);
    }
    EXPECT_EQ(event.times.has_value(), event.finish_reason.has_value());
    if (event.finish_reason) {
      const Live ended = std::move(live);
      live_.erase(it);
      ended_ids_.push_back(id);
      check_last(ended, event);
    }
    check_counts();
    if (pick(0, 30) == 0) submit();
    if (pick(0, 60) == 0) cancel_any();
  }

  void check_prompt_logprobs(const GenerateRequest& request,
                             const std::vector<PromptLogprob>& logprobs) {
    if (request.sampling.num_prompt_logprobs < 0) {
      EXPECT_TRUE(logprobs.empty());
      return;
    }
    ++reached_.num_scored_prompts;
    ASSERT_EQ(logprobs.size(), request.prompt_ids.size());
    EXPECT_FALSE(logprobs[0].logprob);
    std::vector<float> logits(static_cast<size_t>(fake_vocab_size()));
    SamplerScratch scratch;
    for (size_t i = 1; i < logprobs.size(); ++i) {
      hashed_logits({request.prompt_ids.data(), i}, logits);
      EXPECT_EQ(logprobs[i].token_id, request.prompt_ids[i]);
      EXPECT_EQ(logprobs[i].logprob, logprob_of(logits, request.prompt_ids[i]).logprob);
      EXPECT_EQ(static_cast<int>(logprobs[i].top.size()), request.sampling.num_prompt_logprobs);
    }
  }

  std::vector<int32_t> output_alone(GenerateRequest request) const {
    const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
    request.sampling.max_tokens =
        std::min(request.sampling.max_tokens, config_.max_model_len - num_prompt_tokens);
    return tokens_alone(request, fake_vocab_size());
  }

  void check_last(const Live& live, const TokenEvent& event) {
    ++reached_.num_ended[static_cast<size_t>(*event.finish_reason)];
    reached_.num_constrained += live.request.constraint != nullptr;
    switch (*event.finish_reason) {
      case FinishReason::kStop:
      case FinishReason::kLength:
        EXPECT_EQ(live.output, output_alone(live.request));
        break;
      case FinishReason::kCancelled:
        EXPECT_TRUE(live.is_cancelled || is_draining_);
        break;
      case FinishReason::kDeadline:
        EXPECT_TRUE(live.request.deadline && *live.request.deadline <= now());
        break;
      case FinishReason::kError:
        if (live.request.constraint == unmatchable_ && event.error != "a fault of the simulation") {
          EXPECT_THAT(event.error, testing::HasSubstr("leaves too many open"));
          ++reached_.num_over_limit;
          break;
        }
        EXPECT_TRUE(has_failed_);
        EXPECT_EQ(event.error, "a fault of the simulation");
    }
    const RequestTimes& times = *event.times;
    EXPECT_EQ(times.num_output_tokens, static_cast<int64_t>(live.output.size()));
    EXPECT_EQ(times.first_token.has_value(), !live.output.empty());
    EXPECT_LT(times.num_cached_tokens, times.num_prompt_tokens);
    EXPECT_GE(times.queue, 0);
    if (times.first_token) {
      EXPECT_NEAR(times.queue + *times.prefill, *times.first_token, 1e-9);
      EXPECT_LE(*times.first_token + *times.decode, times.total + 1e-9);
    }
  }

  void check_end() {
    EXPECT_TRUE(live_.empty()) << "lost " << live_.begin()->first;
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.num_running + stats.num_waiting + stats.num_queued, 0);
    EXPECT_EQ(stats.num_queued_tokens, 0);
    EXPECT_EQ(stats.num_free_pages, stats.num_pages);
    EXPECT_LE(stats.num_cached_prompt_tokens, stats.num_prefix_hits);
    reached_.num_preemptions += stats.num_preemptions;
    reached_.num_hits += stats.num_prefix_hits;
    EXPECT_EQ(engine_->would_admit(1).status, is_stopped_ ? Submit::kStopped : Submit::kQueued);
  }

  std::mutex turn_;  // guards the rest; the main thread's submit ends before its request runs
  std::mt19937_64 random_;
  const int64_t num_forwards_max_;
  Reached& reached_;
  EngineConfig config_;
  int64_t fault_at_ = kNever, drain_at_ = kNever;
  std::atomic<int64_t> now_ms_ = 1000;
  FakeDevice device_ = FakeDevice::kHost;
  const std::shared_ptr<const CompiledConstraint> constraint_ =
      fake_constraint("^(?:[a-f]{2,5}stop|[g-z ]+end|[k-z]*)$");
  // Passes the limits after a few letters.
  const std::shared_ptr<const CompiledConstraint> unmatchable_ =
      fake_constraint("^(([a-z ]{0,30}){0,30}){0,30}$", {.stacks_max = 60});
  FakeMaskExecutor* masks_ = nullptr;  // the engine's
  std::map<RequestId, Live> live_;
  std::vector<RequestId> ended_ids_;
  RequestId next_id_ = 1;
  int64_t num_forwards_ = 0;
  bool is_stopped_ = false, is_draining_ = false, has_failed_ = false;
  std::unique_ptr<Engine> engine_;  // the last member: its thread uses the others
};

TEST(EngineSimulation, EveryAcceptedRequestHasOneLastEventAndItsOwnTokens) {
  const SimulationOptions& options = simulation_options();
  const int64_t num_forwards = std::max<int64_t>(1, options.num_steps_of_seed() / 10);
  Reached reached;
  for (int64_t i = 0; i < options.num_seeds; ++i) {
    const uint64_t seed = options.first_seed + static_cast<uint64_t>(i);
    SCOPED_TRACE(str("--first-seed=", seed, " --seeds=1 --steps=", options.num_steps_of_seed()));
    EngineSimulation(seed, num_forwards, reached).run();
    if (HasFailure()) return;
  }
  if (options.num_steps < 100'000) return;  // too small to reach everything
  for (const int64_t count : reached.num_ended) EXPECT_GT(count, 30);
  for (const int64_t count :
       {reached.num_queue_full, reached.num_stopped, reached.num_preemptions, reached.num_hits,
        reached.num_scored_prompts, reached.num_ids_again, reached.num_constrained,
        reached.num_on_device, reached.num_late_masks, reached.num_over_limit}) {
    EXPECT_GT(count, 30);
  }
  RecordProperty("forwards", std::to_string(reached.num_forwards));
}

}  // namespace
}  // namespace halley
