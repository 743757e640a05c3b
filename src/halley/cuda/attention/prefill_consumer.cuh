// Consumer warpgroup of the prefill kernel: 64 query rows of the CTA's work tiles.
//
// Scores and weights stay in registers. The two warpgroups ping-pong: one runs its softmax while
// the wgmma of the other occupy the tensor cores. Within a warpgroup PV of a tile overlaps the
// softmax of the next tile. A row's accumulation order depends on its position alone; every
// rounding is explicit, as in softmax_rows.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/activation_rows.cuh"
#include "halley/cuda/attention/operand.cuh"
#include "halley/cuda/attention/prefill_shape.cuh"
#include "halley/cuda/attention/softmax_rows.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/packed_math.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::attention {

/// acc_s: [64, tile] f32, acc_o: [64, D] f32, p: [64, tile] f16 or bf16 per warpgroup; a lane has
/// two of the rows.
template <typename Shape>
struct PrefillConsumer {
  static constexpr Operand kOperand = Shape::kOperand;
  static constexpr int kTokens = Shape::kTokens;
  // One wgmma of PV has at most n128.
  static constexpr int kParts = Shape::kPaddedHeadDim > 128 ? 2 : 1;
  static constexpr int kPartColumns = Shape::kPaddedHeadDim / kParts;

  const PrefillParams& params;
  PrefillMemory<Shape> memory;
  ptx::PipelineState query_state = {};
  ptx::PipelineState key_state = {}, value_state = {};
  WorkInfo work = {};
  int tile = 0;  // whose scores are computed next
  float factor[2], sum[2];
  float ref_max[2];       // log2 reference maximum: a weight is 1 there; -infinity: none yet
  int first[2], last[2];  // range of positions that the row attends to
  float acc_s[kTokens / 2], acc_o[kParts][kPartColumns / 2];
  uint32_t p[Shape::kTokenSteps][4];

