// Attention of prefill chunks on Hopper's warpgroup products, for caches of 16-bit types.
//
// A block has 128 query rows, tokens times heads of one kv head, and goes through the positions in
// ascending tiles at multiples of 128. Two warpgroups have 64 rows each: scores and weights stay in
// their registers. They take turns: while one computes weights, the other has the tensor cores, and
// within one the products with values of a tile overlap with the weights of the next. The warps of
// a third copy keys and values ahead of them. All of a row's sums depend on its position alone;
// every rounding is written out, as in softmax_rows.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/activation_rows.cuh"
#include "halley/cuda/attention/kv_fragments.cuh"
#include "halley/cuda/attention/prefill_work.cuh"
#include "halley/cuda/attention/softmax_rows.cuh"
#include "halley/cuda/attention/wgmma_instructions.cuh"
#include "halley/cuda/attention/wgmma_layout.h"

namespace halley::attention {

inline constexpr int kConsumers = 2;  // warpgroups
inline constexpr int kConsumerThreads = 128 * kConsumers;
inline constexpr int kWgmmaThreads = kConsumerThreads + 128;
inline constexpr int kWgmmaTokens = 128;  // positions of a tile

/// Sizes of one instance of the kernel; bytes of shared memory count from a multiple of 1024.
template <KvDType kType, int kHeadDim>
struct WgmmaShape {
  using Rows = KvRows<kType, kHeadDim>;
  static constexpr Operand kOperand = Rows::kOperand;
  static constexpr int kPaddedHeadDim = kHeadDim;
  static constexpr int kRows = prefill_rows(kHeadDim);
  static_assert(kRows == 64 * kConsumers);
  static constexpr int kSteps = kHeadDim / 16;           // of products with keys
  static constexpr int kTokenSteps = kWgmmaTokens / 16;  // of products with values
  static constexpr int kStages = 2;                      // of keys, and of values
  static constexpr int kQueryBytes = kRows * 2 * kHeadDim;
  static constexpr int kTileBytes = kWgmmaTokens * 2 * kHeadDim;  // keys, or values

  static constexpr int kKeyBegin = kQueryBytes;
  static constexpr int kValueBegin = kKeyBegin + kStages * kTileBytes;
  static constexpr int kFactorBegin = kValueBegin + kStages * kTileBytes;
  static constexpr int kBarrierBegin = kFactorBegin + kRows * 4;
  static constexpr int kSharedBytes = kBarrierBegin + 4 * kStages * 8 + kPanelGroupBytes;
};

/// Addresses in shared memory.
template <typename Shape>
struct WgmmaMemory {
  uint32_t begin;

  __device__ WgmmaMemory()
      : begin((shared_address(shared_memory()) + kPanelGroupBytes - 1) &
              ~static_cast<uint32_t>(kPanelGroupBytes - 1)) {}
  __device__ uint32_t keys(int stage) const {
    return begin + Shape::kKeyBegin + stage * Shape::kTileBytes;
  }
  __device__ uint32_t values(int stage) const {
    return begin + Shape::kValueBegin + stage * Shape::kTileBytes;
  }
  __device__ uint32_t factor(int row) const { return begin + Shape::kFactorBegin + 4 * row; }
  // Full: all 128 producers have copied. Empty: the consumers' 8 warps are done.
  __device__ uint32_t full_keys(int stage) const { return barrier(stage); }
  __device__ uint32_t full_values(int stage) const { return barrier(Shape::kStages + stage); }
  __device__ uint32_t empty_keys(int stage) const { return barrier(2 * Shape::kStages + stage); }
  __device__ uint32_t empty_values(int stage) const { return barrier(3 * Shape::kStages + stage); }
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

/// One of four warps that copy: positions [32 w, 32 w + 32) of each tile.
template <typename Shape>
struct WgmmaProducer {
  static constexpr int kChunks = Shape::kPaddedHeadDim / 8;  // of a row
  static constexpr int kRowsPerPass = 32 / kChunks;
  static constexpr int kPlaces = 8 / kRowsPerPass;

