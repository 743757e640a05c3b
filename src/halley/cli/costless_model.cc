#include "halley/cli/costless_model.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <deque>
#include <string>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"
#include "halley/models/base/step_runner.h"

namespace halley::cli {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr size_t kNumDigits = 5;
constexpr int64_t kKvBytes = int64_t{256} << 20;

void sleep_until(int64_t ns) {
  const timespec time = {.tv_sec = ns / kNsPerSecond, .tv_nsec = ns % kNsPerSecond};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
  }
}

class CostlessRunner final : public StepRunner {
 public:
  explicit CostlessRunner(StepTimes& times) : times_(times) {}

  void start_slot(int32_t, const TokenChoice&, std::span<const int32_t>,
                  std::span<const int32_t>) override {}

  void launch(const RunnerStep& step, const KvCacheView&) override {
    const bool has_deferred = std::any_of(step.choices.begin(), step.choices.end(),
                                          [](const auto& choice) { return choice.is_deferred; });
    if (!step.batch.logit_rows.empty() || has_deferred) {
      throw UnsupportedError("costless model: it has no logits. Ask for tokens alone.");
    }
    num_choices_.push_back(step.choices.size());
  }

  void choose(std::span<const MaskedChoice> choices) override {
    check_failed("a deferred choice", str(choices.size()), __FILE__, __LINE__);
  }

  bool is_ready() const override { return true; }

  const StepResult& wait() override {
    HALLEY_CHECK(!num_choices_.empty());
    const int64_t period_ns = times_.period_ns.load(std::memory_order_relaxed);
    if (period_ns > 0) {
      // After a pause the period starts anew; missed steps are not made up for.
      next_ns_ = std::max(next_ns_ + period_ns, monotonic_ns());
      sleep_until(next_ns_);
    }
    const auto id = static_cast<int32_t>(num_steps_++ % StepTimes::kNumIds);
    ChosenToken chosen;
    chosen.token.token_id = id;
    result_.chosen.assign(num_choices_.front(), chosen);
    num_choices_.pop_front();
    times_.end_ns[static_cast<size_t>(id)].store(monotonic_ns(), std::memory_order_release);
    return result_;
  }

 private:
  StepTimes& times_;
  std::deque<size_t> num_choices_;  // one for each step in flight
  int64_t num_steps_ = 0;
  int64_t next_ns_ = 0;
  StepResult result_;
};

class CostlessLm final : public CausalLm {
 public:
  CostlessLm(StepTimes& times, int64_t max_positions)
      : shape_({.num_layers = 1,
                .num_kv_heads = 1,
                .head_dim = 1,
                .vocab_size = StepTimes::kNumIds,
                .max_positions = max_positions,
                .kv_dtype_default = KvDType::kF16}),
        runner_(times) {}

  const ModelShape& shape() const override { return shape_; }
  void forward(const ForwardBatch&, const KvCacheView&, Matrix) override {
    throw UnsupportedError("costless model: it has no logits. Ask for tokens alone.");
  }
  std::optional<int64_t> prepare(const StepLimits&) override { return kKvBytes; }
  StepRunner* step_runner() override { return &runner_; }
  std::string device_name() const override { return "none"; }

 private:
  ModelShape shape_;
  CostlessRunner runner_;
};

std::string digits_of(int32_t id) {
  const std::string digits = std::to_string(id);
  return std::string(kNumDigits - digits.size(), '0') + digits;
}

}  // namespace

int64_t monotonic_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * kNsPerSecond + time.tv_nsec;
}

std::unique_ptr<CausalLm> make_costless_model(StepTimes& times, int64_t max_positions) {
  return std::make_unique<CostlessLm>(times, max_positions);
}

std::unique_ptr<Tokenizer> make_step_tokenizer() {
  Json vocabulary = Json::object();
  for (int32_t id = 0; id < StepTimes::kNumIds; ++id) {
    vocabulary["\u0120" + digits_of(id)] = id;  // a space, in the alphabet of byte-level BPE
  }
  const Json json = {
      {"version", "1.0"},
      {"added_tokens", Json::array()},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", Json::array()}}}};
  return parse_tokenizer_json(json.dump(), "tokenizer of steps");
}

std::optional<int32_t> step_of_text(std::string_view text) {
  int32_t id = 0;
  if (text.size() != kNumDigits + 1 || text.front() != ' ') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (id < 0 || id >= StepTimes::kNumIds) return std::nullopt;
  return id;
}

}  // namespace halley::cli
