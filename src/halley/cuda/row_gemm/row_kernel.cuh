// The kernel of products of one row (row_gemm.h).
//
// Every warp copies the codes that it needs to its own ring in shared memory, from before earlier
// kernels are done. All warps make the row, and then each multiplies its parts of the inputs by
// mma.sync, of whose eight tokens all are the same one.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemm/row_inputs.cuh"
#include "halley/cuda/gemm/weight_copy.cuh"
#include "halley/cuda/mixed_gemm/mixed_decode.cuh"
#include "halley/cuda/mixed_gemm/mixed_schedule.h"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/row_gemm/row_arguments.h"
#include "halley/cuda/runtime/launch.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {

/// Codes of kW4ax are as those of kU4S8.
template <RowKind kKind>
using RowDecoder =
    std::conditional_t<kKind == RowKind::kU4F16, U4F16Decoder,
                       std::conditional_t<kKind == RowKind::kU4Bf16, U4Bf16Decoder, U4S8Decoder>>;
template <RowKind kKind>
inline constexpr bool kHasCodes = is_s8(RowDecoder<kKind>::kKind);
/// What warps add up.
template <RowKind kKind>
using RowSum = std::conditional_t<kKind == RowKind::kW4ax, float, typename RowDecoder<kKind>::Sum>;

constexpr RowNumbers row_numbers(RowKind kind) {
  if (kind == RowKind::kW4ax) return RowNumbers::kS8Blocks;
  if (kind == RowKind::kU4F16) return RowNumbers::kF16;
  return kind == RowKind::kU4Bf16 ? RowNumbers::kBf16 : RowNumbers::kS8;
}
template <RowKind kKind>
using RowInputsOf = RowInputs<row_numbers(kKind), kRowWarps>;

inline constexpr int kRowThreads = kRowWarps * 32;
inline constexpr int kPanelStrips = kChunkOutputs / 16;
static_assert(kChunkInputs == kW4axInputs && kChunkCodeBytes == kW4axChunkBytes &&
              kChunkOutputs == kTileOutputs);

/// A warp's ring, and what it copies there: chunks `warp`, `warp` + kRowWarps and so on of all
/// places of the block.
template <RowKind kKind>
struct RowRing {
  static constexpr bool kIsW4ax = kKind == RowKind::kW4ax;
  static constexpr int kGroupStripBytes =
      kIsW4ax ? 16 * 4 : 8 * group_entry_bytes(RowDecoder<kKind>::kKind);

  const RowArguments& args;
  uint32_t base = 0, barriers = 0;  // of this warp
  int warp = 0, lane = 0;
  int place_end = 0;
  int place = 0, chunk = 0, stage_ahead = 0;  // what is copied next, and to where
  /// Strips that lie one behind the other in a panel: lane 2 s + 1 has those of segment s that are
  /// in another panel than lane 2 s has.
  int piece_strip = 0, piece_strips = 0, piece_place = 0;
  const uint8_t* piece = nullptr;

  __device__ __forceinline__ uint32_t stage(int index) const {
    return base + static_cast<uint32_t>(index * args.plan.stage_bytes);
  }
  __device__ __forceinline__ uint32_t barrier(int index) const {
    return barriers + static_cast<uint32_t>(index * 8);
  }
  __device__ __forceinline__ int places_ahead() const {
    return min(args.plan.places, place_end - place);
  }

  __device__ __forceinline__ void aim(int first_place) {
    place = first_place;
    chunk = warp;
    const int segment = lane / 2, count = places_ahead();
    const int first = place + segment * args.plan.num_places;
    const int before = min(count, kPanelStrips - first % kPanelStrips);
    piece_strips = segment >= args.plan.num_segments ? 0 : lane % 2 == 0 ? before : count - before;
    piece_strip = lane % 2 == 0 ? first : first + before;
    piece_place = segment * args.plan.places + piece_strip - first;
    piece = args.weights +
            int64_t{piece_strip / kPanelStrips} * args.plan.num_chunks * args.chunk_bytes;
  }

