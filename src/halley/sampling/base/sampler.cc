#include "halley/sampling/base/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "halley/base/check.h"
#include "halley/core/philox.h"

namespace halley {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool comes_before(const SampleCandidate& a, const SampleCandidate& b) {
  return a.score != b.score ? a.score > b.score : a.token_id < b.token_id;
}

bool has_lower_id(const SampleCandidate& a, const SampleCandidate& b) {
  return a.token_id < b.token_id;
}

double total_weight(std::span<const SampleCandidate> candidates) {
  double total = 0;
  for (const SampleCandidate& candidate : candidates) total += candidate.weight;
  return total;
}

void keep_top_k(std::vector<SampleCandidate>& candidates, int64_t k) {
  if (k <= 0 || k >= static_cast<int64_t>(candidates.size())) return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(),
                   comes_before);
  candidates.resize(static_cast<size_t>(k));
}

/// Weights relative to the best candidate; those without any are left out.
void weigh_again(std::vector<SampleCandidate>& candidates, double temperature) {
  const double max = std::min_element(candidates.begin(), candidates.end(), comes_before)->score;
  for (SampleCandidate& candidate : candidates) {
    candidate.weight = std::exp((candidate.score - max) / temperature);
  }
  std::erase_if(candidates, [](const SampleCandidate& candidate) { return candidate.weight <= 0; });
}

const SampleCandidate& draw(std::span<const SampleCandidate> candidates, double uniform) {
  const double target = uniform * total_weight(candidates);
  double sum = 0;
  for (const SampleCandidate& candidate : candidates) {
    sum += candidate.weight;
    if (target < sum) return candidate;
  }
  return candidates.back();  // not reached: uniform < 1, and the sums are the same
}

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  const float max = *std::max_element(logits.begin(), logits.end());
  if (std::isinf(max)) return double{max};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{max});
  return double{max} + std::log(sum);
}

TokenLogprob logprob_of(std::span<const float> logits, int32_t token_id) {
  const double logit = logits[static_cast<size_t>(token_id)];
  return {token_id, static_cast<float>(logit - log_sum_exp(logits))};
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int num_top,
                                       SamplerScratch& scratch) {
  std::vector<int32_t>& ids = scratch.ids;
  ids.resize(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const size_t count = std::min(static_cast<size_t>(num_top), ids.size());
  const auto logit_of = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end(),
                    [&](int32_t a, int32_t b) {
                      return logit_of(a) != logit_of(b) ? logit_of(a) > logit_of(b) : a < b;
                    });
  const double normalizer = log_sum_exp(logits);
  std::vector<TokenLogprob> best;
  for (size_t i = 0; i < count; ++i) {
    best.push_back({ids[i], static_cast<float>(double{logit_of(ids[i])} - normalizer)});
  }
  return best;
}

Sampler::Sampler(TokenChoice choice, std::span<const int32_t> prompt_ids)
    : choice_(std::move(choice)) {
  if (has_dry(params())) dry_.emplace(params(), choice_.dry_breakers, prompt_ids);
  if (params().repetition_penalty == 1.0) return;
  prompt_ids_.assign(prompt_ids.begin(), prompt_ids.end());
  std::sort(prompt_ids_.begin(), prompt_ids_.end());
  prompt_ids_.erase(std::unique(prompt_ids_.begin(), prompt_ids_.end()), prompt_ids_.end());
}

void Sampler::record(int32_t token_id) {
  ++output_counts_[token_id];
  ++num_output_tokens_;
  if (dry_) dry_->record(token_id);
}

void Sampler::apply_penalties(std::vector<double>& scores) const {
  const auto score_of = [&](int32_t id) -> double& { return scores[static_cast<size_t>(id)]; };
  if (params().repetition_penalty != 1.0) {
    const auto repeat = [&](int32_t id) {
      double& score = score_of(id);
      score = score > 0 ? score / params().repetition_penalty : score * params().repetition_penalty;
      // A tiny penalty must not make an infinity: differences of two would be NaN.
      score = std::min(score, std::numeric_limits<double>::max());
    };
    for (const int32_t id : prompt_ids_) repeat(id);
    for (const auto& [id, count] : output_counts_) {
      if (!std::binary_search(prompt_ids_.begin(), prompt_ids_.end(), id)) repeat(id);
    }
  }
  if (params().frequency_penalty == 0 && params().presence_penalty == 0) return;
  for (const auto& [id, count] : output_counts_) {
    score_of(id) -= params().frequency_penalty * static_cast<double>(count);
    score_of(id) -= params().presence_penalty;
  }
}

void Sampler::adjust(SamplerScratch& scratch, const TokenMask* allowed) const {
  std::vector<double>& scores = scratch.scores;
  for (size_t id = 0; allowed != nullptr && id < scores.size(); ++id) {
    if (!has_token(*allowed, id)) scores[id] = -kInfinity;
  }
  if (num_output_tokens_ < choice_.min_tokens) {
    for (const int32_t id : choice_.stop_ids) scores[static_cast<size_t>(id)] = -kInfinity;
  }
  for (const auto& [id, bias] : choice_.logit_bias) scores[static_cast<size_t>(id)] += bias;
  apply_penalties(scores);
  if (dry_) dry_->apply(scores, scratch.repeats);
}

