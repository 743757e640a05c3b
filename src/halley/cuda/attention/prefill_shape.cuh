// Sizes, shared memory and pipeline states of the prefill kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/kv_fragments.cuh"
#include "halley/cuda/attention/prefill_work.cuh"
#include "halley/cuda/attention/wgmma_layout.h"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::attention {

inline constexpr int kConsumers = 2;  // warpgroups, of 64 query rows each
inline constexpr int kConsumerThreads = 128 * kConsumers;
inline constexpr int kProducerWarps = 4;
inline constexpr int kProducerThreads = 32 * kProducerWarps;
inline constexpr int kPrefillThreads = kConsumerThreads + kProducerThreads;
static_assert(kPrefillRows == 64 * kConsumers);

/// Sizes of one instance of the kernel; shared-memory offsets count from a multiple of 1024.
template <KvDType kType, int kHeadDim>
struct PrefillShape {
  using Rows = KvRows<kType, kHeadDim>;
  static constexpr KvDType kDType = kType;
  static constexpr Operand kOperand = Rows::kOperand;
  static constexpr int kPaddedHeadDim = kHeadDim;
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr bool kIsDequantized = Rows::kHasScales;
  static constexpr int kTokens = kHeadDim <= 128 ? 128 : 32;  // positions of a KV tile
  static constexpr int kSteps = kHeadDim / 16;                // k-steps of QK^T
  static constexpr int kTokenSteps = kTokens / 16;            // k-steps of PV
  static constexpr int kRowBytes = 2 * kHeadDim;              // as wgmma operands
  static constexpr int kTileBytes = kTokens * kRowBytes;      // keys, or values
  static constexpr int kStages = 2;                           // of keys, and of values
  static constexpr int kQuantizedStages = 2;
  static constexpr int kQuantizedTileBytes = kIsDequantized ? kTokens * Rows::kRowBytes : 0;

  // Query stages: three hide more of the latency of loading queries and storing outputs.
  static constexpr int kQueryStages = kIsDequantized || kHeadDim > 128 ? 2 : 3;

  static constexpr int kQueryBytes = kPrefillRows * kRowBytes;
  static constexpr int kKeyBegin = kQueryStages * kQueryBytes;
  static constexpr int kValueBegin = kKeyBegin + kStages * kTileBytes;
  static constexpr int kQuantizedBegin = kValueBegin + kStages * kTileBytes;
  static constexpr int kInfoBegin = kQuantizedBegin + kQuantizedStages * kQuantizedTileBytes;
  static constexpr int kInfoBytes = 32 + 4 * kPrefillRows;  // of a work tile, of its rows
  static constexpr int kBarrierBegin = kInfoBegin + kQueryStages * kInfoBytes;
  static constexpr int kBarriers = 4 * kStages + 2 * kQueryStages + 1;
  static constexpr int kSharedBytes = kBarrierBegin + 8 * kBarriers + kSwizzleAtomBytes;
  static_assert(kSharedBytes <= 227 * 1024);

  // setmaxnreg counts of a thread. Threads start with 168: three warpgroups have 504 together.
  static constexpr int kConsumerRegisters = kIsDequantized ? 200 : 208;
  static constexpr int kProducerRegisters = kIsDequantized ? 104 : 88;
  static_assert(kConsumers * kConsumerRegisters + kProducerRegisters <= 504);
};

/// Shared-memory addresses.
template <typename Shape>
struct PrefillMemory {
  uint32_t begin;

  __device__ PrefillMemory()
      : begin((ptx::cvta_to_shared(shared_memory()) + kSwizzleAtomBytes - 1) &
              ~static_cast<uint32_t>(kSwizzleAtomBytes - 1)) {}
  /// Address of a byte of a query row, and later of its outputs.
  __device__ uint32_t query(int stage, int row, int byte) const {
    return begin + stage * Shape::kQueryBytes + panel_offset(Shape::kPanels, row, byte);
  }
  __device__ uint32_t keys(int stage) const {
    return begin + Shape::kKeyBegin + stage * Shape::kTileBytes;
  }
  __device__ uint32_t values(int stage) const {
    return begin + Shape::kValueBegin + stage * Shape::kTileBytes;
  }
  __device__ uint32_t quantized(int stage) const {
    return begin + Shape::kQuantizedBegin + stage * Shape::kQuantizedTileBytes;
  }
  /// Address of the WorkInfo of a work tile; factor(): the score scale of one of its rows.
  __device__ uint32_t work_info(int stage) const {
    return begin + Shape::kInfoBegin + stage * Shape::kInfoBytes;
  }
  __device__ uint32_t factor(int stage, int row) const { return work_info(stage) + 32 + 4 * row; }

  // full_*: the tile, or the work tile's queries and info, have arrived. empty_*: the consumer
  // warps are done with the stage. outputs: the outputs are where the queries were.
  __device__ uint32_t full_keys(int stage) const { return barrier(stage); }
  __device__ uint32_t full_values(int stage) const { return barrier(Shape::kStages + stage); }
  __device__ uint32_t empty_keys(int stage) const { return barrier(2 * Shape::kStages + stage); }
  __device__ uint32_t empty_values(int stage) const { return barrier(3 * Shape::kStages + stage); }
  __device__ uint32_t full_queries(int stage) const { return barrier(4 * Shape::kStages + stage); }
  __device__ uint32_t outputs(int stage) const {
    return barrier(4 * Shape::kStages + Shape::kQueryStages + stage);
  }
  /// The TMA producer's own barrier: a tile has arrived that it must zero-fill in part.
  __device__ uint32_t arrived() const {
    return barrier(4 * Shape::kStages + 2 * Shape::kQueryStages);
  }

  /// One thread calls it. `num_producers` threads arrive at the tiles' full barriers, `num_movers`
  /// warps move rows.
  __device__ void init_barriers(int num_producers, int num_movers) const {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      ptx::mbarrier_init(full_keys(stage), num_producers);
      ptx::mbarrier_init(full_values(stage), num_producers);
      ptx::mbarrier_init(empty_keys(stage), kConsumerThreads / 32);
      ptx::mbarrier_init(empty_values(stage), kConsumerThreads / 32);
    }
    for (int stage = 0; stage < Shape::kQueryStages; ++stage) {
      ptx::mbarrier_init(full_queries(stage), num_movers);
      ptx::mbarrier_init(outputs(stage), kConsumerThreads / 32);
    }
    ptx::mbarrier_init(arrived(), 1);
    ptx::fence_mbarrier_init();
  }

 private:
  __device__ uint32_t barrier(int index) const { return begin + Shape::kBarrierBegin + 8 * index; }
};

/// Description of a work tile for the consumers.
struct WorkInfo {
  int first_tile = -1;  // -1: there is no work
  int end_tile = 0;
  int first_position = 0;  // of the first row
  int seen_by_all = 0;     // from this position on no window masks a position up to the row's own
  int first_head = 0;      // of the first row, among those of the group
};

/// The KV tiles that hold the work tile's positions [item.begin, item.end).
template <typename Shape>
struct PrefillTiles {
  int begin, end;

  __device__ explicit PrefillTiles(const PrefillItem& item)
      : begin(item.begin / Shape::kTokens), end((item.end + Shape::kTokens - 1) / Shape::kTokens) {}
};

}  // namespace halley::attention
