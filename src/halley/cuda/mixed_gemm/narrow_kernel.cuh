// The product of a 4-bit weight and at most eight tokens: every warp copies what it needs to its
// own part of shared memory, far ahead, and multiplies it by mma.sync.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/mixed_gemm/mixed_arguments.h"
#include "halley/cuda/mixed_gemm/mixed_decode.cuh"
#include "halley/cuda/mixed_gemm/narrow_arguments.h"
#include "halley/cuda/mixed_gemm/narrow_digits.cuh"
#include "halley/cuda/mixed_gemm/narrow_plain.cuh"
#include "halley/cuda/mixed_gemm/narrow_ring.cuh"
#include "halley/cuda/mixed_gemm/narrow_stage.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

/// One stage of a warp's ring, of s8. Loads are plain C++: those of one row may pass products of
/// another.
template <class Decoder>
struct NarrowStage {
  static constexpr MixedKind kKind = Decoder::kKind;
  static constexpr int kInputBytes = 1;
  /// Of a row of 16 outputs: as mma.sync has them.
  struct Totals {
    int32_t of[4] = {};
  };

  const NarrowArguments& args;
  const uint8_t* bytes = nullptr;
  int lane = 0;
  /// Operand B of two steps.
  uint32_t x[2][4] = {};

  /// Rows of tokens that do not exist give sums that nobody reads.
  template <bool>
  __device__ __forceinline__ void prepare(const NarrowStagedInputs&, int) {
    const int token = min(lane % 8, args.M - 1);
    const uint32_t row =
        ptx::cvta_to_shared(bytes) +
        static_cast<uint32_t>(args.narrow.inputs + (lane / 8 * args.M + token) * 16);
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      ptx::ldmatrix_x4(x[v], row + static_cast<uint32_t>(v * 64 * args.M));
    }
  }

  __device__ __forceinline__ typename Decoder::Group load_group(int i, int step) const {
    const int group = step >> args.group_shift;
    return *reinterpret_cast<const typename Decoder::Group*>(
        bytes + args.narrow.groups +
        ((group * args.narrow.rows + i) * 8 + lane / 4) * group_entry_bytes(kKind));
  }

  template <bool kIsOneGroup>
  __device__ __forceinline__ void multiply_row(int i, Totals& totals) const {
    constexpr int kGroups = kIsOneGroup ? 1 : kChunkSteps;
    typename Decoder::Numbers numbers[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) numbers[g] = Decoder::plain_numbers_of(load_group(i, g));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto codes =
          *reinterpret_cast<const uint4*>(bytes + i * kRowCodeBytes + half * 512 + lane * 16);
      uint32_t a[4];
      Decoder::decode_plain(a, codes.x, codes.y, numbers[2 * half % kGroups]);
      Decoder::multiply_narrow(totals.of, a, x[half][0], x[half][1]);
      Decoder::decode_plain(a, codes.z, codes.w, numbers[(2 * half + 1) % kGroups]);
      Decoder::multiply_narrow(totals.of, a, x[half][2], x[half][3]);
    }
  }

  __device__ __forceinline__ void store(const Totals& totals, int place, int32_t* sums) const {
    store_narrow_sums(args, lane, totals.of, place, sums);
  }
};

/// All rows of a stage; two at a time without a branch between.
template <bool kIsOneGroup, class Stage>
__device__ __forceinline__ void multiply_rows(const Stage& stage, int rows,
                                              typename Stage::Totals (&totals)[kNarrowRows]) {
#pragma unroll
  for (int i = 0; i < kNarrowRows; i += 2) {
    if (i + 1 < rows) {
      stage.template multiply_row<kIsOneGroup>(i, totals[i]);
      stage.template multiply_row<kIsOneGroup>(i + 1, totals[i + 1]);
    } else if (i < rows) {
      stage.template multiply_row<kIsOneGroup>(i, totals[i]);
    }
  }
}

/// What one output of one token is multiplied with: read while weights are under way.
template <class Decoder>
struct NarrowOutput {
  float scale = 0, offset = 0, token_scale = 0, bias = 0;
  int token_sum = 0;

  __device__ __forceinline__ void load(const NarrowArguments& args, int n, int m) {
    const RowScales& scales = args.scales;
    if (n >= args.N || m >= args.M) return;
    if (args.bias != nullptr) bias = args.bias[n];
    if constexpr (is_s8(Decoder::kKind)) {
      // U4S8Decoder's numbers are 16 times too large.
      scale = (Decoder::kKind == MixedKind::kU4S8 ? 0.0625f : 1.0f) * scales.w_scales[n];
      token_scale = scales.x_scales[scales.is_x_tensor ? 0 : m];
      if (scales.w_offsets != nullptr) offset = scales.w_offsets[n];
      if (needs_input_sums(Decoder::kKind, scales)) token_sum = scales.x_sums[m];
    }
  }

  /// The warps' sums in their order, scaled as MixedEpilogue does.
  __device__ __forceinline__ void write(const NarrowArguments& args,
                                        const typename Decoder::Sum* warp_sums, int n,
                                        int m) const {
    typename Decoder::Sum sum = 0;
#pragma unroll
    for (int w = 0; w < kNarrowWarps; ++w) sum += warp_sums[w * args.M * args.narrow.sum_pitch];
    auto value = static_cast<float>(exact_sum<Decoder>(sum, token_sum));
    if constexpr (is_s8(Decoder::kKind)) {
      value *= scale;
      value = fmaf(-offset, static_cast<float>(token_sum), value);
      value *= token_scale;
    }
    store_number(args.y, args.y_dtype, m * args.y_stride + n, value + bias);
  }
};

