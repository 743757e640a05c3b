// Consumers of the prefill kernel: a warpgroup computes 64 query rows of the block's works.
//
// Scores and weights stay in registers. Two warpgroups take turns: while one computes weights, the
// other has the tensor cores; and within one the products with values of a tile run under the
// weights of the next. All of a row's sums depend on its position alone; every rounding is written
// out, as in softmax_rows.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/activation_rows.cuh"
#include "halley/cuda/attention/prefill_shape.cuh"
#include "halley/cuda/attention/softmax_rows.cuh"
#include "halley/cuda/attention/wgmma_instructions.cuh"

namespace halley::attention {

/// This lane has two of the rows.
template <typename Shape>
struct PrefillConsumer {
  static constexpr Operand kOperand = Shape::kOperand;
  static constexpr int kTokens = Shape::kTokens;
  // Products with values have at most 128 columns each.
  static constexpr int kParts = Shape::kPaddedHeadDim > 128 ? 2 : 1;
  static constexpr int kPartColumns = Shape::kPaddedHeadDim / kParts;

  const PrefillParams& params;
  PrefillMemory<Shape> memory;
  RingPlace<Shape::kQueryStages> place_of_queries = {};
  RingPlace<Shape::kStages> place_of_keys = {}, place_of_values = {};
  WorkFacts work = {};
  int tile = 0;  // whose scores are computed next
  float factor[2], sum[2];
  float bases[2];         // log2 of what weights of 1 stand for; -infinity: nothing seen yet
  int first[2], last[2];  // positions that are seen
  float scores[kTokens / 2], values[kParts][kPartColumns / 2];
  uint32_t weights[Shape::kTokenSteps][4];

