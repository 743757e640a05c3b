#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/launch.cuh"
#include "halley/cuda/weights/decode_quads.h"
#include "halley/cuda/weights/quad_code.h"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;  // 32 features, 8 quads of inputs: one unit

struct DecodeArguments {
  QuadPanels panels;
  void* rows;
  DType dtype;
  int64_t num_rows, num_inputs, stride;
  uint32_t* num_lost;
};

__device__ bool is_lost(float value, DType dtype) {
  const float kept = dtype == DType::kF16    ? __half2float(__float2half_rn(value))
                     : dtype == DType::kBf16 ? __bfloat162float(__float2bfloat16_rn(value))
                                             : value;
  return !isfinite(kept);
}

/// The number of f16 in two bytes (core/nested_float.h).
__device__ float nested_number(uint32_t upper, uint32_t lower) {
  const uint32_t high = (upper - (lower >> 7)) & 0x7Eu;
  const uint32_t bits = (upper & 0x80u) << 8 | high << 7 | lower;
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

__device__ double value_of_code(PackedLayout layout, uint32_t code) {
  if (layout == PackedLayout::kF8E4M3Quad) return to_float(E4m3Code{static_cast<uint8_t>(code)});
  if (layout != PackedLayout::kE2m1Quad) return static_cast<double>(code);
  // Exponent and mantissa at the bits that f64 has for them are the value times 2^-1022.
  const double magnitude = __hiloint2double(static_cast<int>((code & 7u) << 19), 0) * 0x1p1022;
  // Code 8 is the zero of code 0, without a sign.
  return (code & 8u) != 0 ? 0.0 - magnitude : magnitude;
}

/// One rounding at the end: the factors have 24 and 8 bits, and f64 holds their product.
__device__ float weight_number(const QuadPanels& panels, int64_t panel, int64_t num_groups,
                               int column, int64_t k, uint32_t code) {
  const double value = value_of_code(panels.layout, code);
  const float* group =
      panels.groups + (panel * num_groups + k / panels.group_size) * 2 * kPanelRows;
  const double scale = group[column];
  const double zero = group[kPanelRows + column];
  const double w =
      panels.zero_kind == ZeroKind::kPoint ? scale * (value - zero) : scale * value - zero;
  return static_cast<float>(w);
}

/// A block decodes unit blockIdx.x of panels blockIdx.y, ...: a thread has 4 inputs of a feature.
template <bool kKeepsCodes>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const __grid_constant__ DecodeArguments args) {
  const QuadPanels& panels = args.panels;
  const int column = static_cast<int>(threadIdx.x) / 8;
  const int quad = static_cast<int>(threadIdx.x) % 8;
  const int64_t unit = blockIdx.x;
  const int64_t num_units = (args.num_inputs + kQuadUnitInputs - 1) / kQuadUnitInputs;
  const int64_t num_panels = (args.num_rows + kPanelRows - 1) / kPanelRows;
  const int64_t num_groups = (args.num_inputs + panels.group_size - 1) / panels.group_size;
  const bool is_nested = panels.layout == PackedLayout::kNestedF16Quad;
  const int64_t unit_bytes = quad_unit_bytes(panels.layout);
  const int64_t plane_bytes = num_units * unit_bytes;
  for (int64_t panel = blockIdx.y; panel < num_panels; panel += gridDim.y) {
    const int64_t n = panel * kPanelRows + column;
    if (n >= args.num_rows) continue;
    const uint8_t* data = panels.data + panel * plane_bytes * (is_nested ? 2 : 1) +
                          unit * unit_bytes +
                          (kKeepsCodes && args.dtype == DType::kU8 ? plane_bytes : 0);
    for (int i = 0; i < 4; ++i) {
      const int64_t k = unit * kQuadUnitInputs + quad * 4 + i;
      if (k >= args.num_inputs) break;
      const uint32_t code = quad_code(panels.layout, data, column, quad, i);
      const int64_t to =
          n * args.stride + (panels.input_perm == nullptr ? k : panels.input_perm[k]);
      if constexpr (kKeepsCodes) {
        const uint32_t shift = panels.layout == PackedLayout::kU8Quad ? 128 : 0;
        static_cast<uint8_t*>(args.rows)[to] = static_cast<uint8_t>(code - shift);
      } else {
        const float number =
            is_nested
                ? nested_number(code, quad_code(panels.layout, data + plane_bytes, column, quad, i))
                : weight_number(panels, panel, num_groups, column, k, code);
        if (is_lost(number, args.dtype)) atomicAdd(args.num_lost, 1u);
        store_number(args.rows, args.dtype, to, number);
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(const T* from, int64_t from_stride, const __grid_constant__ DecodeArguments to) {
  for (int64_t n = blockIdx.y; n < to.num_rows; n += gridDim.y) {
    const int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (k >= to.num_inputs) return;
    const float number = to_float(from[n * from_stride + k]);
    if (is_lost(number, to.dtype)) atomicAdd(to.num_lost, 1u);
    store_number(to.rows, to.dtype, n * to.stride + k, number);
  }
}

constexpr int64_t kGridRowsMax = 65535;

dim3 grid_of(int64_t along_inputs, int64_t along_rows) {
  return dim3(static_cast<unsigned>(along_inputs),
              static_cast<unsigned>(std::min(along_rows, kGridRowsMax)));
}

bool is_number(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBf16 || dtype == DType::kF32;
}

DecodeArguments arguments_of(const QuadPanels& panels, Matrix rows, uint32_t* num_lost) {
  return {.panels = panels,
          .rows = rows.data,
          .dtype = rows.dtype,
          .num_rows = rows.num_rows,
          .num_inputs = rows.num_cols,
          .stride = rows.row_stride,
          .num_lost = num_lost};
}

}  // namespace

void decode_quads(const CudaContext& context, const QuadPanels& panels, Matrix rows,
                  uint32_t* num_lost) {
  HALLEY_CHECK(is_number(rows.dtype), name_of(rows.dtype));
  if (rows.num_rows == 0 || rows.num_cols == 0) return;
  const dim3 grid =
      grid_of(ceil_div(rows.num_cols, kQuadUnitInputs), ceil_div(rows.num_rows, kPanelRows));
  launch_kernel(context, "decode_quads", {.grid = grid, .block = dim3(kThreads), .pdl = false},
                decode_kernel<false>, arguments_of(panels, rows, num_lost));
}

void decode_codes(const CudaContext& context, const QuadPanels& panels, Matrix rows) {
  const bool is_nested = panels.layout == PackedLayout::kNestedF16Quad;
  const bool is_e4m3 = is_nested || panels.layout == PackedLayout::kF8E4M3Quad;
  HALLEY_CHECK(rows.dtype == (is_e4m3 ? DType::kF8E4M3 : DType::kI8) ||
                   (is_nested && rows.dtype == DType::kU8),
               name_of(rows.dtype), panels.layout);
  if (rows.num_rows == 0 || rows.num_cols == 0) return;
  check_cuda(cudaMemsetAsync(rows.data, 0, static_cast<size_t>(rows.num_rows * rows.row_stride),
                             context.stream.get()),
             "zeroing of codes");
  const dim3 grid =
      grid_of(ceil_div(rows.num_cols, kQuadUnitInputs), ceil_div(rows.num_rows, kPanelRows));
  launch_kernel(context, "decode_codes", {.grid = grid, .block = dim3(kThreads), .pdl = false},
                decode_kernel<true>, arguments_of(panels, rows, nullptr));
}

void convert_rows(const CudaContext& context, ConstMatrix from, Matrix to, uint32_t* num_lost) {
  HALLEY_CHECK(is_number(to.dtype) && from.num_rows == to.num_rows && from.num_cols == to.num_cols,
               name_of(to.dtype), from.num_rows, from.num_cols, to.num_rows, to.num_cols);
  if (to.num_rows == 0 || to.num_cols == 0) return;
  const dim3 grid = grid_of(ceil_div<int64_t>(to.num_cols, kThreads), to.num_rows);
  const DecodeArguments args = arguments_of({}, to, num_lost);
  const auto launch = [&]<typename T>(const T* data) {
    launch_kernel(context, "convert_rows", {.grid = grid, .block = dim3(kThreads), .pdl = false},
                  convert_kernel<T>, data, from.row_stride, args);
  };
  switch (from.dtype) {
    case DType::kF16:
      return launch(reinterpret_cast<const __half*>(from.data));
    case DType::kBf16:
      return launch(reinterpret_cast<const __nv_bfloat16*>(from.data));
    case DType::kF32:
      return launch(reinterpret_cast<const float*>(from.data));
    default:
      HALLEY_CHECK(false, name_of(from.dtype));
  }
}

}  // namespace halley::cuda
