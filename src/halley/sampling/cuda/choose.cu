#include <cooperative_groups.h>

#include "halley/base/check.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/device_span.cuh"
#include "halley/cuda/runtime/launch.cuh"
#include "halley/sampling/cuda/choose_row.h"
#include "halley/sampling/cuda/row_team.h"
#include "halley/sampling/cuda/sampling_kernels.h"
#include "halley/sampling/cuda/slot_state.h"

namespace halley::cuda {
namespace {

constexpr int kCtasPerRow = 8;  // a cluster, the largest that every Hopper GPU has
constexpr int kThreads = 256;

/// The Machine of RowTeam on the GPU: a thread of the cluster that works on the row.
class Cluster {
 public:
  static constexpr int kNumThreads = kThreads;
  static constexpr int kClusterSize = kCtasPerRow;
  using Shared = RowShared<kNumThreads>;

  explicit __device__ Cluster(Shared& shared) : shared_(shared) {}

  __device__ int cta_rank() const { return static_cast<int>(blockIdx.x) % kClusterSize; }
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ Shared& own_shared() const { return shared_; }
  __device__ Shared& shared(int cta) const {
    return *cooperative_groups::this_cluster().map_shared_rank(&shared_,
                                                               static_cast<unsigned>(cta));
  }
  __device__ void sync_cta() const { __syncthreads(); }
  __device__ void sync_row() const { cooperative_groups::this_cluster().sync(); }
  __device__ uint32_t add(uint32_t& sum, uint32_t value) const { return atomicAdd(&sum, value); }
  __device__ void load_float4(const float* from, float (&to)[4]) const {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  }

 private:
  Shared& shared_;
};

struct LogitRows {
  const float* data;
  int64_t row_stride;
  int vocab_size;
  bool is_float4_aligned;
};

/// A CTA's part of a row.
struct RowInput {
  const float* logits;
  int vocab_size;
  bool is_float4_aligned;
  const uint32_t* allowed;  // null: all tokens
};

__device__ void choose_in_cluster(const RowInput& input, const SlotView& slot,
                                  ChoiceRecord& record) {
  __shared__ alignas(16) unsigned char shared[sizeof(Cluster::Shared)];
  Cluster cluster(*reinterpret_cast<Cluster::Shared*>(shared));
  RowTeam<Cluster> team(cluster, input.logits, input.vocab_size, input.is_float4_aligned);
  RowChooser<Cluster> chooser(team, slot, input.allowed);
  chooser.choose(record);
  cluster.sync_row();  // no CTA leaves while another one reads its shared memory
}

/// Copies the row's logits to the slot; each CTA of the cluster has a part.
__device__ void defer_row(const float* logits, int vocab_size, float* deferred) {
  const int first = static_cast<int>(blockIdx.x) % kCtasPerRow * kThreads;
  for (int id = first + static_cast<int>(threadIdx.x); id < vocab_size;
       id += kCtasPerRow * kThreads) {
    deferred[id] = logits[id];
  }
}

__device__ bool is_first_of_row() { return blockIdx.x % kCtasPerRow == 0 && threadIdx.x == 0; }

__global__ void __cluster_dims__(kCtasPerRow, 1, 1) __launch_bounds__(kThreads, 2)
    choose_kernel(LogitRows logits, SlotMemory memory, ChoiceOutputs outputs) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const auto row = static_cast<int64_t>(blockIdx.x / kCtasPerRow);
  const int32_t slot = outputs.slots[row];
  if (slot < 0) return;
  const float* row_logits = logits.data + row * logits.row_stride;
  if ((slot & kIsDeferred) != 0) {
    defer_row(row_logits, logits.vocab_size, memory.deferred_logits(slot & ~kIsDeferred));
  } else {
    choose_in_cluster({row_logits, logits.vocab_size, logits.is_float4_aligned, nullptr},
                      memory.slot(slot), outputs.records[row]);
  }
  if (outputs.span != nullptr && is_first_of_row()) end_span(*outputs.span);
}

__global__ void __cluster_dims__(kCtasPerRow, 1, 1) __launch_bounds__(kThreads, 2)
    choose_deferred_kernel(int vocab_size, SlotMemory memory, MaskedRows rows,
                           ChoiceRecord* records) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const auto row = static_cast<int64_t>(blockIdx.x / kCtasPerRow);
  const int32_t slot = rows.slots[row];
  choose_in_cluster({memory.deferred_logits(slot), vocab_size, /*is_float4_aligned=*/true,
                     rows.allowed + row * memory.num_mark_words},
                    memory.slot(slot), records[row]);
}

}  // namespace

void launch_choose(const CudaContext& context, ConstMatrix logits, const SlotMemory& memory,
                   const ChoiceOutputs& outputs) {
  const bool is_float4_aligned =
      logits.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(logits.data) % 16 == 0;
  HALLEY_CHECK(logits.num_rows <= INT32_MAX / kCtasPerRow, logits.num_rows);
  const LogitRows rows = {logits.row<float>(0), logits.row_stride,
                          static_cast<int>(logits.num_cols), is_float4_aligned};
  launch_kernel(
      context, "choice of tokens",
      {.grid = dim3(static_cast<unsigned>(logits.num_rows * kCtasPerRow)), .block = dim3(kThreads)},
      choose_kernel, rows, memory, outputs);
}

void launch_choose_deferred(const CudaContext& context, int64_t vocab_size,
                            const SlotMemory& memory, const MaskedRows& rows,
                            ChoiceRecord* records) {
  HALLEY_CHECK(rows.num_rows <= INT32_MAX / kCtasPerRow, rows.num_rows);
  launch_kernel(
      context, "choice of tokens by masks",
      {.grid = dim3(static_cast<unsigned>(rows.num_rows * kCtasPerRow)), .block = dim3(kThreads)},
      choose_deferred_kernel, static_cast<int>(vocab_size), memory, rows, records);
}

}  // namespace halley::cuda