  /// Parameters of the piece's strips: behind the codes of the chunk at `from`, but for kW4ax,
  /// whose scales lie by themselves.
  __device__ __forceinline__ const uint8_t* piece_groups(const uint8_t* from, int group) const {
    if constexpr (kIsW4ax) {
      return reinterpret_cast<const uint8_t*>(args.w_scales + chunk * args.w_scales_pitch +
                                              piece_strip * 16);
    } else {
      return from + kChunkCodeBytes + group * group_bytes(RowDecoder<kKind>::kKind) +
             piece_strip % kPanelStrips * kGroupStripBytes;
    }
  }

  __device__ __forceinline__ void copy() {
    const int count = places_ahead();
    if (count <= 0) return;
    const int num_groups = kGroupStripBytes > 0 ? kChunkSteps >> args.group_shift : 0;
    const uint32_t full = barrier(stage_ahead), to = stage(stage_ahead);
    if (lane == 0) {
      ptx::mbarrier_arrive_expect_tx(
          full, count * args.plan.num_segments * (kRowCodeBytes + num_groups * kGroupStripBytes));
    }
    __syncwarp();
    if (piece_strips > 0) {
      const uint8_t* from = piece + int64_t{chunk} * args.chunk_bytes;
      const int in_panel = piece_strip % kPanelStrips;
      start_weight_copy(to + static_cast<uint32_t>(piece_place * kRowCodeBytes),
                        from + in_panel * kRowCodeBytes, piece_strips * kRowCodeBytes, full);
      for (int group = 0; group < num_groups; ++group) {
        const int strip = group * args.plan.places * args.plan.num_segments + piece_place;
        start_weight_copy(to + static_cast<uint32_t>(args.plan.groups + strip * kGroupStripBytes),
                          piece_groups(from, group), piece_strips * kGroupStripBytes, full);
      }
    }
    chunk += kRowWarps;
    if (chunk >= args.plan.num_chunks) aim(place + args.plan.places);
    if (++stage_ahead == args.plan.num_stages) stage_ahead = 0;
  }
};

/// U4S8Decoder's numbers are 16 times too large.
inline constexpr float kCodeUnit = 0.0625f;

/// One stage of a warp's ring. Loads are plain C++: those of one strip may pass products of
/// another.
template <RowKind kKind>
struct RowStage {
  using Decoder = RowDecoder<kKind>;
  using Sum = RowSum<kKind>;
  static constexpr int kVectors = kHasCodes<kKind> ? 2 : 4;

  const RowArguments& args;
  const uint8_t* bytes = nullptr;
  int lane = 0;
  /// Operand B: of step s of 16 bits x[s], of two steps of s8 x[s / 2].
  uint32_t x[kVectors][4] = {};
  /// Of 16 bits: of a group's inputs up to a step. Of kW4ax: the scale of the chunk's inputs.
  const float* input_sums = nullptr;