  const PrefillParams& params;
  const PrefillWork& work;
  WgmmaMemory<Shape> memory;
  uint32_t pending = 0;  // barrier of copies that are in flight

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int first_row() { return static_cast<int>(threadIdx.x % 128 / 32) * 32; }

  __device__ bool is_valid(int token) const {
    return token >= work.item.begin && token < work.item.end;
  }
  __device__ int token_of(int tile) const { return tile * kWgmmaTokens + first_row() + lane(); }
  __device__ int page_of(int tile) const {
    const int token = token_of(tile);
    return is_valid(token) ? params.tables[work.item.table_begin + token / params.rows.page_tokens]
                           : 0;
  }
  /// The key of the lane's position; any key where there is none.
  __device__ const std::byte* row_of(int tile, int page) const {
    const int token = token_of(tile);
    const int slot = is_valid(token) ? token % params.rows.page_tokens : 0;
    const int64_t row = static_cast<int64_t>(work.kv_head) * params.rows.page_tokens + slot;
    return params.rows.pages + page * params.rows.page_bytes + row * params.rows.row_bytes;
  }

  /// Keys or values of a tile, zeros where is_valid() is not; `full` is told later.
  __device__ void copy(const std::byte* own_row, int tile, uint32_t to, uint32_t full) {
    const int row = lane() / kChunks, byte = lane() % kChunks * 16;  // of the first pass
    const uint32_t valid = __ballot_sync(0xFFFFFFFFu, is_valid(token_of(tile))) >> row;
    const bool has_byte = byte < params.rows.row_bytes;
    // Chunks are exchanged alike in every eighth row: so many passes have places of their own.
    uint32_t places[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      places[i] = to + panel_offset(kWgmmaTokens, first_row() + i * kRowsPerPass + row, byte);
    }
#pragma unroll
    for (int pass = 0; pass < 32 / kRowsPerPass; ++pass) {
      const auto address = __shfl_sync(
          0xFFFFFFFFu, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(own_row)),
          row + pass * kRowsPerPass);
      const auto* from = reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(address)) + byte;
      if (has_byte) {
        start_copy<16>(places[pass % kPlaces] + pass / kPlaces * kPanelGroupBytes, from,
                       (valid >> (pass * kRowsPerPass) & 1u) != 0);
      }
    }
    close_copy_group();
    if (pending != 0) tell<1>();
    pending = full;
  }

  /// Unlike has_completed() it never sleeps.
  static __device__ bool is_complete_now(uint32_t barrier, uint32_t parity) {
    uint32_t result;
    asm volatile(
        "{.reg .pred done; mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;"
        " selp.u32 %0, 1, 0, done;}"
        : "=r"(result)
        : "r"(barrier), "r"(parity)
        : "memory");
    return result != 0;
  }

  /// Waits for the consumers; tells them first what they may be waiting for.
  __device__ void wait_for_empty(uint32_t empty, uint32_t parity) {
    if (pending != 0 && !__all_sync(0xFFFFFFFFu, is_complete_now(empty, parity))) {
      tell<0>();
      pending = 0;
    }
    wait_for_barrier(empty, parity);
    __syncwarp();
  }

  /// All but the newest kNumLeft tiles are there, for the tensor cores too.
  template <int kNumLeft>
  __device__ void tell() {
    wait_for_copies<kNumLeft>();
    fence_shared_for_async();
    arrive(pending);
  }

  __device__ void run(int first_tile, int end_tile) {
    RingPlace<Shape::kStages> place_of_keys, place_of_values;
    const std::byte* previous = nullptr;
    int page = page_of(first_tile);
    for (int tile = first_tile; tile < end_tile; ++tile) {
      const std::byte* own_row = row_of(tile, page);
      page = page_of(tile + 1);
      // The parity before is complete from the start on: all stages are empty.
      wait_for_empty(memory.empty_keys(place_of_keys.stage), place_of_keys.parity ^ 1u);
      copy(own_row, tile, memory.keys(place_of_keys.stage), memory.full_keys(place_of_keys.stage));
      place_of_keys.advance();
      if (tile > first_tile) copy_values(previous, tile - 1, place_of_values);
      previous = own_row;
    }
    copy_values(previous, end_tile - 1, place_of_values);
    tell<0>();
  }

