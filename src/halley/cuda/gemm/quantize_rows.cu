#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemm/lane_order.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/gemm/row_coder.cuh"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRowThreadsMax = 1024;
constexpr int64_t kGroupInputs = 128;
constexpr int kHeldInputs = 4;  // of a row, by a thread in registers
constexpr int kHeldVec8s = 4;   // the same in vectors of 8
// From here on rows occupy all SMs however few threads each has.
constexpr int64_t kManyRowsMin = 256;

/// One input: its row, its place in packed and in natural order.
struct Input {
  float x;
  int64_t m, packed, natural;
};

/// Takes codes.
struct CodeSink {
  uint8_t* codes;
  int64_t stride, padded_cols;
  float* scales;
  int64_t scale_row_step, scale_group_step;
  int32_t* sums;
  bool has_lane_order;

  __device__ int put(const Coder& coder, const Input& input) const {
    const int64_t begin = input.packed / kLaneInputs * kLaneInputs;
    const int64_t place =
        has_lane_order ? begin + lane_place(static_cast<int>(input.packed - begin)) : input.packed;
    uint8_t* to = codes + input.m * stride + place;
    if (coder.rounding.is_e4m3) {
      *to = e4m3_code(input.x, coder.step);
      return 0;
    }
    const int code = integer_code(input.x, coder.step, coder.limits);
    *to = static_cast<uint8_t>(static_cast<int8_t>(code));
    return code;
  }
  /// Eight inputs in a row from `packed` on, a multiple of 8. Returns the sum of integers.
  __device__ int put_vec8(const Coder& coder, int64_t m, int64_t packed, const float* x) const {
    int sum = 0;
    const auto codes_from = [&](int i) {
      return codes_of_vec4(coder.rounding.is_e4m3, {x[i], x[i + 1], x[i + 2], x[i + 3]}, coder.step,
                           coder.limits, sum);
    };
    const uint2 eight = {codes_from(0), codes_from(4)};
    uint8_t* row = codes + m * stride;
    if (!has_lane_order) {
      *reinterpret_cast<uint2*>(row + packed) = eight;
      return sum;
    }
    // Two at a time keep together.
    const auto input = static_cast<int>(packed % kLaneInputs);
    row += packed - input;
    *reinterpret_cast<uint16_t*>(row + lane_place(input)) = static_cast<uint16_t>(eight.x);
    *reinterpret_cast<uint16_t*>(row + lane_place(input + 2)) =
        static_cast<uint16_t>(eight.x >> 16);
    *reinterpret_cast<uint16_t*>(row + lane_place(input + 4)) = static_cast<uint16_t>(eight.y);
    *reinterpret_cast<uint16_t*>(row + lane_place(input + 6)) =
        static_cast<uint16_t>(eight.y >> 16);
    return sum;
  }
  __device__ void put_step(int64_t m, int64_t group, const Step& step) const {
    scales[m * scale_row_step + group * scale_group_step] = step.scale;
  }
  __device__ int64_t end_of_padding(int64_t /*num_inputs*/) const { return padded_cols; }
  __device__ void pad(int64_t m, int64_t column) const { codes[m * stride + column] = 0; }
  __device__ bool has_sums() const { return sums != nullptr; }
  __device__ void put_sum(int64_t m, int sum) const { sums[m] = sum; }
};

/// Takes the values that codes stand for.
struct ValueSink {
  void* values;
  int64_t stride;
  DType dtype;

  __device__ int put(const Coder& coder, const Input& input) const {
    float value = input.x;
    if (coder.rounding.kind != ActivationQuant::kNone) {
      const float code = coder.rounding.is_e4m3
                             ? to_float(E4m3Code{e4m3_code(input.x, coder.step)})
                             : static_cast<float>(integer_code(input.x, coder.step, coder.limits));
      value = __fmul_rn(coder.step.scale, code);
    }
    store_number(values, dtype, input.m * stride + input.natural, value);
    return 0;
  }
  __device__ void put_step(int64_t, int64_t, const Step&) const {}
  __device__ int64_t end_of_padding(int64_t num_inputs) const { return num_inputs; }
  __device__ void pad(int64_t, int64_t) const {}
  __device__ bool has_sums() const { return false; }
  __device__ void put_sum(int64_t, int) const {}
};

