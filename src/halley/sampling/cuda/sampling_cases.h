// For tests of samplers: logits of many kinds, and parameters alone and mixed, from seeds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/str.h"
#include "halley/sampling/base/sampler.h"
#include "halley/sampling/base/sampling_params.h"
#include "halley/sampling/base/token_choice.h"
#include "halley/sampling/base/token_mask.h"

namespace halley {

enum class LogitKind {
  kNormal,     // as of a model with random weights: nothing stands out
  kPeaked,     // as of a trained model: few are far above the others
  kTies,       // five different values
  kEqual,      // one value
  kMasked,     // nearly all are -infinity
  kExtreme,    // up to the largest f32, zeros of both signs, the smallest
  kNan,        // one of them
  kInfinity,   // +infinity once
  kAllMasked,  // -infinity
  kEnd
};

inline std::vector<float> random_logits(LogitKind kind, int64_t vocab_size, std::mt19937& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<size_t> some_id(0, logits.size() - 1);
  for (float& logit : logits) {
    const float x = normal(random);
    switch (kind) {
      case LogitKind::kPeaked:
        logit = 3 * x - 2;
        break;
      case LogitKind::kTies:
        logit = 0.5f * std::round(std::clamp(x, -1.0f, 1.0f) * 2);
        break;
      case LogitKind::kEqual:
        logit = -1.25f;
        break;
      case LogitKind::kMasked:
        logit = random() % 64 == 0 ? x : -kInfinity;
        break;
      case LogitKind::kAllMasked:
        logit = -kInfinity;
        break;
      case LogitKind::kExtreme: {
        const float values[] = {x,       0.0f,  -0.0f, 1e-45f,   -1e-45f,
                                3.4e38f, 1e-6f, 1e30f, -3.4e38f, -1e20f};
        logit = values[random() % (random() % 8 == 0 ? 10 : 5)];
        break;
      }
      default:
        logit = x;
    }
  }
  if (kind == LogitKind::kPeaked) {
    for (int i = 0; i < 8; ++i) logits[some_id(random)] = 12 + 2 * normal(random);
  }
  if (kind == LogitKind::kMasked) logits[some_id(random)] = 1;
  if (kind == LogitKind::kNan) logits[some_id(random)] = std::nanf("");
  if (kind == LogitKind::kInfinity) logits[some_id(random)] = kInfinity;
  return logits;
}

/// A sequence in the middle of its output.
struct SamplingCase {
  SamplingParams params;
  std::vector<int32_t> stop_ids, prompt_ids, output_ids;
  uint64_t seed = 0;
};

inline std::string to_string(const SamplingCase& what) {
  const SamplingParams& p = what.params;
  return str("temperature ", p.temperature, ", top_k ", p.top_k, ", top_p ", p.top_p, ", min_p ",
             p.min_p, ", repetition ", p.repetition_penalty, ", presence ", p.presence_penalty,
             ", frequency ", p.frequency_penalty, ", ", p.logit_bias.size(), " biases, min_tokens ",
             p.min_tokens, ", logprobs ", p.num_logprobs);
}

/// Each parameter is set now and then; about one case in four is greedy.
inline SamplingCase random_sampling_case(int64_t vocab_size, std::mt19937& random) {
  const auto one_in = [&](uint32_t n) { return random() % n == 0; };
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto some_id = [&] {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
  };
  SamplingCase what;
  SamplingParams& p = what.params;
  p.temperature = one_in(4) ? 0 : one_in(6) ? uniform(0, 0.05) : uniform(0.3, 2);
  if (one_in(2)) p.top_k = one_in(3) ? 1 + random() % 3 : 1 + some_id();
  if (one_in(2)) p.top_p = one_in(8) ? 1e-9 : one_in(8) ? 1 - 1e-9 : uniform(0.05, 1);
  if (one_in(3)) p.min_p = one_in(8) ? 1 : std::exp(uniform(-12, 0));
  if (one_in(4)) p.repetition_penalty = one_in(6) ? 1e-300 : uniform(0.5, 2);
  if (one_in(4)) p.presence_penalty = uniform(-2, 2);
  if (one_in(4)) p.frequency_penalty = uniform(-2, 2);
  if (one_in(4)) {
    for (uint32_t i = 0; i < 1 + random() % 8; ++i) p.logit_bias[some_id()] = uniform(-10, 10);
    if (one_in(3)) p.logit_bias[some_id()] = -100;
  }
  if (one_in(4)) p.num_logprobs = static_cast<int>(random() % 21);
  if (one_in(4)) {
    what.stop_ids = {some_id(), some_id(), some_id()};
    p.min_tokens = 6;
    p.max_tokens = 100;
  }
  for (uint32_t i = 0; i < 1 + random() % 30; ++i) what.prompt_ids.push_back(some_id());
  for (uint32_t i = 0; i < random() % 4; ++i) what.output_ids.push_back(some_id());
  what.seed = uint64_t{random()} << 32 | random();
  return what;
}

/// A mask that allows about one token in `n`, and now and then has no words for the last ones.
inline TokenMask random_mask(int64_t vocab_size, uint32_t n, std::mt19937& random) {
  TokenMask mask(static_cast<size_t>((vocab_size + 63) / 64));
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (random() % n == 0) mask[static_cast<size_t>(id / 64)] |= uint64_t{1} << (id % 64);
  }
  if (random() % 4 == 0) mask.pop_back();
  return mask;
}

/// The case for the GPU's sampler, and for that of the CPU.
inline TokenChoice make_token_choice(const SamplingCase& what) {
  return token_choice_of(what.params, what.stop_ids, what.seed);
}

inline Sampler make_sampler(const SamplingCase& what) {
  Sampler sampler(make_token_choice(what), what.prompt_ids);
  for (const int32_t id : what.output_ids) sampler.record(id);
  return sampler;
}

/// Empty: the choices are the same. Log-probabilities may differ by an f32's rounding.
inline std::string difference_of(const SampledToken& got, const SampledToken& expected) {
  if (got.token_id != expected.token_id) {
    return str("expected token ", expected.token_id, ", got ", got.token_id);
  }
  const auto is_near = [](float a, float b) {
    return a == b || std::abs(a - b) <= 2e-7f * std::max(1.0f, std::abs(b));
  };
  if (got.logprob.has_value() != expected.logprob.has_value()) return "one has no logprob";
  if (got.logprob && !is_near(got.logprob->logprob, expected.logprob->logprob)) {
    return str("expected logprob ", expected.logprob->logprob, ", got ", got.logprob->logprob);
  }
  if (got.top_logprobs.size() != expected.top_logprobs.size()) {
    return str("expected ", expected.top_logprobs.size(), " top logprobs, got ",
               got.top_logprobs.size());
  }
  for (size_t i = 0; i < got.top_logprobs.size(); ++i) {
    const TokenLogprob &a = got.top_logprobs[i], &b = expected.top_logprobs[i];
    if (a.token_id != b.token_id || !is_near(a.logprob, b.logprob)) {
      return str("top logprob ", i, ": expected ", b.token_id, " with ", b.logprob, ", got ",
                 a.token_id, " with ", a.logprob);
    }
  }
  return "";
}

}  // namespace halley