  // A shuffle from lane 0 lets the compiler see that the value is uniform in the warp.
  int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 128), 0);

  static __device__ int column() { return 2 * static_cast<int>(threadIdx.x % 4); }
  static __device__ int row_of(int h) {
    return static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) + 8 * h;
  }

  /// Waits for the queries of the next work tile; false: there is none.
  __device__ bool next_work() {
    mbarrier_wait(memory.full_queries(query_state.index), query_state.parity);
    const uint4 info = ptx::ld_shared_b32x4(memory.work_info(query_state.index));
    work = {static_cast<int>(info.x), static_cast<int>(info.y), static_cast<int>(info.z),
            static_cast<int>(info.w),
            static_cast<int>(ptx::ld_shared_b32(memory.work_info(query_state.index) + 16))};
    tile = work.first_tile;
    return tile >= 0;
  }

  /// Initializes the softmax state of the next work tile's rows; acc_o stays.
  __device__ void reset_softmax() {
    const float per_group = 1.0f / static_cast<float>(params.rows.group_size);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(h);
      factor[h] = __uint_as_float(ptx::ld_shared_b32(memory.factor(query_state.index, row)));
      // Rows past the last one are computed and not written.
      last[h] = work.first_position + quotient(work.first_head + row, per_group);
      const bool is_cut = params.rule.window > 0 && last[h] >= params.rule.window;
      first[h] = is_cut ? last[h] - params.rule.window + 1 : 0;
      ref_max[h] = -infinity();
      sum[h] = 0;
    }
  }

  __device__ void clear_acc_o() {
#pragma unroll
    for (auto& part : acc_o) {
#pragma unroll
      for (float& value : part) value = 0;
    }
  }

  /// Issues acc_s = QK^T for the next key stage, as one wgmma group.
  __device__ void issue_qk() {
    const uint64_t a =
        k_major_descriptor(memory.query(query_state.index, warpgroup * 64, 0), Shape::kPanels);
    const uint64_t b = k_major_descriptor(memory.keys(key_state.index), Shape::kPanels);
    ptx::warpgroup_fence_operand(acc_s);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      const auto offset = static_cast<uint64_t>(k_major_step_offset(step) / 16);
      ptx::wgmma_ss<WgmmaOfKeys<kOperand>>(acc_s, a + offset, b + offset, step > 0 ? 1 : 0);
    }
    ptx::wgmma_commit_group();
  }

  /// Issues acc_o += PV for the next value stage, as one wgmma group.
  __device__ void issue_pv() {
    const uint64_t b = mn_major_descriptor(memory.values(value_state.index), Shape::kPanels);
    fence_acc_o();
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Shape::kTokenSteps; ++step) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int offset =
            mn_major_step_offset(Shape::kPanels, step) + part * (128 / 64) * kSwizzleAtomBytes;
        ptx::wgmma_rs<WgmmaOfValues<kOperand>>(acc_o[part], p[step],
                                               b + static_cast<uint64_t>(offset / 16), 1);
      }
    }
    ptx::wgmma_commit_group();
  }

  __device__ void fence_acc_o() {
#pragma unroll
    for (auto& part : acc_o) ptx::warpgroup_fence_operand(part);
  }

  /// Whether some row of the CTA does not attend to all of the tile; uniform in the CTA.
  __device__ bool needs_mask() const {
    const int begin = tile * kTokens;
    return begin + kTokens - 1 > work.first_position || begin < work.seen_by_all;
  }

  /// acc_s to softmax weights in f32, in place. Returns, in all lanes, whether a reference maximum
  /// rose; `rescale` then holds the factors of acc_o.
  __device__ bool exponentiate(float (&rescale)[2]) {
    float unit[2] = {factor[0], factor[1]};
    if (params.rule.soft_cap > 0) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        acc_s[i] = capped(__fmul_rn(acc_s[i], factor[i / 2 % 2]), params.rule.soft_cap);
      }
      unit[0] = unit[1] = 1.0f;
    }
    if (needs_mask()) {
      const int position = tile * kTokens + column();
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        const int at = position + i / 4 * 8 + i % 2;
        if (at < first[i / 2 % 2] || at > last[i / 2 % 2]) acc_s[i] = -infinity();
      }
    }
    const bool rescales = raise_maxima(unit, rescale);
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      base[h] =
          ref_max[h] == -infinity() ? 0.0f : ref_max[h];  // nothing attended to yet: weights are 0
    }
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i) {
        const int h = i / 2 % 2;
        acc_s[i] = ptx::ex2_approx_ftz_f32(fmaf(acc_s[i], unit[h], -base[h]));
        sum[h] = __fadd_rn(sum[h], acc_s[i]);
      }
    }
    return rescales;
  }

  /// Raises the reference maximum of the rows whose scores exceed it by more than the headroom; one
  /// vote decides that no row does, as in nearly all tiles. A row's maximum depends on no other
  /// row.
  __device__ bool raise_maxima(const float (&unit)[2], float (&rescale)[2]) {
    float greatest[2];
    bool exceeds = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float even = acc_s[2 * h], odd = acc_s[2 * h + 1];
#pragma unroll
      for (int j = 1; j < kTokens / 8; ++j) {
        even = fmaxf(even, acc_s[4 * j + 2 * h]);
        odd = fmaxf(odd, acc_s[4 * j + 2 * h + 1]);
      }
      greatest[h] = __fmul_rn(fmaxf(even, odd), unit[h]);
      exceeds = exceeds || greatest[h] > __fadd_rn(ref_max[h], kWeightHeadroom);
      rescale[h] = 1.0f;
    }
    if (!__any_sync(0xFFFFFFFFu, exceeds)) return false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float of_row = quad_max(greatest[h]);
      if (of_row > __fadd_rn(ref_max[h], kWeightHeadroom)) {
        rescale[h] = ptx::ex2_approx_ftz_f32(__fsub_rn(ref_max[h], of_row));
        ref_max[h] = of_row;
        sum[h] = __fmul_rn(sum[h], rescale[h]);
      }
    }
    return true;
  }

  __device__ void pack_p() {
#pragma unroll
    for (int step = 0; step < Shape::kTokenSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[step][i] = pack<kOperand>(acc_s[8 * step + 2 * i], acc_s[8 * step + 2 * i + 1]);
      }
    }
  }

  __device__ void rescale_acc_o(const float (&rescale)[2]) {
#pragma unroll
    for (auto& part : acc_o) {
#pragma unroll
      for (int i = 0; i < kPartColumns / 2; ++i) {
        part[i] = __fmul_rn(part[i], rescale[i / 2 % 2]);
      }
    }
  }

  __device__ void wait_for_keys() const {
    mbarrier_wait(memory.full_keys(key_state.index), key_state.parity);
  }
  __device__ void wait_for_values() const {
    mbarrier_wait(memory.full_values(value_state.index), value_state.parity);
  }
  // Consumer release: this warp is done with a stage.
  __device__ void release_keys() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(memory.empty_keys(key_state.index));
    key_state.advance(Shape::kStages);
  }
  __device__ void release_values() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(memory.empty_values(value_state.index));
    value_state.advance(Shape::kStages);
  }

  // Ping-pong of the warpgroups at the tensor cores: each waits at its own named barrier for itself
  // and the other one's arrival.
  __device__ void scheduler_barrier_sync() const { ptx::bar_sync<kConsumerThreads>(2 + warpgroup); }
  __device__ void scheduler_barrier_arrive() const {
    ptx::bar_arrive<kConsumerThreads>(3 - warpgroup);
  }

  /// Runs all work tiles of the CTA. The first QK^T of a work tile shares its turn with the last PV
  /// of the work tile before it.
  __device__ void run() {
    if (!next_work()) return;
    if (warpgroup == 1) scheduler_barrier_arrive();
    wait_for_keys();
    scheduler_barrier_sync();
    issue_qk();
    scheduler_barrier_arrive();
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(acc_s);
    release_keys();
    reset_softmax();
    float rescale[2], done_sum[2] = {};
    exponentiate(rescale);
    clear_acc_o();
    pack_p();
    int done_stage = query_state.index;  // query stage of the work tile that acc_o belongs to
    for (++tile;; ++tile) {
      const bool is_new = tile == work.end_tile;
      if (is_new) {
        query_state.advance(Shape::kQueryStages);
        if (!next_work()) break;
      }
      wait_for_keys();
      scheduler_barrier_sync();
      issue_qk();
      wait_for_values();
      issue_pv();
      ptx::wgmma_wait_group<1>();
      ptx::warpgroup_fence_operand(acc_s);
      scheduler_barrier_arrive();
      release_keys();
      if (is_new) {
        done_sum[0] = sum[0];
        done_sum[1] = sum[1];
        reset_softmax();
      }
      const bool rescales = exponentiate(rescale);
      ptx::warpgroup_fence_operand(acc_s);
      // A wait for keys stands between the softmax and the wait for wgmma: the assembler otherwise
      // moves that wait up, and the softmax would not overlap PV.
      if (tile + 1 < work.end_tile) wait_for_keys();
      ptx::wgmma_wait_group<0>();
      fence_acc_o();
      release_values();
      if (is_new) {
        stage_outputs(done_stage, done_sum);
        done_stage = query_state.index;
        clear_acc_o();
      } else if (rescales) {
        rescale_acc_o(rescale);
      }
      pack_p();
    }
    wait_for_values();
    scheduler_barrier_sync();
    issue_pv();
    if (warpgroup == 0) scheduler_barrier_arrive();
    ptx::wgmma_wait_group<0>();
    fence_acc_o();
    stage_outputs(done_stage, sum);
  }

  /// Writes acc_o / sum to the shared memory of the warp's queries. All warps of the warpgroup have
  /// passed a barrier since wgmma read them.
  __device__ void stage_outputs(int stage, const float (&sums)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(h);
      const float per_sum = 1.0f / quad_sum(sums[h]);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int j = 0; j < kPartColumns / 8; ++j) {
          const float low = __fmul_rn(acc_o[part][4 * j + 2 * h], per_sum);
          const float high = __fmul_rn(acc_o[part][4 * j + 2 * h + 1], per_sum);
          const uint32_t pair = params.activations.out_is_bf16 ? pack<Operand::kBf16>(low, high)
                                                               : pack<Operand::kF16>(low, high);
          const int byte = 2 * (part * kPartColumns + 8 * j + column());
          ptx::st_shared_b32(memory.query(stage, row, byte), pair);
        }
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(memory.outputs(stage));
  }
};

}  // namespace halley::attention
