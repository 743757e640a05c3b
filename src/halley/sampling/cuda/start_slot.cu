#include "halley/cuda/runtime/cuda_check.h"
#include "halley/sampling/cuda/sampling_kernels.h"
#include "halley/sampling/cuda/slot_state.h"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;

__device__ void mark(const SlotView& slot, int32_t id) {
  atomicOr(slot.marks + id / 32, uint32_t{1} << (id % 32));
}

__global__ void start_kernel(const SlotImage* image, SlotView slot) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int num_biases = image->state.num_biases, num_stop_ids = image->state.num_stop_ids;
  for (int i = thread; i < num_biases; i += kThreads) {
    const int32_t id = image->bias_ids[i];
    slot.image->bias_ids[i] = id;
    slot.image->biases[i] = image->biases[i];
    mark(slot, id);
  }
  for (int i = thread; i < num_stop_ids; i += kThreads) {
    const int32_t id = image->stop_ids[i];
    slot.image->stop_ids[i] = id;
    mark(slot, id);
  }
  if (thread == 0) {
    slot.image->state = image->state;
    *slot.last_token = image->state.last_token;
  }
}

__global__ void count_kernel(const int32_t* ids, int num_ids, bool is_prompt, SlotView slot) {
  const auto i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= num_ids) return;
  const int32_t id = ids[i];
  if (is_prompt) {
    atomicOr(slot.words + id, kIsInPrompt);
  } else {
    atomicAdd(slot.words + id, 1u);
  }
  mark(slot, id);
}

}  // namespace

void launch_start(const CudaStream& stream, const SlotImage* image, const SlotView& slot) {
  start_kernel<<<1, kThreads, 0, stream.get()>>>(image, slot);
  check_launch("start of a sampler's slot");
}

void launch_count(const CudaStream& stream, const int32_t* ids, int num_ids, bool is_prompt,
                  const SlotView& slot) {
  const int num_blocks = (num_ids + kThreads - 1) / kThreads;
  count_kernel<<<static_cast<unsigned>(num_blocks), kThreads, 0, stream.get()>>>(ids, num_ids,
                                                                                 is_prompt, slot);
  check_launch("count of a slot's tokens");
}

}  // namespace halley::cuda
