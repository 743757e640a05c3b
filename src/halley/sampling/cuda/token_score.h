// Scores of tokens: logits after masks, bias and penalties, in f64 as the CPU's sampler has
// them; their order as integers; and bins of them.
#pragma once

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "halley/sampling/cuda/device_code.h"
#include "halley/sampling/cuda/slot_state.h"

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
  return {slot, masks_stops || state.num_biases > 0 || has_penalty(state.params), masks_stops};
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
HALLEY_DEVICE inline double subtract_penalty(double score, double penalty, double count) {
#ifdef __CUDA_ARCH__
  return __dsub_rn(score, __dmul_rn(penalty, count));
#else
  return score - penalty * count;
#endif
}

/// The score of a marked token.
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
  if (!has_penalty(state.params)) return score;
  const uint32_t word = rule.slot.words[id];
  if (word != 0 && state.params.repetition_penalty != 1) {
    score = score > 0 ? score / state.params.repetition_penalty
                      : score * state.params.repetition_penalty;
    score = score < DBL_MAX ? score : DBL_MAX;
  }
  const uint32_t count = word & ~kIsInPrompt;
  if (count == 0) return score;
  score = subtract_penalty(score, state.params.frequency_penalty, static_cast<double>(count));
  return score - state.params.presence_penalty;
}

/// The order of the scores; equal for 0 and -0. Not for NaN.
constexpr uint64_t key_of(double score) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  const auto bits = std::bit_cast<uint64_t>(score == 0 ? 0.0 : score);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

/// How many bits x takes; 0 takes none. nvcc 13 compiles std::bit_width in device code to the
/// constant 0.
HALLEY_DEVICE inline int num_bits(uint64_t x) {
#ifdef __CUDA_ARCH__
  return 64 - __clzll(static_cast<long long>(x));
#else
  return static_cast<int>(std::bit_width(x));
#endif
}

/// How far below the largest score: `depth`, in temperatures, so that a token's weight is
/// e^-depth; and the bin of scores that it falls into. The last bin takes all that is deeper.
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

/// depth / kBinDepth, up to a few roundings; never falls as scores fall.
constexpr double position_of(const ScoreScale& scale, double score) {
  return (scale.max - score) * scale.bins_per_score;
}

constexpr int bin_of(double position) {
  return position < kNumBins - 1 ? static_cast<int>(position) : kNumBins - 1;
}

/// The weight exactly as the CPU's sampler has it.
HALLEY_DEVICE inline double weight_of(const ScoreScale& scale, double score) {
  return exp((score - scale.max) / scale.temperature);
}

/// Whether a token has a weight above 0 that min_p allows, without computing it where the depth
/// leaves no doubt.
struct WeightLimit {
  double position_sure = 0, position_never = 0;
  double min_p = 0;
};

HALLEY_DEVICE inline WeightLimit weight_limit(const ChoiceParams& params) {
  constexpr double kDoubt = 1e-6;              // much more than rounding does
  constexpr double kSure = 700, kNever = 746;  // e^-746 is 0 in f64
  const double depth = params.min_p > 0 ? -log(params.min_p) : kNever;
  return {(depth - kDoubt < kSure ? depth - kDoubt : kSure) / kBinDepth,
          (depth + kDoubt < kNever ? depth + kDoubt : kNever) / kBinDepth, params.min_p};
}

HALLEY_DEVICE inline bool allows(const WeightLimit& limit, const ScoreScale& scale, double score,
                                 double position) {
  if (position < limit.position_sure) return true;
  if (position > limit.position_never) return false;
  const double weight = weight_of(scale, score);
  return weight > 0 && weight >= limit.min_p;
}

/// Weights as integers, so that sums of them do not depend on an order: in units of
/// 2^-kWeightBits of what a token at the upper edge of its bin has. 2^19 of them fit 64 bits.
inline constexpr int kWeightBits = 44;
inline constexpr double kWeightUnits = static_cast<double>(uint64_t{1} << kWeightBits);

HALLEY_DEVICE inline uint64_t whole_weight(double position, int bin) {
  const double x = (bin - position) * kBinDepth;
  if (bin == kNumBins - 1) return static_cast<uint64_t>(exp(x) * kWeightUnits);
  // The series of e^x, |x| <= kBinDepth: what is left out is below 3e-18.
  double sum = 1.0 / 5040;
  sum = sum * x + 1.0 / 720;
  sum = sum * x + 1.0 / 120;
  sum = sum * x + 1.0 / 24;
  sum = sum * x + 1.0 / 6;
  sum = sum * x + 0.5;
  sum = sum * x + 1;
  sum = sum * x + 1;
  return static_cast<uint64_t>(sum * kWeightUnits);
}

HALLEY_DEVICE inline double weight_of_bin(uint64_t whole_weights, int bin) {
  return static_cast<double>(whole_weights) * (1 / kWeightUnits) * exp(-(bin * kBinDepth));
}

}  // namespace halley::cuda