  __device__ void copy_values(const std::byte* own_row, int tile,
                              RingPlace<Shape::kStages>& place) {
    wait_for_empty(memory.empty_values(place.stage), place.parity ^ 1u);
    copy(own_row + params.rows.value_bytes, tile, memory.values(place.stage),
         memory.full_values(place.stage));
    place.advance();
  }
};

/// All query rows to shared memory, times a power of two each as in QueryRows, and the rows' scales
/// of products; by all consumers. Zeros for rows and elements that are not.
template <typename Shape>
__device__ inline void load_wgmma_queries(const PrefillParams& params, const PrefillWork& work,
                                          const WgmmaMemory<Shape>& memory) {
  constexpr int kLanes = Shape::kPaddedHeadDim / 8;  // of a row, 8 elements each
  const int part = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll 2
  for (int row = static_cast<int>(threadIdx.x) / kLanes; row < Shape::kRows;
       row += kConsumerThreads / kLanes) {
    Words<16> raw = {};
    if (work.is_row(row) && 8 * part < params.rows.head_dim) {
      const int64_t element = work.element(row, params.activations.q_stride, params.rows.head_dim);
      raw = Words<16>::load(params.activations.q + 2 * (element + 8 * part));
    }
    float2 pairs[4];
    float greatest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = params.activations.q_is_bf16 ? unpack<Operand::kBf16>(raw.words[i])
                                              : unpack<Operand::kF16>(raw.words[i]);
      greatest = fmaxf(greatest, fmaxf(fabsf(pairs[i].x), fabsf(pairs[i].y)));
    }
#pragma unroll
    for (int lanes = 1; lanes < kLanes; lanes *= 2) {
      greatest = fmaxf(greatest, __shfl_xor_sync(0xFFFFFFFFu, greatest, lanes));
    }
    const float multiplier = inverse_power(greatest);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      raw.words[i] = pack<Shape::kOperand>(pairs[i].x * multiplier, pairs[i].y * multiplier);
    }
    store_shared_quad(memory.begin + panel_offset(Shape::kRows, row, 16 * part),
                      make_uint4(raw.words[0], raw.words[1], raw.words[2], raw.words[3]));
    if (part == 0) {
      store_shared_word(memory.factor(row), __float_as_uint(params.rule.scale / multiplier));
    }
  }
}

/// A warpgroup of 64 rows; this lane has two of them.
template <typename Shape>
struct WgmmaConsumer {
  static constexpr int kPairs = kWgmmaTokens / 4;  // of weights, in a lane
  static constexpr Operand kOperand = Shape::kOperand;

  const PrefillParams& params;
  const PrefillWork& work;
  WgmmaMemory<Shape> memory;
  float factor[2], largest[2] = {-infinity(), -infinity()}, sum[2] = {0, 0};
  int first[2], last[2];  // positions that are seen
  float scores[kWgmmaTokens / 2], values[Shape::kPaddedHeadDim / 2] = {};
  uint32_t weights[Shape::kTokenSteps][4];

