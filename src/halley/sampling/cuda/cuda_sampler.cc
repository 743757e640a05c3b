#include "halley/sampling/cuda/cuda_sampler.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/pinned_buffer.h"
#include "halley/sampling/cuda/sampling_kernels.h"
#include "halley/sampling/cuda/slot_state.h"

namespace halley::cuda {
namespace {

static_assert(CudaSampler::kNumBiasesMax == kSlotListMax);
static_assert(CudaSampler::kNumStopIdsMax == kSlotListMax);

/// The offsets of the parts of the memory, in bytes.
struct Layout {
  size_t marks = 0, words = 0, last_tokens = 0, deferred = 0, image = 0, end = 0;
  int64_t num_mark_words = 0, num_words = 0;
};

/// The image of masked choices: their slots, then the masks, rows of num_mark_words.
size_t mask_offset(int64_t num_choices) {
  return round_up(static_cast<size_t>(num_choices) * sizeof(int32_t), size_t{16});
}
size_t mask_bytes(const Layout& layout) {
  return static_cast<size_t>(layout.num_mark_words) * sizeof(uint32_t);
}
size_t image_size(const Layout& layout, int64_t num_choices) {
  return mask_offset(num_choices) + static_cast<size_t>(num_choices) * mask_bytes(layout);
}

Layout layout_of(int64_t vocab_size, int64_t num_slots) {
  HALLEY_CHECK(vocab_size >= 1 && vocab_size <= CudaSampler::kVocabSizeMax, vocab_size);
  HALLEY_CHECK(num_slots >= 1 && num_slots <= int64_t{1} << 20, num_slots);
  const auto slots = static_cast<size_t>(num_slots);
  constexpr size_t kAlignment = DeviceArena::kAlignment;
  Layout layout;
  layout.num_words = round_up(vocab_size, int64_t{64});
  layout.num_mark_words = round_up(layout.num_words / 32, int64_t{4});
  layout.marks = round_up(slots * sizeof(SlotImage), kAlignment);
  layout.words =
      layout.marks +
      round_up(slots * static_cast<size_t>(layout.num_mark_words) * sizeof(uint32_t), kAlignment);
  layout.last_tokens =
      layout.words +
      round_up(slots * static_cast<size_t>(layout.num_words) * sizeof(uint32_t), kAlignment);
  layout.deferred = layout.last_tokens + round_up(slots * sizeof(int32_t), kAlignment);
  layout.image =
      layout.deferred +
      round_up(slots * static_cast<size_t>(layout.num_words) * sizeof(float), kAlignment);
  layout.end = layout.image + round_up(image_size(layout, num_slots), kAlignment);
  return layout;
}

SlotMemory memory_of(std::byte* data, int64_t vocab_size, int64_t num_slots) {
  const Layout layout = layout_of(vocab_size, num_slots);
  return {.images = reinterpret_cast<SlotImage*>(data),
          .marks = reinterpret_cast<uint32_t*>(data + layout.marks),
          .words = reinterpret_cast<uint32_t*>(data + layout.words),
          .last_tokens = reinterpret_cast<int32_t*>(data + layout.last_tokens),
          .deferred = reinterpret_cast<float*>(data + layout.deferred),
          .num_mark_words = layout.num_mark_words,
          .num_words = layout.num_words};
}

void clear(const CudaStream& stream, uint32_t* words, int64_t num_words) {
  check_cuda(
      cudaMemsetAsync(words, 0, static_cast<size_t>(num_words) * sizeof(uint32_t), stream.get()),
      "clearing a sampler's slot");
}

}  // namespace

/// Page-locked memory in chunks that are used in turn. The GPU reads a chunk by itself; it is
/// written again only when that has happened.
class CudaSampler::Staging {
 public:
  static constexpr size_t kChunkBytes = size_t{32} << 10;
  static constexpr size_t kNumChunks = 64;

  Staging() : buffer_(kChunkBytes * kNumChunks), are_read_(kNumChunks) {}

  /// Waits where all chunks are in use.
  template <typename T>
  T* begin_chunk() {
    static_assert(sizeof(T) <= kChunkBytes);
    are_read_[next_].synchronize();
    return reinterpret_cast<T*>(buffer_.data() + next_ * kChunkBytes);
  }
  /// The work that reads the chunk that was begun last has been queued.
  void end_chunk(const CudaStream& stream) {
    stream.record(are_read_[next_]);
    next_ = (next_ + 1) % kNumChunks;
  }