  /// `row`: that of the chunk's inputs. All tokens are the same one.
  __device__ __forceinline__ void load_inputs(uint32_t row) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      ptx::ldmatrix_x4(x[v], row + static_cast<uint32_t>(v * 64 + lane / 8 * 16));
    }
  }

  __device__ __forceinline__ uint4 load_codes(int i, int half) const {
    return *reinterpret_cast<const uint4*>(bytes + i * kRowCodeBytes + half * kHalfCodeBytes +
                                           lane * 16);
  }
  __device__ __forceinline__ typename Decoder::Group load_group(int i, int step) const {
    const int group = step >> args.group_shift;
    const int strip = group * args.plan.places * args.plan.num_segments + i;
    return *reinterpret_cast<const typename Decoder::Group*>(
        bytes + args.plan.groups + (strip * 8 + lane / 4) * group_entry_bytes(Decoder::kKind));
  }

  /// By the tensor cores, as the sums of the codes, with a weight whose codes are all one: to
  /// `sums` [step].
  template <bool kIsOneGroup>
  __device__ __forceinline__ void sum_inputs(float* step_sums) const {
    float sums[4] = {};
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      if (!kIsOneGroup && (step & ((1 << args.group_shift) - 1)) == 0) sums[0] = sums[1] = 0;
      Decoder::multiply_ones(sums, x[step][0], x[step][1]);
      Decoder::multiply_ones(sums, x[step][2], x[step][3]);
      if (lane == 0) step_sums[step] = sums[0];
    }
  }

  /// Products of codes, exact.
  __device__ __forceinline__ void multiply_codes(int i, int32_t (&sums)[4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 codes = load_codes(i, half);
      uint32_t a[4];
      Decoder::decode_plain(a, codes.x, codes.y, {});
      ptx::mma_sync<ptx::MmaS8>(sums, a, x[half][0], x[half][1]);
      Decoder::decode_plain(a, codes.z, codes.w, {});
      ptx::mma_sync<ptx::MmaS8>(sums, a, x[half][2], x[half][3]);
    }
  }

  template <bool kIsOneGroup>
  __device__ __forceinline__ void multiply_strip(int i, Sum (&sums)[4]) const {
    if constexpr (kKind == RowKind::kW4ax) {
      int32_t block_sums[4] = {};
      multiply_codes(i, block_sums);
      const auto* scales =
          reinterpret_cast<const float*>(bytes + args.plan.groups) + i * 16 + lane / 4;
      const float input_scale = input_sums[0];
#pragma unroll
      for (int e = 0; e < 4; e += 2) {  // the others are of tokens that are the same one
        const float scaled =
            __fmul_rn(static_cast<float>(block_sums[e]), scales[e * 4] * kCodeUnit);
        sums[e] = __fmaf_rn(scaled, input_scale, sums[e]);
      }
    } else if constexpr (kHasCodes<kKind>) {
      multiply_codes(i, sums);
    } else {
      float group_sums[2][4] = {};  // of the two words of a step: one need not wait for the other
#pragma unroll
      for (int step = 0; step < kChunkSteps; ++step) {
        const uint4 codes = load_codes(i, step / 2);
        uint32_t a[4];
        Decoder::decode_plain(a, step % 2 == 0 ? codes.x : codes.z);
        Decoder::multiply_narrow(group_sums[0], a, x[step][0], x[step][1]);
        Decoder::decode_plain(a, step % 2 == 0 ? codes.y : codes.w);
        Decoder::multiply_narrow(group_sums[1], a, x[step][2], x[step][3]);
        const bool ends = kIsOneGroup ? step + 1 == kChunkSteps
                                      : ((step + 1) & ((1 << args.group_shift) - 1)) == 0;
        if (ends) {
#pragma unroll
          for (int e = 0; e < 4; ++e) group_sums[0][e] += group_sums[1][e];
          const float input_sum = input_sums[step];
          Decoder::add_group(load_group(i, step), {input_sum, input_sum}, group_sums[0], sums);
#pragma unroll
          for (int e = 0; e < 4; ++e) group_sums[0][e] = group_sums[1][e] = 0;
        }
      }
    }
  }
};

/// What an output is multiplied with: read while weights are under way.
template <RowKind kKind>
struct RowOutput {
  static constexpr bool kHasTokenScale = kHasCodes<kKind> && kKind != RowKind::kW4ax;
  float scale = 1, offset = 0, bias = 0;

  __device__ __forceinline__ void load(const RowArguments& args, int n) {
    if (args.bias != nullptr) bias = args.bias[n];
    if constexpr (kHasTokenScale) {
      scale = kCodeUnit * args.w_scales[n];
      if (args.w_offsets != nullptr) offset = args.w_offsets[n];
    }
  }

