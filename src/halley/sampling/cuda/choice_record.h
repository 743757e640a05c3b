// The result of a choice as the GPU writes it.
#pragma once

#include <array>
#include <cstdint>

#include "halley/cuda/runtime/device_span.h"
#include "halley/sampling/base/token_choice.h"

namespace halley::cuda {

/// CudaSampler::choose() writes one for a row; an array of them is copied to the host as it is.
struct ChoiceRecord {
  int32_t token_id = 0;
  int32_t status = 0;   // a SampleStatus; the other fields are of kChosen
  int32_t num_top = 0;  // -1: no log-probabilities were asked for
  float logprob = 0;    // of token_id
  std::array<int32_t, TokenChoice::kNumLogprobsMax> top_ids = {};  // most probable first
  std::array<float, TokenChoice::kNumLogprobsMax> top_logprobs = {};
};
static_assert(sizeof(ChoiceRecord) == 176);

/// The slots of the rows of logits, and the memory for their choices; in device memory.
struct ChoiceOutputs {
  /// [R], a slot at most once, with kIsDeferred (slot_state.h) where the row's logits are to wait;
  /// below 0: a row without a choice.
  const int32_t* slots = nullptr;
  ChoiceRecord* records = nullptr;  // [R]
  DeviceSpan* span = nullptr;       // ends with the choices; may be null
};

/// Reads a record on the host.
ChosenToken to_chosen_token(const ChoiceRecord& record);

}  // namespace halley::cuda
