// The product of a 4-bit weight and at most eight tokens: every warp copies what it needs to its
// own part of shared memory, far ahead, and multiplies it by mma.sync.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/mixed_gemm/hopper_launch.cuh"
#include "halley/cuda/mixed_gemm/mixed_arguments.h"
#include "halley/cuda/mixed_gemm/mixed_decode.cuh"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {

/// What a warp copies at a time: 128 inputs of all tokens, codes of the strip's rows of 16 outputs
/// and the parameters of their groups.
struct NarrowItem {
  int row = 0;    // of 16 outputs: the first
  int chunk = 0;  // of 128 inputs
};

/// Stages of weights that are copied before the kernel ahead has ended. More of them slow that one
/// down: a decode step of Llama-3 8B took 2.22 ms with two of kU4F16, 2.15 with one, 2.16 with
/// none, of kU4GroupS8 2.25 and 2.16, but of kU4S8 2.05 with two and 2.06 with one (an H200).
constexpr int narrow_early_stages(MixedKind kind) { return kind == MixedKind::kU4S8 ? 2 : 1; }

/// A warp's ring in shared memory, and what it copies there: chunks `warp`, `warp` + kNarrowWarps
/// and so on of all rows of the block.
template <class Decoder, bool kIsOneGroup>
struct NarrowRing {
  static constexpr MixedKind kKind = Decoder::kKind;
  static constexpr int kPieces = is_s8(kKind) ? 8 : 16;  // of 16 bytes, of a token's chunk
  /// Of one row of 16 outputs and one group.
  static constexpr int kGroupRowBytes = 8 * group_entry_bytes(kKind);

  const MixedArguments& args;
  uint8_t* base = nullptr;  // this warp's
  int warp = 0;
  int lane = 0;
  uint32_t barriers = 0;  // of this warp's stages: weights are there
  int row_end = 0;
  NarrowItem ahead;     // what is copied next
  int stage_ahead = 0;  // to where
  /// Rows ahead that lie one behind the other in a chunk: lane 0 copies those of the first chunk,
  /// lane 1 those of the next one.
  int piece_row = 0, piece_rows = 0;
  const uint8_t* piece = nullptr;  // the chunk's start, of chunk 0 of the inputs
  const uint8_t* x = nullptr;

  __device__ __forceinline__ uint8_t* stage(int index) const {
    return base + index * args.narrow.stage_bytes;
  }
  __device__ __forceinline__ uint32_t stage_address(int index) const {
    return shared_address_of(base) + static_cast<uint32_t>(index * args.narrow.stage_bytes);
  }
  __device__ __forceinline__ uint32_t barrier(int index) const {
    return barriers + static_cast<uint32_t>(index * 8);
  }
  __device__ __forceinline__ int rows_ahead() const {
    return min(args.narrow.rows, row_end - ahead.row);
  }

  /// At the first chunk of these rows.
  __device__ __forceinline__ void aim(int row) {
    constexpr int kPanelRows = kChunkOutputs / 16;
    ahead = {row, warp};
    const int rows = rows_ahead(), first_rows = min(rows, kPanelRows - row % kPanelRows);
    piece_row = lane == 0 ? row : row + first_rows;
    piece_rows = lane == 0 ? first_rows : lane == 1 ? rows - first_rows : 0;
    const int64_t panel = piece_row / kPanelRows;
    piece = args.weights + panel * args.schedule.num_chunks * args.chunk_bytes;
  }

  __device__ __forceinline__ void advance() {
    ahead.chunk += kNarrowWarps;
    if (ahead.chunk >= args.schedule.num_chunks) aim(ahead.row + args.narrow.rows);
    if (++stage_ahead == args.narrow.num_stages) stage_ahead = 0;
  }

