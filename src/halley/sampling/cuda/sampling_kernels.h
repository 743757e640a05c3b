// Launches of the sampler's kernels.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_span.h"
#include "halley/sampling/cuda/choice_record.h"
#include "halley/sampling/cuda/slot_state.h"

namespace halley::cuda {

/// Copies the image, which the GPU reads from page-locked memory, and marks the tokens of its
/// lists.
void launch_start(const CudaStream& stream, const SlotImage* image, const SlotView& slot);

/// Marks the tokens. As part of the prompt: sets kIsInPrompt; else counts them. `ids` are in
/// page-locked memory.
void launch_count(const CudaStream& stream, const int32_t* ids, int num_ids, bool is_prompt,
                  const SlotView& slot);

/// CudaSampler::choose().
void launch_choose(const CudaContext& context, ConstMatrix logits, const SlotMemory& memory,
                   const ChoiceOutputs& outputs);

/// Choices from logits that wait, in device memory.
struct MaskedRows {
  int64_t num_rows = 0;               // R
  const int32_t* slots = nullptr;     // [R]
  const uint32_t* allowed = nullptr;  // [R, SlotMemory::num_mark_words], a bit for each token
};
/// CudaSampler::choose_deferred().
void launch_choose_deferred(const CudaContext& context, int64_t vocab_size,
                            const SlotMemory& memory, const MaskedRows& rows,
                            ChoiceRecord* records);

}  // namespace halley::cuda
