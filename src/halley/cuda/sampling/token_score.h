// Scores of tokens: logits after masks, bias and penalties, in f64 as the engine's sampler has
// them; their order as integers; and bins of them.
#pragma once

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "halley/cuda/sampling/device_code.h"
#include "halley/cuda/sampling/slot_state.h"

namespace halley::cuda {

/// How a row's logits become scores.
struct ScoreRule {
  SlotView slot;
  bool is_adjusted = false;  // else a score is its logit
  bool masks_stops = false;
};

constexpr ScoreRule score_rule(const SlotView& slot) {
  const SlotState& state = slot.image->state;
  const bool masks_stops = state.num_stop_ids > 0 && state.num_output_tokens < state.min_tokens;
  return {slot, masks_stops || state.num_biases > 0 || has_penalty(state), masks_stops};
}

/// Index of `id` in ascending `ids`; -1: not there.
constexpr int find_id(const int32_t* ids, int num_ids, int32_t id) {
  int begin = 0, end = num_ids;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (ids[middle] < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < num_ids && ids[begin] == id ? begin : -1;
}

/// score - penalty * count, both operations rounded, as on the host.
HALLEY_DEVICE inline double minus_product(double score, double penalty, double count) {
#ifdef __CUDA_ARCH__
  return __dsub_rn(score, __dmul_rn(penalty, count));
#else
  return score - penalty * count;
#endif
}

/// Of a token that is marked.
__attribute__((noinline)) HALLEY_DEVICE inline double adjusted_score(const ScoreRule& rule,
                                                                     int32_t id, float logit) {
  const SlotImage& image = *rule.slot.image;
  const SlotState& state = image.state;
  double score = double{logit};
  if (rule.masks_stops && find_id(image.stop_ids, state.num_stop_ids, id) >= 0) {
    score = -INFINITY;
  }
  const int bias = find_id(image.bias_ids, state.num_biases, id);
  if (bias >= 0) score += image.biases[bias];
  if (!has_penalty(state)) return score;
  const uint32_t word = rule.slot.words[id];
  if (word != 0 && state.repetition_penalty != 1) {
    score = score > 0 ? score / state.repetition_penalty : score * state.repetition_penalty;
    score = score < DBL_MAX ? score : DBL_MAX;
  }
  const uint32_t count = word & ~kIsInPrompt;
  if (count == 0) return score;
  score = minus_product(score, state.frequency_penalty, static_cast<double>(count));
  return score - state.presence_penalty;
}

/// The order of the scores; equal for 0 and -0. Not for NaN.
constexpr uint64_t key_of(double score) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  const auto bits = std::bit_cast<uint64_t>(score == 0 ? 0.0 : score);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

/// Bins of scores by their distance from the largest, in temperatures: all of one bin have about
/// the same weight. The last one takes the rest.
inline constexpr int kNumBins = 2048;
inline constexpr double kBinDepth = 0.0234375;  // kNumBins of them: weights down to e^-48

struct ScoreScale {
  double max = 0;
  double temperature = 1;
  double bins_per_score = 0;
};

constexpr ScoreScale score_scale(double max, double temperature) {
  const double bins = 1 / kBinDepth / temperature;
  return {max, temperature, bins < DBL_MAX ? bins : DBL_MAX};
}

/// Never falls as scores fall.
constexpr int bin_of(const ScoreScale& scale, double score) {
  const double position = (scale.max - score) * scale.bins_per_score;
  return position < kNumBins - 1 ? static_cast<int>(position) : kNumBins - 1;
}

/// The weight that a token is drawn with, as the engine's sampler has it.
HALLEY_DEVICE inline double weight_of(const ScoreScale& scale, double score) {
  return exp((score - scale.max) / scale.temperature);
}

/// Weights as integers, so that sums of them do not depend on an order: in units of
/// 2^-kWeightBits of what a token at the upper edge of its bin has. 2^19 of them fit 64 bits.
inline constexpr int kWeightBits = 44;

HALLEY_DEVICE inline uint64_t whole_weight(const ScoreScale& scale, double score, int bin) {
  const double depth = (scale.max - score) / scale.temperature;
  return static_cast<uint64_t>(exp(bin * kBinDepth - depth) *
                               static_cast<double>(1ull << kWeightBits));
}

HALLEY_DEVICE inline double weight_of_bin(uint64_t whole_weights, int bin) {
  return static_cast<double>(whole_weights) * (1.0 / static_cast<double>(1ull << kWeightBits)) *
         exp(-(bin * kBinDepth));
}

}  // namespace halley::cuda