/// The padding, scale and sum of a row that the block has rounded; `sum` is the thread's.
template <typename Sink>
__device__ void end_row(const Sink& sink, const Coder& coder, int64_t m, int64_t num_inputs,
                        int sum) {
  __shared__ int sums_of_warps[kRowThreadsMax / 32];
  for (int64_t k = num_inputs + threadIdx.x; k < sink.end_of_padding(num_inputs); k += blockDim.x) {
    sink.pad(m, k);
  }
  if (sink.has_sums()) sum = sum_of_block(sum, sums_of_warps);
  if (threadIdx.x != 0) return;
  sink.put_step(m, 0, coder.step);
  if (sink.has_sums()) sink.put_sum(m, sum);
}

/// A block rounds a row; for kinds with one scale a row, and for none.
template <typename T, typename Sink>
__global__ void __launch_bounds__(kRowThreadsMax)
    quantize_row_kernel(const T* x, int64_t x_stride, int64_t num_inputs,
                        const __grid_constant__ Rounding rounding,
                        const __grid_constant__ Sink sink) {
  __shared__ uint32_t of_warps[kRowThreadsMax / 32];
  ptx::griddepcontrol_launch_dependents();  // first of all: see cuda/runtime/prefetch.cuh
  ptx::griddepcontrol_wait();
  const int64_t m = blockIdx.x;
  const T* row = x + m * x_stride;
  // Short rows are read once, and all of a thread's inputs are on their way together.
  float held[kHeldInputs];
  const bool is_held = num_inputs <= int64_t{kHeldInputs} * blockDim.x;
  uint32_t largest = 0;
  if (is_held) {
#pragma unroll
    for (int i = 0; i < kHeldInputs; ++i) {
      const int64_t k = threadIdx.x + int64_t{i} * blockDim.x;
      held[i] = k < num_inputs ? to_float(row[k]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kHeldInputs; ++i) largest = max(largest, magnitude_bits(held[i]));
  } else {
    for (int64_t k = threadIdx.x; k < num_inputs; k += blockDim.x) {
      largest = max(largest, magnitude_bits(to_float(row[k])));
    }
  }
  const Coder coder = {rounding, step_of(rounding, 0, largest_of_block(largest, of_warps)),
                       Limits{-128.0f, 127.0f}};
  int sum = 0;
  if (is_held) {
#pragma unroll
    for (int i = 0; i < kHeldInputs; ++i) {
      const int64_t k = threadIdx.x + int64_t{i} * blockDim.x;
      if (k < num_inputs) sum += sink.put(coder, {held[i], m, k, k});
    }
  } else {
    for (int64_t k = threadIdx.x; k < num_inputs; k += blockDim.x) {
      sum += sink.put(coder, {to_float(row[k]), m, k, k});
    }
  }
  end_row(sink, coder, m, num_inputs, sum);
}

/// The same with vectors of 8, which a thread holds in registers; rows are aligned to 16 bytes,
/// those of codes to 8.
template <typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    quantize_vec8s_kernel(const T* x, int64_t x_stride, int num_inputs,
                          const __grid_constant__ Rounding rounding,
                          const __grid_constant__ CodeSink sink) {
  __shared__ uint32_t of_warps[kRowThreadsMax / 32];
  ptx::griddepcontrol_launch_dependents();  // first of all: see cuda/runtime/prefetch.cuh
  ptx::griddepcontrol_wait();
  const int64_t m = blockIdx.x;
  const auto first_of = [](int i) {
    return 8 * (static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x));
  };
  Vec8<T> held[kHeldVec8s];
#pragma unroll
  for (int i = 0; i < kHeldVec8s; ++i) {
    if (first_of(i) < num_inputs) held[i].load(x + m * x_stride + first_of(i));
  }
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kHeldVec8s; ++i) {
    if (first_of(i) >= num_inputs) continue;
    float values[8];
    held[i].unpack(values);
#pragma unroll
    for (const float value : values) largest = max(largest, magnitude_bits(value));
  }
  const Coder coder = {rounding, step_of(rounding, 0, largest_of_block(largest, of_warps)),
                       Limits{-128.0f, 127.0f}};
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kHeldVec8s; ++i) {
    if (first_of(i) >= num_inputs) continue;
    float values[8];
    held[i].unpack(values);
    sum += sink.put_vec8(coder, m, first_of(i), values);
  }
  end_row(sink, coder, m, num_inputs, sum);
}