 private:
  PinnedBuffer buffer_;
  std::vector<CudaEvent> are_read_;
  size_t next_ = 0;
};

size_t CudaSampler::num_bytes(int64_t vocab_size, int64_t num_slots) {
  return layout_of(vocab_size, num_slots).end;
}

CudaSampler::CudaSampler(int64_t vocab_size, int64_t num_slots)
    : vocab_size_(vocab_size),
      num_slots_(num_slots),
      memory_(num_bytes(vocab_size, num_slots), "the sampler's slots"),
      staging_(std::make_unique<Staging>()) {
  // A slot that was never started has token 0, which is a valid id; nothing reads its parameters.
  check_cuda(cudaMemset(memory_.data(), 0, memory_.num_bytes()), "clearing the sampler's slots");
  check_cuda(cudaDeviceSynchronize(), "clearing the sampler's slots");
}

CudaSampler::~CudaSampler() = default;

void CudaSampler::start_slot(const CudaStream& stream, int32_t slot, const TokenChoice& choice,
                             std::span<const int32_t> prompt_ids,
                             std::span<const int32_t> output_ids) {
  HALLEY_CHECK(slot >= 0 && slot < num_slots_, slot, num_slots_);
  HALLEY_CHECK(choice.num_logprobs <= TokenChoice::kNumLogprobsMax, choice.num_logprobs);
  const auto is_in_vocab = [&](int32_t id) { return id >= 0 && id < vocab_size_; };
  for (const int32_t id : choice.stop_ids) HALLEY_CHECK(is_in_vocab(id), id, vocab_size_);
  for (const auto& [id, bias] : choice.logit_bias) HALLEY_CHECK(is_in_vocab(id), id, vocab_size_);

  const SlotView view = memory_of(memory_.data(), vocab_size_, num_slots_).slot(slot);
  auto* image = staging_->begin_chunk<SlotImage>();
  write_slot_image(choice, prompt_ids, output_ids, *image);
  const SlotState& state = image->state;
  HALLEY_CHECK(is_in_vocab(state.last_token), state.last_token);
  const bool is_counting = has_penalty(state.params);
  const bool is_repetition_counting = state.params.repetition_penalty != 1;
  const bool has_lists = state.num_biases > 0 || state.num_stop_ids > 0;
  if (is_counting || has_lists) {
    const Layout layout = layout_of(vocab_size_, num_slots_);
    clear(stream, view.marks, layout.num_mark_words);
    if (is_counting) clear(stream, view.words, layout.num_words);
  }
  launch_start(stream, image, view);
  staging_->end_chunk(stream);

  const auto count = [&](std::span<const int32_t> ids, bool is_prompt) {
    constexpr size_t kIdsMax = Staging::kChunkBytes / sizeof(int32_t);
    for (size_t begin = 0; begin < ids.size(); begin += kIdsMax) {
      const auto some = ids.subspan(begin, std::min(kIdsMax, ids.size() - begin));
      HALLEY_CHECK(std::all_of(some.begin(), some.end(), is_in_vocab), slot, begin);
      auto* staged = staging_->begin_chunk<int32_t>();
      std::memcpy(staged, some.data(), some.size_bytes());
      launch_count(stream, staged, static_cast<int>(some.size()), is_prompt, view);
      staging_->end_chunk(stream);
    }
  };
  if (is_repetition_counting) count(prompt_ids, true);
  if (is_counting) count(output_ids, false);
}

void CudaSampler::choose(const CudaContext& context, ConstMatrix logits,
                         const ChoiceOutputs& outputs) const {
  HALLEY_CHECK(logits.dtype == DType::kF32 && logits.num_cols == vocab_size_, logits.num_cols,
               vocab_size_);
  if (logits.num_rows == 0) return;
  launch_choose(context, logits, memory_of(memory_.data(), vocab_size_, num_slots_), outputs);
}

size_t CudaSampler::image_bytes(int64_t num_choices) const {
  HALLEY_CHECK(num_choices >= 0 && num_choices <= num_slots_, num_choices, num_slots_);
  return image_size(layout_of(vocab_size_, num_slots_), num_choices);
}

void CudaSampler::write_image(std::span<const MaskedChoice> choices, std::byte* image) const {
  // Words of 64 bits have the order of those of 32 on machines whose low bytes come first.
  static_assert(std::endian::native == std::endian::little);
  const size_t row_bytes = mask_bytes(layout_of(vocab_size_, num_slots_));
  auto* slots = reinterpret_cast<int32_t*>(image);
  std::byte* row = image + mask_offset(static_cast<int64_t>(choices.size()));
  for (const MaskedChoice& choice : choices) {
    HALLEY_CHECK(choice.slot >= 0 && choice.slot < num_slots_, choice.slot, num_slots_);
    *slots++ = choice.slot;
    const std::span<const std::byte> mask = std::as_bytes(std::span(*choice.allowed));
    const size_t num_bytes = std::min(mask.size(), row_bytes);
    std::copy_n(mask.begin(), num_bytes, row);
    std::fill_n(row + num_bytes, row_bytes - num_bytes, std::byte{0});
    row += row_bytes;
  }
}

void CudaSampler::choose_deferred(const CudaContext& context, const std::byte* image,
                                  int64_t num_choices, ChoiceRecord* records) const {
  if (num_choices == 0) return;
  std::byte* device_image = memory_.data() + layout_of(vocab_size_, num_slots_).image;
  check_cuda(cudaMemcpyAsync(device_image, image, image_bytes(num_choices), cudaMemcpyHostToDevice,
                             context.stream.get()),
             "copy of masks");
  const MaskedRows rows = {
      .num_rows = num_choices,
      .slots = reinterpret_cast<const int32_t*>(device_image),
      .allowed = reinterpret_cast<const uint32_t*>(device_image + mask_offset(num_choices))};
  launch_choose_deferred(context, vocab_size_, memory_of(memory_.data(), vocab_size_, num_slots_),
                         rows, records);
}

const int32_t* CudaSampler::last_tokens() const {
  return memory_of(memory_.data(), vocab_size_, num_slots_).last_tokens;
}

}  // namespace halley::cuda