  __device__ __forceinline__ void copy_weights() const {
    constexpr int kPanelRows = kChunkOutputs / 16;
    const int rows = rows_ahead();
    if (rows <= 0) return;
    const int num_groups = kGroupRowBytes == 0 ? 0
                           : kIsOneGroup       ? 1
                                               : kChunkSteps >> args.group_shift;
    const uint32_t full = barrier(stage_ahead);
    if (lane == 0) {
      arrive_expecting(full, rows * (kRowCodeBytes + num_groups * kGroupRowBytes));
    }
    __syncwarp();
    if (piece_rows <= 0) return;
    const uint8_t* chunk = piece + int64_t{ahead.chunk} * args.chunk_bytes;
    const int in_chunk = piece_row % kPanelRows, in_stage = piece_row - ahead.row;
    const uint32_t to = stage_address(stage_ahead);
    start_bulk_copy(to + static_cast<uint32_t>(in_stage * kRowCodeBytes),
                    chunk + in_chunk * kRowCodeBytes, piece_rows * kRowCodeBytes, full);
    for (int group = 0; group < num_groups; ++group) {
      const int row = group * args.narrow.rows + in_stage;
      start_bulk_copy(
          to + static_cast<uint32_t>(args.narrow.groups + row * kGroupRowBytes),
          chunk + kChunkCodeBytes + group * group_bytes(kKind) + in_chunk * kGroupRowBytes,
          piece_rows * kGroupRowBytes, full);
    }
  }

  /// Inputs as [piece of 16 bytes][token]: what lies behind K is zero.
  __device__ __forceinline__ void copy_inputs() const {
    if (rows_ahead() <= 0) return;
    constexpr int kTokens = 32 / kPieces;  // that a warp copies at a time
    const int piece = lane % kPieces;
    const int begin = ahead.chunk * (kPieces * 16) + piece * 16;
    const int num_bytes = max(0, min(16, args.x_row_bytes - begin));
    const uint8_t* from = x + (num_bytes > 0 ? begin : 0);
    uint32_t to =
        stage_address(stage_ahead) +
        static_cast<uint32_t>(args.narrow.inputs + (piece * args.M + lane / kPieces) * 16);
    for (int token = lane / kPieces; token < args.M; token += kTokens) {
      start_copy_16(to, from, num_bytes);
      to += kTokens * 16;
      from += kTokens * args.x_stride_bytes;
    }
  }

  /// Fills the ring. Weights are constant: those of the first stages do not wait for the kernel
  /// ahead.
  __device__ __forceinline__ void start(int row) {
    if (lane < args.narrow.num_stages) init_barrier(barrier(lane), 1);
    publish_barriers();
    __syncwarp();
    x = static_cast<const uint8_t*>(args.x) + lane / kPieces * args.x_stride_bytes;
    const int num_early = min(narrow_early_stages(kKind), args.narrow.num_stages);
    aim(row);
    for (int i = 0; i < num_early; ++i) {
      copy_weights();
      advance();
    }
    wait_for_previous_kernel();
    aim(row);
    stage_ahead = 0;
    for (int i = 0; i < args.narrow.num_stages; ++i) {
      if (i >= num_early) copy_weights();
      copy_inputs();
      close_copies();
      advance();
    }
  }

  /// Waits for the oldest stage. Then all lanes may read it.
  __device__ __forceinline__ void wait(int oldest, uint32_t parity) const {
    wait_barrier(barrier(oldest), parity);
    switch (args.narrow.num_stages) {
      case 1:
        wait_for_copies<0>();
        break;
      case 2:
        wait_for_copies<1>();
        break;
      case 3:
        wait_for_copies<2>();
        break;
      default:
        wait_for_copies<3>();
    }
    __syncwarp();
  }

  /// After the last read of the stage at `stage_ahead`.
  __device__ __forceinline__ void refill() {
    __syncwarp();
    copy_weights();
    copy_inputs();
    close_copies();
    advance();
  }
};

/// One stage of a warp's ring. Loads are plain C++: those of one row may pass products of another.
template <class Decoder>
struct NarrowStage {
  using Sum = typename Decoder::Sum;
  static constexpr MixedKind kKind = Decoder::kKind;
  static constexpr int kGroupRowBytes = NarrowRing<Decoder, false>::kGroupRowBytes;
  static constexpr int kVectors = is_s8(kKind) ? 2 : 4;

  const MixedArguments& args;
  const uint8_t* bytes = nullptr;
  int lane = 0;
  /// Operand B: of step s of 16 bits x[s], of two steps of s8 x[s / 2].
  uint32_t x[kVectors][4] = {};
  /// Of 16 bits: sums of a group's inputs up to a step, of tokens 2c and 2c + 1.
  float input_sums[kChunkSteps][2] = {};