/// Whether quantize_vec8s_kernel() takes the rows.
bool takes_vec8s(ConstMatrix x, const CodeSink& sink) {
  const auto is_aligned = [](const void* data, uintptr_t num_bytes) {
    return reinterpret_cast<uintptr_t>(data) % num_bytes == 0;
  };
  return x.num_cols >= 8 && x.num_cols % 8 == 0 &&
         x.num_cols <= int64_t{8} * kHeldVec8s * kRowThreadsMax && x.row_stride % 8 == 0 &&
         is_aligned(x.data, 16) && sink.stride % 8 == 0 && is_aligned(sink.codes, 8);
}
/// A warp rounds a group of 128 inputs of a row, four a lane.
template <typename T, typename Sink>
__global__ void __launch_bounds__(kThreads)
    quantize_group_kernel(const T* x, int64_t x_stride, int64_t num_inputs,
                          const __grid_constant__ Rounding rounding,
                          const __grid_constant__ Sink sink) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  const int64_t group = int64_t{blockIdx.y} * kWarps + threadIdx.x / 32;
  const int64_t begin = group * kGroupInputs;
  if (begin >= num_inputs) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t end = min(begin + kGroupInputs, num_inputs);
  float values[kGroupInputs / 32];
  int64_t natural[kGroupInputs / 32];
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kGroupInputs / 32; ++i) {
    const int64_t k = begin + lane + 32 * i;
    const bool is_inside = k < end;
    natural[i] = is_inside && rounding.input_perm != nullptr ? rounding.input_perm[k] : k;
    values[i] = is_inside ? to_float(x[m * x_stride + natural[i]]) : 0.0f;
    largest = max(largest, magnitude_bits(values[i]));
  }
  largest = __reduce_max_sync(0xFFFFFFFFu, largest);
  const bool is_s8 = is_s8_block(rounding, begin);
  const Coder coder = {rounding, step_of(rounding, begin, largest),
                       Limits{is_s8 ? -128.0f : -8.0f, is_s8 ? 127.0f : 7.0f}};
#pragma unroll
  for (int i = 0; i < kGroupInputs / 32; ++i) {
    const int64_t k = begin + lane + 32 * i;
    if (k < end) sink.put(coder, {values[i], m, k, natural[i]});
  }
  if (lane == 0) sink.put_step(m, group, coder.step);
  if (end < num_inputs) return;
  for (int64_t k = end + lane; k < sink.end_of_padding(num_inputs); k += 32) sink.pad(m, k);
}

bool has_groups(ActivationQuant kind) {
  return kind == ActivationQuant::kE4m3Group128 || kind == ActivationQuant::kS4S8Block128;
}

template <typename Sink>
void launch_rounding(const CudaContext& context, const CudaActivationQuant& quant, ConstMatrix x,
                     const Sink& sink) {
  if (x.num_rows == 0) return;
  const Rounding rounding = rounding_of(quant);
  const auto rows = static_cast<unsigned>(x.num_rows);
  const auto launch = [&](auto* data) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(data)>>;
    if (has_groups(quant.kind)) {
      const auto blocks = static_cast<unsigned>(ceil_div(x.num_cols, kGroupInputs * kWarps));
      if (blocks == 0) return;
      launch_kernel(context, "rounding of activations",
                    {.grid = dim3(rows, blocks), .block = dim3(kThreads)},
                    quantize_group_kernel<T, Sink>, data, x.row_stride, x.num_cols, rounding, sink);
      return;
    }
    if constexpr (std::is_same_v<Sink, CodeSink>) {
      if (takes_vec8s(x, sink)) {
        const int64_t vec8s = x.num_cols / 8;
        const int64_t of_thread =
            x.num_rows >= kManyRowsMin ? kHeldVec8s : ceil_div<int64_t>(vec8s, kRowThreadsMax);
        const int64_t threads = round_up<int64_t>(ceil_div(vec8s, of_thread), 32);
        return launch_kernel(context, "rounding of activations",
                             {.grid = dim3(rows), .block = dim3(static_cast<unsigned>(threads))},
                             quantize_vec8s_kernel<T>, data, x.row_stride,
                             static_cast<int>(x.num_cols), rounding, sink);
      }
    }
    // A few inputs a thread: what counts for few rows is the time of one.
    const int64_t threads = std::clamp<int64_t>(
        round_up<int64_t>(ceil_div<int64_t>(x.num_cols, kHeldInputs), 32), 32, kRowThreadsMax);
    launch_kernel(context, "rounding of activations",
                  {.grid = dim3(rows), .block = dim3(static_cast<unsigned>(threads))},
                  quantize_row_kernel<T, Sink>, data, x.row_stride, x.num_cols, rounding, sink);
  };
  switch (x.dtype) {
    case DType::kF16:
      return launch(reinterpret_cast<const __half*>(x.data));
    case DType::kBf16:
      return launch(reinterpret_cast<const __nv_bfloat16*>(x.data));
    case DType::kF32:
      return launch(reinterpret_cast<const float*>(x.data));
    default:
      HALLEY_CHECK(false, name_of(x.dtype));
  }
}

}  // namespace