  // Taken from one lane, so that the compiler sees that a warp does not part.
  int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 128), 0);

  static __device__ int column() { return 2 * static_cast<int>(threadIdx.x % 4); }
  static __device__ int row_of(int h) {
    return static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) + 8 * h;
  }

  __device__ void start() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(h);
      const int position = work.item.num_past_tokens + work.token(row);
      const bool is_cut = params.rule.window > 0 && position >= params.rule.window;
      first[h] = is_cut ? position - params.rule.window + 1 : 0;
      last[h] = position;  // rows that are none are computed, and not written
      factor[h] = __uint_as_float(load_shared_word(memory.factor(row)));
    }
  }

  /// Starts scores = queries * keys of a stage, as a group.
  __device__ void start_scores(int stage) {
    const uint64_t a =
        row_operand(memory.begin + static_cast<uint32_t>(warpgroup * 64 * kPanelRowBytes));
    const uint64_t b = row_operand(memory.keys(stage));
    hold(scores);
    fence_products();
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      multiply_rows<kOperand>(
          scores, a + static_cast<uint64_t>(row_operand_step(Shape::kRows, step) / 16),
          b + static_cast<uint64_t>(row_operand_step(kWgmmaTokens, step) / 16), step > 0 ? 1 : 0);
    }
    close_product_group();
  }

  /// Starts values += weights * values of a stage, as a group.
  __device__ void start_values(int stage) {
    const uint64_t b = column_operand(memory.values(stage), kWgmmaTokens);
    hold(values);
    fence_products();
#pragma unroll
    for (int step = 0; step < Shape::kTokenSteps; ++step) {
      multiply_columns<kOperand>(values, weights[step],
                                 b + static_cast<uint64_t>(column_operand_step(step) / 16), 1);
    }
    close_product_group();
  }

  /// The same for all lanes and rows of the block: some row may not see all of the tile.
  __device__ bool hides(int tile) const {
    const int begin = tile * kWgmmaTokens;
    const int first_position = work.item.num_past_tokens + work.item.query_begin / work.group_size;
    return begin + kWgmmaTokens - 1 > first_position ||
           (params.rule.window > 0 && begin < work.item.end - params.rule.window);
  }

  /// From sums of products to weights in f32, in place; `rescale` is for the sums of values.
  __device__ void to_weights(int tile, float (&rescale)[2]) {
    float unit[2] = {factor[0], factor[1]};
    if (params.rule.soft_cap > 0) {
#pragma unroll
      for (int i = 0; i < kWgmmaTokens / 2; ++i) {
        scores[i] = capped(__fmul_rn(scores[i], factor[i / 2 % 2]), params.rule.soft_cap);
      }
      unit[0] = unit[1] = 1.0f;
    }
    if (hides(tile)) {
      const int position = tile * kWgmmaTokens + column();
#pragma unroll
      for (int i = 0; i < kWgmmaTokens / 2; ++i) {
        const int at = position + i / 4 * 8 + i % 2;
        if (at < first[i / 2 % 2] || at > last[i / 2 % 2]) scores[i] = -infinity();
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float greatest = scores[2 * h];
#pragma unroll
      for (int j = 0; j < kWgmmaTokens / 8; ++j) {
        greatest = fmaxf(greatest, fmaxf(scores[4 * j + 2 * h], scores[4 * j + 2 * h + 1]));
      }
      greatest = fmaxf(largest[h], __fmul_rn(quad_max(greatest), unit[h]));
      const float base = greatest == -infinity() ? 0.0f : greatest;  // nothing seen: weights are 0
      rescale[h] = exp2_approx(__fsub_rn(largest[h], base));
      largest[h] = greatest;
      sum[h] = __fmul_rn(sum[h], rescale[h]);
#pragma unroll
      for (int j = 0; j < kWgmmaTokens / 8; ++j) {
#pragma unroll
        for (int i = 4 * j + 2 * h; i < 4 * j + 2 * h + 2; ++i) {
          scores[i] = exp2_approx(fmaf(scores[i], unit[h], -base));
          sum[h] = __fadd_rn(sum[h], scores[i]);
        }
      }
    }
  }

  __device__ void pack_weights() {
#pragma unroll
    for (int step = 0; step < Shape::kTokenSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[step][i] = pack<kOperand>(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1]);
      }
    }
  }

  __device__ void rescale_values(const float (&rescale)[2]) {
#pragma unroll
    for (int i = 0; i < Shape::kPaddedHeadDim / 2; ++i) {
      values[i] = __fmul_rn(values[i], rescale[i / 2 % 2]);
    }
  }

  /// This warp is done with a stage.
  __device__ void release(uint32_t empty) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty);
  }

  // The warpgroups' turns at the tensor cores: each waits at its own barrier for itself and the
  // other's arrival.
  __device__ void wait_for_turn() const {
    asm volatile("bar.sync %0, %1;" ::"r"(2 + warpgroup), "n"(kConsumerThreads) : "memory");
  }
  __device__ void give_turn() const {
    asm volatile("bar.arrive %0, %1;" ::"r"(3 - warpgroup), "n"(kConsumerThreads) : "memory");
  }

  __device__ void run(int first_tile, int end_tile) {
    RingPlace<Shape::kStages> place_of_keys, place_of_values;
    float rescale[2];
    if (warpgroup == 1 && first_tile + 1 < end_tile) give_turn();
    wait_for_barrier(memory.full_keys(0), 0);
    start_scores(0);
    wait_for_products<0>();
    hold(scores);
    release(memory.empty_keys(0));
    place_of_keys.advance();
    to_weights(first_tile, rescale);
    pack_weights();
    for (int tile = first_tile + 1; tile < end_tile; ++tile) {
      wait_for_barrier(memory.full_keys(place_of_keys.stage), place_of_keys.parity);
      wait_for_turn();
      start_scores(place_of_keys.stage);
      wait_for_barrier(memory.full_values(place_of_values.stage), place_of_values.parity);
      start_values(place_of_values.stage);
      // The first warpgroup has no turn after its last one.
      if (warpgroup == 0 || tile + 1 < end_tile) give_turn();
      wait_for_products<1>();
      hold(scores);
      release(memory.empty_keys(place_of_keys.stage));
      place_of_keys.advance();
      to_weights(tile, rescale);
      wait_for_products<0>();
      hold(values);
      release(memory.empty_values(place_of_values.stage));
      place_of_values.advance();
      rescale_values(rescale);
      pack_weights();
    }
    wait_for_barrier(memory.full_values(place_of_values.stage), place_of_values.parity);
    start_values(place_of_values.stage);
    wait_for_products<0>();
    hold(values);
  }

  /// out = values / sum.
  __device__ void write() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(h);
      const float per_sum = 1.0f / quad_sum(sum[h]);
      if (!work.is_row(row)) continue;
      const int64_t element =
          work.element(row, params.activations.out_stride, params.rows.head_dim);