  /// Rows of tokens that do not exist give sums that nobody reads.
  __device__ __forceinline__ void load_inputs() {
    const int token = min(lane % 8, args.M - 1);
    const uint32_t row =
        shared_address_of(bytes) +
        static_cast<uint32_t>(args.narrow.inputs + (lane / 8 * args.M + token) * 16);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      load_matrices(row + static_cast<uint32_t>(v * 64 * args.M), x[v]);
    }
  }

  __device__ __forceinline__ uint4 load_codes(int i, int half) const {
    return *reinterpret_cast<const uint4*>(bytes + i * kRowCodeBytes + half * 512 + lane * 16);
  }
  __device__ __forceinline__ typename Decoder::Group load_group(int i, int step) const {
    const int group = step >> args.group_shift;
    return *reinterpret_cast<const typename Decoder::Group*>(
        bytes + args.narrow.groups + (group * args.narrow.rows + i) * kGroupRowBytes +
        lane / 4 * group_entry_bytes(kKind));
  }

  template <bool kIsOneGroup>
  __device__ __forceinline__ void multiply_s8(int i, Sum (&sums)[4]) const {
    constexpr int kGroups = kIsOneGroup ? 1 : kChunkSteps;
    typename Decoder::Numbers numbers[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) numbers[g] = Decoder::plain_numbers_of(load_group(i, g));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 codes = load_codes(i, half);
      uint32_t a[4];
      Decoder::decode_plain(a, codes.x, codes.y, numbers[2 * half % kGroups]);
      Decoder::multiply_narrow(sums, a, x[half][0], x[half][1]);
      Decoder::decode_plain(a, codes.z, codes.w, numbers[(2 * half + 1) % kGroups]);
      Decoder::multiply_narrow(sums, a, x[half][2], x[half][3]);
    }
  }

  /// By the tensor cores, as the sums of the codes, with a weight whose codes are all one.
  template <bool kIsOneGroup>
  __device__ __forceinline__ void sum_inputs() {
    float sums[4] = {};
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      if (!kIsOneGroup && (step & ((1 << args.group_shift) - 1)) == 0) sums[0] = sums[1] = 0;
      Decoder::multiply_ones(sums, x[step][0], x[step][1]);
      Decoder::multiply_ones(sums, x[step][2], x[step][3]);
      input_sums[step][0] = sums[0];
      input_sums[step][1] = sums[1];
    }
  }

  /// Codes times inputs, summed over a group, then scaled.
  template <bool kIsOneGroup>
  __device__ __forceinline__ void multiply_16_bits(int i, Sum (&sums)[4]) const {
    float group_sums[4] = {};
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      const uint4 codes = load_codes(i, step / 2);
      uint32_t a[4];
      Decoder::decode_plain(a, step % 2 == 0 ? codes.x : codes.z);
      Decoder::multiply_narrow(group_sums, a, x[step][0], x[step][1]);
      Decoder::decode_plain(a, step % 2 == 0 ? codes.y : codes.w);
      Decoder::multiply_narrow(group_sums, a, x[step][2], x[step][3]);
      const bool ends =
          kIsOneGroup ? step + 1 == kChunkSteps : ((step + 1) & ((1 << args.group_shift) - 1)) == 0;
      if (ends) {
        Decoder::add_group(load_group(i, step), input_sums[step], group_sums, sums);
#pragma unroll
        for (float& sum : group_sums) sum = 0;
      }
    }
  }

  template <bool kIsOneGroup>
  __device__ __forceinline__ void multiply_row(int i, Sum (&sums)[4]) const {
    if constexpr (is_s8(kKind)) {
      multiply_s8<kIsOneGroup>(i, sums);
    } else {
      multiply_16_bits<kIsOneGroup>(i, sums);
    }
  }

  /// All rows; two at a time without a branch between.
  template <bool kIsOneGroup>
  __device__ __forceinline__ void multiply(int rows, Sum (&sums)[kNarrowRows][4]) {
    load_inputs();
    if constexpr (!is_s8(kKind)) sum_inputs<kIsOneGroup>();
#pragma unroll
    for (int i = 0; i < kNarrowRows; i += 2) {
      if (i + 1 < rows) {
        multiply_row<kIsOneGroup>(i, sums[i]);
        multiply_row<kIsOneGroup>(i + 1, sums[i + 1]);
      } else if (i < rows) {
        multiply_row<kIsOneGroup>(i, sums[i]);
      }
    }
  }
};