  // Taken from one lane, so that the compiler sees that a warp does not part.
  int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 128), 0);

  static __device__ int column() { return 2 * static_cast<int>(threadIdx.x % 4); }
  static __device__ int row_of(int h) {
    return static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) + 8 * h;
  }

  /// Waits for the next work's queries; false: there is none.
  __device__ bool next_work() {
    wait_for_barrier(memory.full_queries(place_of_queries.stage), place_of_queries.parity);
    const uint4 facts = load_shared_quad(memory.work_facts(place_of_queries.stage));
    work = {static_cast<int>(facts.x), static_cast<int>(facts.y), static_cast<int>(facts.z),
            static_cast<int>(facts.w),
            static_cast<int>(load_shared_word(memory.work_facts(place_of_queries.stage) + 16))};
    tile = work.first_tile;
    return tile >= 0;
  }

  /// The work's rows begin; sums of values stay.
  __device__ void start_rows() {
    const float per_group = 1.0f / static_cast<float>(params.rows.group_size);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(h);
      factor[h] = __uint_as_float(load_shared_word(memory.factor(place_of_queries.stage, row)));
      // Rows that are none are computed, and not written.
      last[h] = work.first_position + quotient(work.first_head + row, per_group);
      const bool is_cut = params.rule.window > 0 && last[h] >= params.rule.window;
      first[h] = is_cut ? last[h] - params.rule.window + 1 : 0;
      bases[h] = -infinity();
      sum[h] = 0;
    }
  }

  __device__ void clear_values() {
#pragma unroll
    for (auto& part : values) {
#pragma unroll
      for (float& value : part) value = 0;
    }
  }

  /// Starts scores = queries * keys of the next stage, as a group.
  __device__ void start_scores() {
    const uint64_t a =
        row_operand(memory.query(place_of_queries.stage, warpgroup * 64, 0), Shape::kPanels);
    const uint64_t b = row_operand(memory.keys(place_of_keys.stage), Shape::kPanels);
    hold(scores);
    fence_products();
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      const auto offset = static_cast<uint64_t>(row_operand_step(step) / 16);
      multiply_rows<kOperand>(scores, a + offset, b + offset, step > 0 ? 1 : 0);
    }
    close_product_group();
  }

  /// Starts values += weights * values of the next stage, as a group.
  __device__ void start_values() {
    const uint64_t b = column_operand(memory.values(place_of_values.stage), Shape::kPanels);
    hold_values();
    fence_products();
#pragma unroll
    for (int step = 0; step < Shape::kTokenSteps; ++step) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int offset =
            column_operand_step(Shape::kPanels, step) + part * (128 / 64) * kPanelGroupBytes;
        multiply_columns<kOperand>(values[part], weights[step],
                                   b + static_cast<uint64_t>(offset / 16), 1);
      }
    }
    close_product_group();
  }

  __device__ void hold_values() {
#pragma unroll
    for (auto& part : values) hold(part);
  }

  /// The same for all lanes and rows of the block: some row may not see all of the tile.
  __device__ bool hides() const {
    const int begin = tile * kTokens;
    return begin + kTokens - 1 > work.first_position || begin < work.seen_by_all;
  }

  /// From sums of products to weights in f32, in place. Where a base rises, `rescale` is for the
  /// sums of values, and the result is true in all lanes.
  __device__ bool to_weights(float (&rescale)[2]) {
    float unit[2] = {factor[0], factor[1]};
    if (params.rule.soft_cap > 0) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        scores[i] = capped(__fmul_rn(scores[i], factor[i / 2 % 2]), params.rule.soft_cap);
      }
      unit[0] = unit[1] = 1.0f;
    }
    if (hides()) {
      const int position = tile * kTokens + column();
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        const int at = position + i / 4 * 8 + i % 2;
        if (at < first[i / 2 % 2] || at > last[i / 2 % 2]) scores[i] = -infinity();
      }
    }
    const bool rises = raise_bases(unit, rescale);
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      base[h] = bases[h] == -infinity() ? 0.0f : bases[h];  // nothing seen: weights are 0
    }
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i) {
        const int h = i / 2 % 2;
        scores[i] = exp2_approx(fmaf(scores[i], unit[h], -base[h]));
        sum[h] = __fadd_rn(sum[h], scores[i]);
      }
    }
    return rises;
  }

  /// Bases of the rows whose scores exceed them by more than weights have room for: in nearly all
  /// tiles the lanes agree by one vote. A row's base depends on no other row.
  __device__ bool raise_bases(const float (&unit)[2], float (&rescale)[2]) {
    float greatest[2];
    bool exceeds = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float even = scores[2 * h], odd = scores[2 * h + 1];
#pragma unroll
      for (int j = 1; j < kTokens / 8; ++j) {
        even = fmaxf(even, scores[4 * j + 2 * h]);
        odd = fmaxf(odd, scores[4 * j + 2 * h + 1]);
      }
      greatest[h] = __fmul_rn(fmaxf(even, odd), unit[h]);
      exceeds = exceeds || greatest[h] > __fadd_rn(bases[h], kWeightRoom);
      rescale[h] = 1.0f;
    }
    if (!__any_sync(0xFFFFFFFFu, exceeds)) return false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float of_row = quad_max(greatest[h]);
      if (of_row > __fadd_rn(bases[h], kWeightRoom)) {
        rescale[h] = exp2_approx(__fsub_rn(bases[h], of_row));
        bases[h] = of_row;
        sum[h] = __fmul_rn(sum[h], rescale[h]);
      }
    }
    return true;
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
    for (auto& part : values) {
#pragma unroll
      for (int i = 0; i < kPartColumns / 2; ++i) {
        part[i] = __fmul_rn(part[i], rescale[i / 2 % 2]);
      }
    }
  }

  __device__ void wait_for_keys() const {
    wait_for_barrier(memory.full_keys(place_of_keys.stage), place_of_keys.parity);
  }
  __device__ void wait_for_values() const {
    wait_for_barrier(memory.full_values(place_of_values.stage), place_of_values.parity);
  }
  // This warp is done with a stage.
  __device__ void release_keys() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(memory.empty_keys(place_of_keys.stage));
    place_of_keys.advance();
  }
  __device__ void release_values() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(memory.empty_values(place_of_values.stage));
    place_of_values.advance();
  }

  // The warpgroups' turns at the tensor cores: each waits at its own barrier for itself and the
  // other's arrival.
  __device__ void wait_for_turn() const { sync_threads<kConsumerThreads>(2 + warpgroup); }
  __device__ void give_turn() const { arrive_threads<kConsumerThreads>(3 - warpgroup); }

  /// All works of the block. The first tile of a work has its turn with the last values of the work
  /// before it.
  __device__ void run() {
    if (!next_work()) return;
    if (warpgroup == 1) give_turn();
    wait_for_keys();
    wait_for_turn();
    start_scores();
    give_turn();
    wait_for_products<0>();
    hold(scores);
    release_keys();
    start_rows();
    float rescale[2], done_sum[2] = {};
    to_weights(rescale);
    clear_values();
    pack_weights();
    int done_stage = place_of_queries.stage;  // of the work whose values are summed
    for (++tile;; ++tile) {
      const bool is_new = tile == work.end_tile;
      if (is_new) {
        place_of_queries.advance();
        if (!next_work()) break;
      }
      wait_for_keys();
      wait_for_turn();
      start_scores();
      wait_for_values();
      start_values();
      wait_for_products<1>();
      hold(scores);
      give_turn();
      release_keys();
      if (is_new) {
        done_sum[0] = sum[0];
        done_sum[1] = sum[1];
        start_rows();
      }
      const bool rises = to_weights(rescale);
      hold(scores);
      // A wait for keys stands between weights and the wait for products, which the assembler else
      // moves up: the weights would not run beside the products.
      if (tile + 1 < work.end_tile) wait_for_keys();
      wait_for_products<0>();
      hold_values();
      release_values();
      if (is_new) {
        leave_outputs(done_stage, done_sum);
        done_stage = place_of_queries.stage;
        clear_values();
      } else if (rises) {
        rescale_values(rescale);
      }
      pack_weights();
    }
    wait_for_values();
    wait_for_turn();
    start_values();
    if (warpgroup == 0) give_turn();
    wait_for_products<0>();
    hold_values();
    leave_outputs(done_stage, sum);
  }

  /// Values / sum, as pairs where the warp's queries were. All warps of the warpgroup have had a
  /// turn since products read these.
  __device__ void leave_outputs(int stage, const float (&sums)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(h);
      const float per_sum = 1.0f / quad_sum(sums[h]);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int j = 0; j < kPartColumns / 8; ++j) {
          const float low = __fmul_rn(values[part][4 * j + 2 * h], per_sum);
          const float high = __fmul_rn(values[part][4 * j + 2 * h + 1], per_sum);
          const uint32_t pair = params.activations.out_is_bf16 ? pack<Operand::kBf16>(low, high)
                                                               : pack<Operand::kF16>(low, high);
          const int byte = 2 * (part * kPartColumns + 8 * j + column());
          store_shared_word(memory.query(stage, row, byte), pair);
        }
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(memory.outputs(stage));
  }
};

}  // namespace halley::attention