  /// The warps' sums in their order, `pitch` apart, scaled as mixed_gemm() does.
  __device__ __forceinline__ float value(const RowInputsOf<kKind>& inputs,
                                         const RowSum<kKind>* warp_sums, int pitch,
                                         int num_warps) const {
    RowSum<kKind> sum = 0;
#pragma unroll
    for (int w = 0; w < kRowWarps; ++w) {
      if (w < num_warps) sum += warp_sums[w * pitch];
    }
    auto value = static_cast<float>(sum);
    if constexpr (kHasTokenScale) {
      value *= scale;
      value = fmaf(-offset, inputs.sum_of_codes, value);
      value *= inputs.scale;
    }
    return value + bias;
  }
};

__device__ __forceinline__ float rounded_number(DType dtype, float x) {
  return dtype == DType::kF16 ? to_f32(from_f32<__half>(x)) : to_f32(from_f32<__nv_bfloat16>(x));
}

template <RowKind kKind, bool kIsOneGroup>
__device__ __forceinline__ void run_row(const RowArguments& args, const Rounding& rounding,
                                        uint8_t* shared) {
  using Sum = RowSum<kKind>;
  constexpr int kInputBytes = kHasCodes<kKind> ? 1 : 2;
  const RowPlan& plan = args.plan;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int block = static_cast<int>(blockIdx.x), num_blocks = static_cast<int>(gridDim.x);
  const int place_begin = part_begin(plan.num_places, num_blocks, block);
  const int place_end = part_begin(plan.num_places, num_blocks, block + 1);
  const uint32_t inputs_begin = ptx::cvta_to_shared(shared) + static_cast<uint32_t>(plan.inputs);
  ptx::griddepcontrol_launch_dependents();
  RowRing<kKind> ring = {.args = args};
  uint8_t* const stages = shared + warp * plan.num_stages * plan.stage_bytes;
  ring.base = ptx::cvta_to_shared(stages);
  ring.barriers =
      ptx::cvta_to_shared(shared) + static_cast<uint32_t>(plan.barriers + warp * kRowStagesMax * 8);
  ring.warp = warp;
  ring.lane = lane;
  ring.place_end = warp < plan.num_chunks ? place_end : place_begin;
  if (lane < plan.num_stages) ptx::mbarrier_init(ring.barrier(lane), 1);
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async_shared();
  __syncwarp();
  ring.aim(place_begin);
  RowInputsOf<kKind> inputs(args.row, rounding, inputs_begin,
                            reinterpret_cast<uint32_t*>(shared + plan.scratch));
  // In a loop, so that the code is there once.
#pragma unroll 1
  for (int phase = 0, i = 0; phase < 2; ++phase) {
#pragma unroll 1
    for (; i < (phase == 0 ? plan.early_stages : plan.num_stages); ++i) ring.copy();
    if (phase > 0) break;
    ptx::griddepcontrol_wait();
    inputs.load();
  }
  auto* const input_sums = reinterpret_cast<float*>(shared + plan.input_sums);
  inputs.write({input_sums, inputs_begin + static_cast<uint32_t>(plan.numbers - plan.inputs)});
  auto* const all_sums = reinterpret_cast<Sum*>(shared + plan.sums);
  const int segment_pitch = plan.span * 16, warp_pitch = plan.num_segments * segment_pitch;
  const int num_warps = min(kRowWarps, plan.num_chunks);
  int stage = 0;
  uint32_t parity = 0;
  if constexpr (!kHasCodes<kKind>) {
#pragma unroll 1
    for (int chunk = warp; chunk < plan.num_chunks; chunk += kRowWarps) {
      RowStage<kKind> inputs_of_chunk = {.args = args};
      inputs_of_chunk.lane = lane;
      inputs_of_chunk.load_inputs(inputs_begin + static_cast<uint32_t>(chunk * kChunkInputs * 2));
      inputs_of_chunk.template sum_inputs<kIsOneGroup>(input_sums + chunk * kChunkSteps);
    }
    __syncwarp();
  }
  for (int span = place_begin; span < place_end; span += plan.span) {
    const int span_end = min(span + plan.span, place_end);
    const int n = span * 16 + thread;
    const bool is_mine = n < min(span_end * 16, args.N / plan.num_segments);
    RowOutput<kKind> mine, factor;
    if (is_mine) mine.load(args, n);
    if (is_mine && plan.num_segments == 2) factor.load(args, args.N / 2 + n);
    if (span > place_begin) __syncthreads();  // the sums before have been read
    Sum* const own_sums = all_sums + warp * warp_pitch + lane / 4;
#pragma unroll 1
    for (int place = span; place < span_end; place += plan.places) {
      const int count = min(plan.places, span_end - place);
      Sum sums[kRowStrips][4] = {};
#pragma unroll 1
      for (int chunk = warp; chunk < plan.num_chunks; chunk += kRowWarps) {
        RowStage<kKind> oldest = {.args = args};
        oldest.bytes = stages + stage * plan.stage_bytes;
        oldest.lane = lane;
        oldest.load_inputs(inputs_begin +
                           static_cast<uint32_t>(chunk * kChunkInputs * kInputBytes));
        oldest.input_sums = input_sums + chunk * (kKind == RowKind::kW4ax ? 1 : kChunkSteps);
        ptx::mbarrier_wait_parity(ring.barrier(stage), parity);
        __syncwarp();
        // Two at a time without a branch between.
        const int strips = plan.num_segments == 1 ? count : plan.places + count;
#pragma unroll
        for (int i = 0; i < kRowStrips; i += 2) {
          if (i + 1 < strips) {
            oldest.template multiply_strip<kIsOneGroup>(i, sums[i]);
            oldest.template multiply_strip<kIsOneGroup>(i + 1, sums[i + 1]);
          } else if (i < strips) {
            oldest.template multiply_strip<kIsOneGroup>(i, sums[i]);
          }
        }
        __syncwarp();
        ring.copy();
        if (++stage == plan.num_stages) {
          stage = 0;
          parity ^= 1;
        }
      }
      int segment = 0, in_segment = 0;
#pragma unroll
      for (int i = 0; i < kRowStrips; ++i) {
        if (segment < plan.num_segments && in_segment < count && lane % 4 == 0) {
          Sum* const to = own_sums + segment * segment_pitch + (place - span + in_segment) * 16;
          to[0] = sums[i][0];
          to[8] = sums[i][2];
        }
        if (++in_segment == plan.places) in_segment = 0, ++segment;
      }
    }
    __syncthreads();
    if (!is_mine) continue;
    float value = mine.value(inputs, all_sums + thread, warp_pitch, num_warps);
    if (plan.num_segments == 2) {
      const float other =
          factor.value(inputs, all_sums + segment_pitch + thread, warp_pitch, num_warps);
      value = __fmul_rn(activate(args.activation, rounded_number(args.y_dtype, value)),
                        rounded_number(args.y_dtype, other));
    }
    store_number(args.y, args.y_dtype, n, value);
  }
}

template <RowKind kKind, bool kIsOneGroup>
__global__ void __launch_bounds__(kRowThreads, 1)
    row_kernel(const __grid_constant__ RowArguments args,
               const __grid_constant__ Rounding rounding) {
  extern __shared__ uint4 shared_memory[];
  run_row<kKind, kIsOneGroup>(args, rounding, reinterpret_cast<uint8_t*>(shared_memory));
}

template <RowKind kKind>
void launch_row(const CudaContext& context, const RowArguments& args) {
  const bool is_one_group = kHasCodes<kKind> || 1 << args.group_shift == kChunkSteps;
  const auto kernel = is_one_group ? row_kernel<kKind, true> : row_kernel<kKind, kHasCodes<kKind>>;
  launch_kernel(context, "row_gemm",
                {.grid = dim3(static_cast<unsigned>(args.plan.num_blocks)),
                 .block = dim3(kRowThreads),
                 .shared_bytes = static_cast<size_t>(args.plan.num_bytes)},
                kernel, args, rounding_of(args.quant));
}

}  // namespace halley::cuda
