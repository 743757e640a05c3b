// Chooses next tokens on the GPU, by the rules of the CPU's sampler (sampling/base/sampler.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/sampling/base/token_choice.h"
#include "halley/sampling/base/token_mask.h"
#include "halley/sampling/cuda/choice_record.h"

namespace halley::cuda {

/// For each slot, in device memory: the parameters of its sequence, how often each token is in its
/// output, which tokens are in its prompt, the index of the next draw, the token chosen last.
///
/// The tokens are those of the CPU's sampler, except where a sum of probabilities lies within
/// about 1e-12 of the number that it is compared with. A row's result does not depend on the batch.
/// Calls come from one thread; what they queue must come to run in the order of the calls.
class CudaSampler {
 public:
  static constexpr int64_t kVocabSizeMax = int64_t{1} << 19;
  static constexpr int64_t kNumBiasesMax = 1024, kNumStopIdsMax = 1024;  // of a slot

  /// Device memory that the constructor takes: about 8.25 bytes for each token of the vocabulary
  /// and slot, and 17 KiB a slot. Nothing is allocated later.
  static size_t num_bytes(int64_t vocab_size, int64_t num_slots);

  /// Throws DeviceError where the memory cannot be had.
  CudaSampler(int64_t vocab_size, int64_t num_slots);
  /// The GPU must be done with what was queued.
  ~CudaSampler();
  CudaSampler(const CudaSampler&) = delete;
  CudaSampler& operator=(const CudaSampler&) = delete;

  /// Queues that the slot belongs to this sequence, with the output it already has. Returns at once
  /// unless very much is queued; nothing that is passed is needed afterwards. Not to be captured.
  /// All ids must be in the vocabulary. Throws UnsupportedError for more than kNumBiasesMax biases
  /// or kNumStopIdsMax different stop ids, before anything is queued.
  void start_slot(const CudaStream& stream, int32_t slot, const TokenChoice& choice,
                  std::span<const int32_t> prompt_ids, std::span<const int32_t> output_ids);

  /// Queues the choice of a token for each row's slot. It can be captured, and replays at the
  /// slots' state of then.
  /// Shapes    logits [R, V] f32
  /// Writes    records of rows with a slot; of slots whose status is kChosen: counts, the index of
  ///           the next draw, last_tokens(); of deferred rows nothing but their logits at the slot
  void choose(const CudaContext& context, ConstMatrix logits, const ChoiceOutputs& outputs) const;

  /// Bytes of the image of so many choices, at most one for each slot.
  size_t image_bytes(int64_t num_choices) const;
  /// Writes what choose_deferred() needs to host memory.
  void write_image(std::span<const MaskedChoice> choices, std::byte* image) const;
  /// Queues the choice of a token for each slot of the image, which is in page-locked memory and
  /// may be written again when the GPU has come here, among the tokens of its mask, from the logits
  /// that choose() has left there last. Not to be captured.
  /// Writes    as choose(); records [num_choices]
  void choose_deferred(const CudaContext& context, const std::byte* image, int64_t num_choices,
                       ChoiceRecord* records) const;

  /// [num_slots] in device memory, always at the same address: the token chosen last for the slot.
  /// Before the first choice: the last token that start_slot() was given, else 0; so it is always
  /// an id of the vocabulary.
  const int32_t* last_tokens() const;

  int64_t vocab_size() const { return vocab_size_; }
  int64_t num_slots() const { return num_slots_; }

 private:
  class Staging;

  int64_t vocab_size_, num_slots_;
  DeviceBuffer memory_;
  std::unique_ptr<Staging> staging_;
};

}  // namespace halley::cuda