void Sampler::keep_top_p(std::vector<SampleCandidate>& candidates) const {
  if (params().top_p >= 1) return;
  const double target = params().top_p * total_weight(candidates);
  // A heap, since the tokens that are kept are few mostly: the best moves to the end, one by one.
  const auto comes_after = [](const SampleCandidate& a, const SampleCandidate& b) {
    return comes_before(b, a);
  };
  std::make_heap(candidates.begin(), candidates.end(), comes_after);
  auto heap_end = candidates.end();
  double sum = 0;
  do {
    std::pop_heap(candidates.begin(), heap_end, comes_after);
    --heap_end;
    sum += heap_end->weight;
  } while (sum < target && heap_end != candidates.begin());
  candidates.erase(candidates.begin(), heap_end);
}

// Uses the half of the token's random block that the draw leaves.
bool Sampler::draws_xtc() const {
  if (!has_xtc(params())) return false;
  const uint64_t bits =
      random_half(choice_.seed, static_cast<uint64_t>(num_output_tokens_), /*half=*/1);
  return uniform_of(bits) < params().xtc_probability;
}

// `max` is the largest score.
void Sampler::keep_xtc(std::vector<SampleCandidate>& candidates, double max) const {
  const auto plain = [&](const SampleCandidate& candidate) {
    return std::exp(candidate.score - max);  // before temperature
  };
  double total = 0;
  for (const SampleCandidate& candidate : candidates) total += plain(candidate);
  const double least = params().xtc_threshold * total;
  const SampleCandidate* kept = nullptr;  // the last one that reaches the threshold
  for (const SampleCandidate& candidate : candidates) {
    if (plain(candidate) < least) continue;
    if (kept == nullptr || comes_before(*kept, candidate)) kept = &candidate;
  }
  if (kept == nullptr) return;
  std::erase_if(candidates, [last = *kept](const SampleCandidate& candidate) {
    return comes_before(candidate, last);
  });
}

SampleStatus Sampler::filter(std::span<const float> logits, SamplerScratch& scratch,
                             const TokenMask* allowed) const {
  for (const float logit : logits) {
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) {
      return SampleStatus::kNotFinite;
    }
  }
  std::vector<double>& scores = scratch.scores;
  scores.assign(logits.begin(), logits.end());
  adjust(scratch, allowed);
  const auto best = std::max_element(scores.begin(), scores.end());  // the first of equals
  const double max = *best;
  scratch.candidates.clear();
  if (max == -kInfinity) return SampleStatus::kNothingLeft;
  const bool has_xtc_now = draws_xtc();
  const bool is_greedy = params().temperature == 0;
  if (is_greedy && !has_xtc_now) {
    scratch.candidates.push_back({static_cast<int32_t>(best - scores.begin()), max, 1});
    return SampleStatus::kChosen;
  }
  const double temperature = is_greedy ? 1 : params().temperature;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp((scores[i] - max) / temperature);
    // The largest weight is 1, so that min_p compares with the weights as they are. What a low
    // temperature leaves no weight may have some once XTC has left out others.
    const bool has_weight = has_xtc_now ? scores[i] > -kInfinity : weight > 0;
    if (has_weight && weight >= params().min_p) {
      scratch.candidates.push_back({static_cast<int32_t>(i), scores[i], weight});
    }
  }
  keep_top_k(scratch.candidates, params().top_k);
  keep_top_p(scratch.candidates);
  if (has_xtc_now) {
    keep_xtc(scratch.candidates, max);
    weigh_again(scratch.candidates, temperature);
  }
  if (is_greedy) {
    scratch.candidates = {
        *std::min_element(scratch.candidates.begin(), scratch.candidates.end(), comes_before)};
  }
  if (!std::is_sorted(scratch.candidates.begin(), scratch.candidates.end(), has_lower_id)) {
    std::sort(scratch.candidates.begin(), scratch.candidates.end(), has_lower_id);
  }
  return SampleStatus::kChosen;
}

SampleStatus Sampler::sample(std::span<const float> logits, SamplerScratch& scratch,
                             SampledToken& chosen, const TokenMask* allowed) {
  const SampleStatus status = filter(logits, scratch, allowed);
  if (status != SampleStatus::kChosen) return status;
  HALLEY_CHECK(!scratch.candidates.empty());
  const double uniform = random_uniform(choice_.seed, static_cast<uint64_t>(num_output_tokens_));
  chosen.token_id = draw(scratch.candidates, uniform).token_id;
  if (choice_.num_logprobs >= 0) {
    chosen.logprob = logprob_of(logits, chosen.token_id);
    chosen.top_logprobs = top_logprobs(logits, choice_.num_logprobs, scratch);
  }
  record(chosen.token_id);
  return status;
}

}  // namespace halley