int64_t activation_group_inputs(ActivationQuant kind, int64_t K) {
  return has_groups(kind) ? kGroupInputs : std::max<int64_t>(K, 1);
}

DType activation_code_dtype(ActivationQuant kind) {
  const bool is_e4m3 = kind == ActivationQuant::kE4m3Token ||
                       kind == ActivationQuant::kE4m3Group128 ||
                       kind == ActivationQuant::kE4m3Static;
  return is_e4m3 ? DType::kF8E4M3 : DType::kI8;
}

QuantizedRows take_quantized_rows(const CudaContext& context, ActivationQuant kind, int64_t M,
                                  int64_t K, bool has_sums) {
  HALLEY_CHECK(!has_groups(kind), kind);
  const int64_t stride = round_up(K, kGemmPadding);
  const auto rows = static_cast<size_t>(M);
  auto* codes = context.workspace.take(static_cast<size_t>(round_up(M, kGemmPadding) * stride));
  auto* scales = context.workspace.take<float>(rows);
  auto* sums = has_sums ? context.workspace.take<int32_t>(rows) : nullptr;
  return {.codes = {codes, activation_code_dtype(kind), M, K, stride},
          .padded_cols = stride,
          .scales = scales,
          .sums = sums};
}

size_t quantized_rows_bytes(int64_t M, int64_t K) {
  const auto of_arena = [](int64_t num_bytes) {
    return round_up(static_cast<size_t>(num_bytes), DeviceArena::kAlignment);
  };
  return of_arena(round_up(M, kGemmPadding) * round_up(K, kGemmPadding)) + 2 * of_arena(4 * M);
}

void quantize_rows(const CudaContext& context, const CudaActivationQuant& quant, ConstMatrix x,
                   const QuantizedRows& out) {
  HALLEY_CHECK(
      quant.kind != ActivationQuant::kNone && out.codes.dtype == activation_code_dtype(quant.kind),
      quant.kind, name_of(out.codes.dtype));
  HALLEY_CHECK(out.codes.num_rows == x.num_rows && out.codes.num_cols == x.num_cols,
               out.codes.num_rows, out.codes.num_cols, x.num_rows, x.num_cols);
  HALLEY_CHECK(out.padded_cols <= out.codes.row_stride, out.padded_cols, out.codes.row_stride);
  HALLEY_CHECK(out.sums == nullptr || !has_groups(quant.kind), quant.kind);
  HALLEY_CHECK(!quant.has_lane_order ||
                   (quant.kind == ActivationQuant::kE4m3Token && x.num_cols % kLaneInputs == 0),
               quant.kind, x.num_cols);
  HALLEY_CHECK(out.scales_pitch == 0 || out.scales_pitch >= x.num_rows, out.scales_pitch,
               x.num_rows);
  const int64_t group = activation_group_inputs(quant.kind, x.num_cols);
  const int64_t num_groups = std::max<int64_t>(1, ceil_div(x.num_cols, group));
  launch_rounding(context, quant, x,
                  CodeSink{.codes = reinterpret_cast<uint8_t*>(out.codes.data),
                           .stride = out.codes.row_stride,
                           .padded_cols = out.padded_cols,
                           .scales = out.scales,
                           .scale_row_step = out.scales_pitch > 0 ? 1 : num_groups,
                           .scale_group_step = std::max<int64_t>(1, out.scales_pitch),
                           .sums = out.sums,
                           .has_lane_order = quant.has_lane_order});
}

void round_rows(const CudaContext& context, const CudaActivationQuant& quant, ConstMatrix x,
                Matrix rounded) {
  HALLEY_CHECK(rounded.num_rows == x.num_rows && rounded.num_cols == x.num_cols, rounded.num_rows,
               rounded.num_cols, x.num_rows, x.num_cols);
  launch_rounding(
      context, quant, x,
      ValueSink{.values = rounded.data, .stride = rounded.row_stride, .dtype = rounded.dtype});
}

}  // namespace halley::cuda
