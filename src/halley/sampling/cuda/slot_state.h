// The state of a sequence's sampling in device memory: a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "halley/sampling/base/token_choice.h"

namespace halley::cuda {

inline constexpr int kSlotListMax = 1024;

/// A TokenChoice and how far its sequence is.
struct SlotState {
  ChoiceParams params;
  int64_t min_tokens = 0;
  uint64_t seed = 0;
  int64_t num_output_tokens = 0;
  int32_t num_biases = 0, num_stop_ids = 0;
  int32_t num_logprobs = -1;
  int32_t last_token = 0;  // when the slot was started
};

/// The lists as far as the state says, ids ascending.
struct SlotImage {
  SlotState state;
  double biases[kSlotListMax];
  int32_t bias_ids[kSlotListMax];
  int32_t stop_ids[kSlotListMax];
};

/// Set in an element of ChoiceOutputs::slots whose row is not chosen from: its logits wait at the
/// slot.
inline constexpr int32_t kIsDeferred = int32_t{1} << 30;

/// Set in a token's word iff the token is in the prompt. The other bits count how often it is in
/// the output.
inline constexpr uint32_t kIsInPrompt = uint32_t{1} << 31;

/// One slot's memory.
struct SlotView {
  SlotImage* image = nullptr;
  /// A bit for each token: 1 where its score may differ from its logit. Valid where a list is not
  /// empty or a penalty is set.
  uint32_t* marks = nullptr;
  uint32_t* words = nullptr;  // for each token; valid where a penalty is set
  int32_t* last_token = nullptr;
};

/// All slots' memory.
struct SlotMemory {
  SlotImage* images = nullptr;
  uint32_t* marks = nullptr;
  uint32_t* words = nullptr;
  int32_t* last_tokens = nullptr;
  float* deferred = nullptr;                  // logits that wait for choose_deferred()
  int64_t num_mark_words = 0, num_words = 0;  // of a slot; it has num_words logits

  constexpr SlotView slot(int64_t index) const {
    return {images + index, marks + index * num_mark_words, words + index * num_words,
            last_tokens + index};
  }
  constexpr float* deferred_logits(int64_t index) const { return deferred + index * num_words; }
};

/// On the host: the image that a sequence starts with. Lists are written as far as they go. Throws
/// UnsupportedError where one is longer than kSlotListMax.
void write_slot_image(const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                      std::span<const int32_t> output_ids, SlotImage& image);

}  // namespace halley::cuda
