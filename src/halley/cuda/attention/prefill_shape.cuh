// Sizes of the prefill kernel, its shared memory, and the order of its work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/kv_fragments.cuh"
#include "halley/cuda/attention/prefill_work.cuh"
#include "halley/cuda/attention/wgmma_layout.h"

namespace halley::attention {

inline constexpr int kConsumers = 2;  // warpgroups, of 64 query rows each
inline constexpr int kConsumerThreads = 128 * kConsumers;
inline constexpr int kProducerWarps = 4;
inline constexpr int kProducerThreads = 32 * kProducerWarps;
inline constexpr int kPrefillThreads = kConsumerThreads + kProducerThreads;
static_assert(kPrefillRows == 64 * kConsumers);

/// Sizes of one instance of the kernel; bytes of shared memory count from a multiple of 1024.
template <KvDType kType, int kHeadDim>
struct PrefillShape {
  using Rows = KvRows<kType, kHeadDim>;
  static constexpr KvDType kDType = kType;
  static constexpr Operand kOperand = Rows::kOperand;
  static constexpr int kPaddedHeadDim = kHeadDim;
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr bool kIsDecoded = Rows::kHasScales;
  static constexpr int kTokens = kHeadDim <= 128 ? 128 : 32;  // positions of a tile
  static constexpr int kSteps = kHeadDim / 16;                // of products with keys
  static constexpr int kTokenSteps = kTokens / 16;            // of products with values
  static constexpr int kRowBytes = 2 * kHeadDim;              // as operands
  static constexpr int kTileBytes = kTokens * kRowBytes;      // keys, or values
  static constexpr int kStages = 2;                           // of keys, and of values
  static constexpr int kCodeStages = 2;
  static constexpr int kCodeTileBytes = kIsDecoded ? kTokens * Rows::kRowBytes : 0;

  // Of queries: three hide more of the time that rows take to come and go.
  static constexpr int kQueryStages = kIsDecoded || kHeadDim > 128 ? 2 : 3;

  static constexpr int kQueryBytes = kPrefillRows * kRowBytes;
  static constexpr int kKeyBegin = kQueryStages * kQueryBytes;
  static constexpr int kValueBegin = kKeyBegin + kStages * kTileBytes;
  static constexpr int kCodeBegin = kValueBegin + kStages * kTileBytes;
  static constexpr int kFactBegin = kCodeBegin + kCodeStages * kCodeTileBytes;
  static constexpr int kFactBytes = 32 + 4 * kPrefillRows;  // of a work, of its rows
  static constexpr int kBarrierBegin = kFactBegin + kQueryStages * kFactBytes;
  static constexpr int kBarriers = 4 * kStages + 2 * kQueryStages + 1;
  static constexpr int kSharedBytes = kBarrierBegin + 8 * kBarriers + kPanelGroupBytes;
  static_assert(kSharedBytes <= 227 * 1024);

  // Of a thread. Threads begin with 168: three warpgroups have 504 together.
  static constexpr int kConsumerRegisters = kIsDecoded ? 200 : 208;
  static constexpr int kProducerRegisters = kIsDecoded ? 104 : 88;
  static_assert(kConsumers * kConsumerRegisters + kProducerRegisters <= 504);
};

/// Addresses in shared memory.
template <typename Shape>
struct PrefillMemory {
  uint32_t begin;

  __device__ PrefillMemory()
      : begin((shared_address(shared_memory()) + kPanelGroupBytes - 1) &
              ~static_cast<uint32_t>(kPanelGroupBytes - 1)) {}
  /// Byte of a query row, and later of its outputs.
  __device__ uint32_t query(int stage, int row, int byte) const {
    return begin + stage * Shape::kQueryBytes + panel_offset(Shape::kPanels, row, byte);
  }
  __device__ uint32_t keys(int stage) const {
    return begin + Shape::kKeyBegin + stage * Shape::kTileBytes;
  }
  __device__ uint32_t values(int stage) const {
    return begin + Shape::kValueBegin + stage * Shape::kTileBytes;
  }
  __device__ uint32_t codes(int stage) const {
    return begin + Shape::kCodeBegin + stage * Shape::kCodeTileBytes;
  }
  /// What consumers need to know of a work, WorkFacts, and of its rows: the scale of products.
  __device__ uint32_t work_facts(int stage) const {
    return begin + Shape::kFactBegin + stage * Shape::kFactBytes;
  }
  __device__ uint32_t factor(int stage, int row) const { return work_facts(stage) + 32 + 4 * row; }

  // Full: the tile, or the work's queries and facts, are there. Empty: the consumers' warps are
  // done with it. Outputs: they stand where the queries were.
  __device__ uint32_t full_keys(int stage) const { return barrier(stage); }
  __device__ uint32_t full_values(int stage) const { return barrier(Shape::kStages + stage); }
  __device__ uint32_t empty_keys(int stage) const { return barrier(2 * Shape::kStages + stage); }
  __device__ uint32_t empty_values(int stage) const { return barrier(3 * Shape::kStages + stage); }
  __device__ uint32_t full_queries(int stage) const { return barrier(4 * Shape::kStages + stage); }
  __device__ uint32_t outputs(int stage) const {
    return barrier(4 * Shape::kStages + Shape::kQueryStages + stage);
  }
  /// The producer's own: a tile is there that it has to change.
  __device__ uint32_t arrived() const {
    return barrier(4 * Shape::kStages + 2 * Shape::kQueryStages);
  }

  /// By one thread; so many threads arrive at tiles' full barriers, and so many warps move rows.
  __device__ void init_barriers(int num_producers, int num_movers) const {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      init_barrier(full_keys(stage), num_producers);
      init_barrier(full_values(stage), num_producers);
      init_barrier(empty_keys(stage), kConsumerThreads / 32);
      init_barrier(empty_values(stage), kConsumerThreads / 32);
    }
    for (int stage = 0; stage < Shape::kQueryStages; ++stage) {
      init_barrier(full_queries(stage), num_movers);
      init_barrier(outputs(stage), kConsumerThreads / 32);
    }
    init_barrier(arrived(), 1);
    publish_barriers();
  }

 private:
  __device__ uint32_t barrier(int index) const { return begin + Shape::kBarrierBegin + 8 * index; }
};

/// A ring's place: stages in turn, and the parity of the phase that a full barrier completes next.
template <int kStages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1u;
    }
  }
};

/// What consumers know of a work.
struct WorkFacts {
  int first_tile = -1;  // -1: there is no work
  int end_tile = 0;
  int first_position = 0;  // of the rows
  int seen_by_all = 0;     // from here on, no window hides what is not behind the rows
  int first_head = 0;      // of the first row, among those of the group
};

/// The tiles that hold a block's positions [item.begin, item.end).
template <typename Shape>
struct PrefillTiles {
  int begin, end;

  __device__ explicit PrefillTiles(const PrefillItem& item)
      : begin(item.begin / Shape::kTokens), end((item.end + Shape::kTokens - 1) / Shape::kTokens) {}
};

}  // namespace halley::attention