/// Blocks have consecutive rows of 16 outputs, and go through them some at a time.
template <class Decoder, class Stage, bool kIsOneGroup>
__device__ __forceinline__ void run_narrow(const NarrowArguments& args, uint8_t* shared) {
  using Sum = typename Decoder::Sum;
  using Inputs =
      std::conditional_t<Stage::kInputBytes != 0, NarrowStagedInputs, NarrowInputs<Decoder::kKind>>;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int block = static_cast<int>(blockIdx.x);
  const int row_begin = block * args.block_rows + min(block, args.longer_blocks);
  const int row_end = row_begin + args.block_rows + (block < args.longer_blocks ? 1 : 0);
  const int num_chunks = args.num_chunks, pitch = args.narrow.sum_pitch;
  NarrowRing<Decoder::kKind, Stage::kInputBytes, kIsOneGroup> ring = {.args = args};
  ring.base = shared + warp * args.narrow.num_stages * args.narrow.stage_bytes;
  ring.warp = warp;
  ring.lane = lane;
  ring.barriers = ptx::cvta_to_shared(shared) +
                  static_cast<uint32_t>(args.narrow.barriers + warp * args.narrow.num_stages * 8);
  ring.row_end = warp < num_chunks ? row_end : row_begin;
  ptx::griddepcontrol_launch_dependents();  // whose blocks come as soon as these here end
  const Inputs inputs(args, shared, warp, lane);
  ring.start(row_begin, [&] { inputs.fetch(); });
  auto* const all_sums = reinterpret_cast<Sum*>(shared + args.narrow.sums);
  int stage = 0;
  uint32_t parity = 0;
  for (int span = row_begin; span < row_end; span += args.narrow.span) {
    const int span_end = min(span + args.narrow.span, row_end);
    // The thread's output: there are at most as many as threads.
    const int outputs = (span_end - span) * 16;
    int m = 0, output = thread;
#pragma unroll 1
    for (; m < args.M && output >= outputs; ++m) output -= outputs;
    const int n = span * 16 + output;
    NarrowOutput<Decoder> mine;
    mine.load(args, n, m);
    for (int row = span; row < span_end; row += args.narrow.rows) {
      const int rows = min(args.narrow.rows, span_end - row);
      typename Stage::Totals totals[kNarrowRows] = {};
#pragma unroll 1
      for (int own = 0; warp + own * kNarrowWarps < num_chunks; ++own) {
        Stage oldest = {.args = args};
        oldest.bytes = ring.stage(stage);
        oldest.lane = lane;
        ring.wait_for_inputs();
        inputs.provide(own, row == row_begin);
        oldest.template prepare<kIsOneGroup>(inputs, own);
        ring.wait_for_weights(stage, parity);
        multiply_rows<kIsOneGroup>(oldest, rows, totals);
        ring.refill();
        if (++stage == args.narrow.num_stages) {
          stage = 0;
          parity ^= 1;
        }
      }
      if (row == span && span > row_begin) __syncthreads();  // the sums before have been read
      Stage last = {.args = args};
      last.lane = lane;
#pragma unroll
      for (int i = 0; i < kNarrowRows; ++i) {
        if (i >= rows) continue;
        last.store(totals[i], (row - span + i) * 16, all_sums + warp * args.M * pitch);
      }
    }
    __syncthreads();
    if (m < args.M && n < args.N) mine.write(args, all_sums + m * pitch + output, n, m);
  }
}

template <class Decoder, class Stage>
__global__ void __launch_bounds__(kNarrowWarps * 32, 1)
    narrow_kernel(const __grid_constant__ NarrowArguments args) {
  extern __shared__ uint4 shared_memory[];
  auto* const shared = reinterpret_cast<uint8_t*>(shared_memory);
  if (Decoder::kKind == MixedKind::kU4S8 || 1 << args.group_shift == kChunkSteps) {
    run_narrow<Decoder, Stage, true>(args, shared);
  } else {
    run_narrow<Decoder, Stage, false>(args, shared);
  }
}

template <class Decoder, class Stage>
void launch_narrow_stage(const CudaContext& context, const NarrowArguments& args) {
  launch_kernel(context, "mixed_gemm",
                {.grid = dim3(static_cast<unsigned>(args.num_blocks)),
                 .block = dim3(kNarrowWarps * 32),
                 .shared_bytes = static_cast<size_t>(args.narrow.num_bytes),
                 .pdl = args.starts_early},
                narrow_kernel<Decoder, Stage>, args);
}

template <class Decoder>
void launch_narrow(const CudaContext& context, const NarrowArguments& args) {
  if constexpr (is_s8(Decoder::kKind)) {
    launch_narrow_stage<Decoder, NarrowStage<Decoder>>(context, args);
  } else if (args.narrow.has_digits) {
    launch_narrow_stage<Decoder, NarrowDigitStage<Decoder>>(context, args);
  } else {
    launch_narrow_stage<Decoder, NarrowPlainStage<Decoder>>(context, args);
  }
}

}  // namespace halley::cuda