/// What one output of one token is multiplied with: read while weights are under way.
template <class Decoder>
struct NarrowOutput {
  float scale = 0, offset = 0, token_scale = 0, bias = 0;
  int token_sum = 0;

  __device__ __forceinline__ void load(const MixedArguments& args, int n, int m) {
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
  __device__ __forceinline__ void write(const MixedArguments& args,
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
template <class Decoder, bool kIsOneGroup>
__device__ __forceinline__ void run_narrow(const MixedArguments& args, uint8_t* shared) {
  using Sum = typename Decoder::Sum;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int block = static_cast<int>(blockIdx.x), num_blocks = static_cast<int>(gridDim.x);
  const int row_begin = part_begin(args.schedule.num_tiles, num_blocks, block);
  const int row_end = part_begin(args.schedule.num_tiles, num_blocks, block + 1);
  const int num_chunks = args.schedule.num_chunks, pitch = args.narrow.sum_pitch;
  NarrowRing<Decoder, kIsOneGroup> ring = {.args = args};
  ring.base = shared + warp * args.narrow.num_stages * args.narrow.stage_bytes;
  ring.warp = warp;
  ring.lane = lane;
  ring.barriers = shared_address_of(shared) +
                  static_cast<uint32_t>(args.narrow.barriers + warp * args.narrow.num_stages * 8);
  ring.row_end = warp < num_chunks ? row_end : row_begin;
  ring.start(row_begin);
  auto* const all_sums = reinterpret_cast<Sum*>(shared + args.narrow.sums);
  int stage = 0;
  uint32_t parity = 0;
  for (int span = row_begin; span < row_end; span += args.narrow.span) {
    const int span_end = min(span + args.narrow.span, row_end);
    // The thread's output: there are at most as many as threads.
    const int outputs = (span_end - span) * 16;
    const int m = thread / outputs, output = thread % outputs, n = span * 16 + output;
    NarrowOutput<Decoder> mine;
    mine.load(args, n, m);
    for (int row = span; row < span_end; row += args.narrow.rows) {
      const int rows = min(args.narrow.rows, span_end - row);
      Sum sums[kNarrowRows][4] = {};
#pragma unroll 1
      for (int chunk = warp; chunk < num_chunks; chunk += kNarrowWarps) {
        ring.wait(stage, parity);
        NarrowStage<Decoder> oldest = {.args = args};
        oldest.bytes = ring.stage(stage);
        oldest.lane = lane;
        oldest.template multiply<kIsOneGroup>(rows, sums);
        ring.refill();
        if (++stage == args.narrow.num_stages) {
          stage = 0;
          parity ^= 1;
        }
      }
      if (row + args.narrow.rows >= row_end) start_next_kernel();
      if (row == span && span > row_begin) __syncthreads();  // the sums before have been read
#pragma unroll
      for (int i = 0; i < kNarrowRows; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int place = (row - span + i) * 16 + lane / 4 + e / 2 * 8;
          const int token = lane % 4 * 2 + e % 2;
          if (i < rows && token < args.M) {
            all_sums[(warp * args.M + token) * pitch + place] = sums[i][e];
          }
        }
      }
    }
    __syncthreads();
    if (m < args.M && n < args.N) mine.write(args, all_sums + m * pitch + output, n, m);
  }
}

template <class Decoder>
__global__ void __launch_bounds__(kNarrowWarps * 32, 1)
    narrow_kernel(const __grid_constant__ MixedArguments args) {
  extern __shared__ uint4 shared_memory[];
  auto* const shared = reinterpret_cast<uint8_t*>(shared_memory);
  if (Decoder::kKind == MixedKind::kU4S8 || 1 << args.group_shift == kChunkSteps) {
    run_narrow<Decoder, true>(args, shared);
  } else {
    run_narrow<Decoder, false>(args, shared);
  }
}

template <class Decoder>
void launch_narrow(const MixedArguments& args, cudaStream_t stream) {
  const auto kernel = narrow_kernel<Decoder>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  args.narrow.num_bytes),
             "shared memory of mixed_gemm");
  launch_hopper_kernel(kernel,
                       {.num_blocks = args.schedule.num_blocks,
                        .num_threads = kNarrowWarps * 32,
                        .shared_bytes = args.narrow.num_bytes,
                        .starts_early = args.starts_early,
                        .stream = stream},
                       args);
}

}  // namespace halley::cuda