#pragma unroll
      for (int j = 0; j < Shape::kPaddedHeadDim / 8; ++j) {
        const int dim = 8 * j + column();
        if (dim >= params.rows.head_dim) continue;
        store_pair(params.activations, element + dim, __fmul_rn(values[4 * j + 2 * h], per_sum),
                   __fmul_rn(values[4 * j + 2 * h + 1], per_sum));
      }
    }
  }
};

template <KvDType kType, int kHeadDim>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    prefill_wgmma_kernel(const __grid_constant__ PrefillParams params) {
  using Shape = WgmmaShape<kType, kHeadDim>;
  const WgmmaMemory<Shape> memory;
  const PrefillWork work = prefill_work(params, blockIdx.x);
  const int first_tile = work.item.begin / kWgmmaTokens;
  const int end_tile = (work.item.end + kWgmmaTokens - 1) / kWgmmaTokens;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      init_barrier(memory.full_keys(stage), 128);
      init_barrier(memory.full_values(stage), 128);
      init_barrier(memory.empty_keys(stage), kConsumerThreads / 32);
      init_barrier(memory.empty_values(stage), kConsumerThreads / 32);
    }
    publish_barriers();
  }
  if (params.rows.head_dim < kHeadDim) {  // what copies leave out must multiply to 0
    for (int i = static_cast<int>(threadIdx.x); i < 2 * Shape::kStages * Shape::kTileBytes / 16;
         i += kWgmmaThreads) {
      store_shared_quad(memory.keys(0) + 16 * i, make_uint4(0, 0, 0, 0));
    }
    fence_shared_for_async();
  }
  __syncthreads();
  const bool is_consumer =
      __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 128), 0) < kConsumers;
  if (!is_consumer) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    WgmmaProducer<Shape> producer{params, work, memory};
    producer.run(first_tile, end_tile);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    load_wgmma_queries(params, work, memory);
    fence_shared_for_async();
    asm volatile("bar.sync 1, %0;" ::"n"(kConsumerThreads) : "memory");
    WgmmaConsumer<Shape> consumer{params, work, memory};
    consumer.start();
    consumer.run(first_tile, end_tile);
    consumer.write();
  }
}

}  // namespace halley::attention
