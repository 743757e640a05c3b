// For tests: engines with the fake model, and the expected output of a request that runs alone.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/constraint/grammar_constraint.h"
#include "halley/constraint/pattern.h"
#include "halley/constraint/token_trie.h"
#include "halley/engine/engine.h"
#include "halley/engine/generate.h"
#include "halley/engine/testing/fake_causal_lm.h"
#include "halley/engine/testing/fake_step_runner.h"
#include "halley/engine/testing/fake_tokenizer.h"
#include "halley/sampling/base/sampler.h"

namespace halley {

/// Letters, pieces of several letters, and single bytes of multi-byte characters.
inline std::vector<std::string> fake_pieces() {
  std::vector<std::string> pieces = {"<|eos|>", "<|pad|>", " ",    "stop", "st",   "op",
                                     "end",     "\n",      "\xC3", "\xA9", "\xE2", "\x82",
                                     "\xAC",    "\xF0",    "\x9F", "\x98", "\x80", "\xFF"};
  for (char letter = 'a'; letter <= 'z'; ++letter) pieces.emplace_back(1, letter);
  return pieces;
}

inline int64_t fake_vocab_size() { return static_cast<int64_t>(fake_pieces().size()); }
inline constexpr int32_t kFakeEos = 0;

inline std::shared_ptr<const Tokenizer> fake_tokenizer() {
  return std::make_shared<FakeTokenizer>(fake_pieces());
}

/// The device of the fake model. On a fake device a step runs at its launch, or when the engine
/// waits for it.
enum class FakeDevice : uint8_t { kHost, kDeviceAtWait, kDeviceAtLaunch };

struct FakeModelOptions {
  FakeDevice device = FakeDevice::kHost;
  int64_t vocab_size = fake_vocab_size();
  int64_t max_positions = 512;
};

inline std::unique_ptr<FakeCausalLm> fake_model(FakeLogits logits_of = hashed_logits,
                                                const FakeModelOptions& options = {}) {
  if (options.device == FakeDevice::kHost) {
    return std::make_unique<FakeCausalLm>(options.vocab_size, std::move(logits_of),
                                          options.max_positions);
  }
  return std::make_unique<FakeDeviceLm>(options.vocab_size, std::move(logits_of),
                                        options.max_positions,
                                        options.device == FakeDevice::kDeviceAtLaunch);
}

inline std::unique_ptr<Engine> fake_engine(std::unique_ptr<CausalLm> model,
                                           const EngineConfig& config = {}) {
  return std::make_unique<Engine>(std::move(model), fake_tokenizer(),
                                  std::vector<int32_t>{kFakeEos}, config);
}

/// Logits that prefer script[n] as token n of the output, then eos.
inline FakeLogits scripted_logits(std::vector<int32_t> script, size_t num_prompt_tokens) {
  return [script = std::move(script), num_prompt_tokens](std::span<const int32_t> tokens,
                                                         std::span<float> logits) {
    const size_t n = tokens.size() - num_prompt_tokens;
    for (float& logit : logits) logit = 0;
    logits[static_cast<size_t>(n < script.size() ? script[n] : kFakeEos)] = 10;
  };
}

inline GenerateRequest greedy_request(std::vector<int32_t> prompt_ids, int64_t max_tokens = 20) {
  GenerateRequest request;
  request.prompt_ids = std::move(prompt_ids);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  return request;
}

inline GenerateResult generate_one(Engine& engine, GenerateRequest request) {
  return generate_all(engine, {std::move(request)})[0];
}

/// Logits of a model that writes `text`, by the longest pieces, and then eos.
inline GenerateResult generate_text(std::string_view text, const SamplingParams& sampling,
                                    const FakeModelOptions& options = {}) {
  GenerateRequest request = greedy_request({1}, 1000);
  request.sampling = sampling;
  request.sampling.temperature = 0;
  const auto engine =
      fake_engine(fake_model(scripted_logits(fake_tokenizer()->encode(text, false), 1), options));
  return generate_one(*engine, std::move(request));
}

/// A constraint on outputs that match the pattern, for the fake tokenizer.
inline std::shared_ptr<const CompiledConstraint> fake_constraint(const std::string& pattern,
                                                                 const MatcherLimits& limits = {}) {
  const std::vector<int32_t> eos = {kFakeEos};
  GrammarBuilder builder("grammar");
  Grammar grammar = builder.finish(pattern_texts(builder, pattern, TextForm::kUtf8, "pattern"));
  return compile_constraint(TokenTrie::from_tokenizer(*fake_tokenizer(), eos), std::move(grammar),
                            limits);
}

/// The expected tokens of a request: computed without engine, cache and batch.
inline std::vector<int32_t> tokens_alone(const GenerateRequest& request, int64_t vocab_size) {
  std::vector<int32_t> tokens = request.prompt_ids;
  std::vector<int32_t> output;
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  SamplerScratch scratch;
  SampledToken chosen;
  Sampler sampler(token_choice_of(request.sampling, {kFakeEos}, 0), tokens);
  std::unique_ptr<TokenConstraint> constraint;
  if (request.constraint != nullptr) constraint = request.constraint->start();
  TokenMask allowed;
  while (static_cast<int64_t>(output.size()) < request.sampling.max_tokens) {
    hashed_logits(tokens, logits);
    HALLEY_CHECK(constraint == nullptr || constraint->fill_allowed(allowed));
    HALLEY_CHECK(
        sampler.sample(logits, scratch, chosen, constraint == nullptr ? nullptr : &allowed) ==
        SampleStatus::kChosen);
    tokens.push_back(chosen.token_id);
    output.push_back(chosen.token_id);
    if (chosen.token_id == kFakeEos) break;
    if (constraint == nullptr) continue;
    HALLEY_CHECK(constraint->accept(chosen.token_id));
    if (constraint->is_complete()) break;
  }
  return output;
}

/// Base of suites that run on every FakeDevice: inside of their tests fake_model() is on the tested
/// one.
class OnFakeModels : public testing::TestWithParam<FakeDevice> {
 protected:
  static std::unique_ptr<FakeCausalLm> fake_model(FakeLogits logits_of = hashed_logits,
                                                  FakeModelOptions options = {}) {
    options.device = GetParam();
    return halley::fake_model(std::move(logits_of), options);
  }
  static GenerateResult generate_text(std::string_view text, const SamplingParams& sampling) {
    return halley::generate_text(text, sampling, {.device = GetParam()});
  }
  static bool is_on_host() { return GetParam() == FakeDevice::kHost; }
};

inline auto fake_devices() {
  return testing::Values(FakeDevice::kHost, FakeDevice::kDeviceAtWait, FakeDevice::kDeviceAtLaunch);
}
inline std::string name_of_fake_device(const testing::TestParamInfo<FakeDevice>& tested) {
  constexpr const char* kNames[] = {"Host", "DeviceAtWait", "DeviceAtLaunch"};
  return kNames[static_cast<size_t>(tested.param)];
}

/// Lets one thread wait for another without sleeping.
class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

}  // namespace halley
