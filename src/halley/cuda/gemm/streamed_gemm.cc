#include "halley/cuda/gemm/streamed_gemm.h"

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/gemm/streamed_arguments.h"
#include "halley/cuda/gemm/streamed_map.h"
#include "halley/cuda/runtime/tensor_map.h"

namespace halley::cuda {

CUtensorMap streamed_map(ConstMatrix matrix, int box_rows, int box_chunks) {
  const auto element_bytes = static_cast<cuuint64_t>(bits_of(matrix.dtype) / 8);
  const cuuint64_t chunk_inputs = kStreamedChunkBytes / element_bytes;
  const cuuint64_t sizes[3] = {chunk_inputs, static_cast<cuuint64_t>(matrix.num_rows),
                               static_cast<cuuint64_t>(matrix.num_cols) / chunk_inputs};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(matrix.row_stride) * element_bytes,
                                 kStreamedChunkBytes};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(chunk_inputs),
                             static_cast<cuuint32_t>(box_rows),
                             static_cast<cuuint32_t>(box_chunks)};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = tensor_map_encoder()(
      &map, tensor_map_dtype(matrix.dtype), 3, const_cast<std::byte*>(matrix.data), sizes, strides,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HALLEY_CHECK(result == CUDA_SUCCESS, static_cast<int>(result), matrix.num_rows, matrix.num_cols,
               matrix.row_stride, box_rows, box_chunks);
  return map;
}

namespace {

StreamedLaunch launch_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return launch_streamed_of<ptx::WgmmaF16>;
    case DType::kBf16:
      return launch_streamed_of<ptx::WgmmaBf16>;
    case DType::kF8E4M3:
      return launch_streamed_of<ptx::WgmmaE4m3>;
    case DType::kI8:
      return launch_streamed_of<ptx::WgmmaS8>;
    default:
      HALLEY_CHECK(false, name_of(dtype));
  }
}

void check_operands(const CudaContext& context, const StreamedOperands& operands, Matrix y) {
  if (context.device.compute_major != 9 || context.device.compute_minor != 0) {
    throw UnsupportedError(
        str("products with streamed weights: expected compute capability 9.0, "
            "got ",
            context.device.compute_major, ".", context.device.compute_minor,
            ". Use a kernel of cuBLASLt."));
  }
  const ConstMatrix& x = operands.x;
  const ConstMatrix& w = operands.w;
  const int64_t outputs = operands.gate.has_value() ? w.num_rows / 2 : w.num_rows;
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols == w.num_cols && outputs == y.num_cols &&
                   x.dtype == w.dtype,
               x.num_rows, x.num_cols, w.num_rows, w.num_cols, y.num_rows, y.num_cols);
  HALLEY_CHECK(!operands.gate.has_value() || w.num_rows % 2 == 0, w.num_rows);
  HALLEY_CHECK(x.num_rows <= kStreamedRowsMax && w.num_rows < (1 << 30), x.num_rows, w.num_rows);
  HALLEY_CHECK(x.num_cols * bits_of(x.dtype) % (kStreamedChunkBytes * 8) == 0, x.num_cols);
  HALLEY_CHECK(row_alignment(x) == 16 && row_alignment(w) == 16, x.row_stride, w.row_stride);
}

}  // namespace

StreamedShape streamed_shape(const StreamedOperands& operands) {
  return {.dtype = operands.x.dtype,
          .M = operands.x.num_rows,
          .N = operands.w.num_rows,
          .K = operands.x.num_cols,
          .is_gated = operands.gate.has_value()};
}

StreamedDevice streamed_device(const CudaContext& context) {
  return {.num_sms = context.device.num_sms,
          .shared_bytes_max = static_cast<int>(context.device.shared_bytes_max)};
}

void streamed_gemm(const CudaContext& context, const StreamedOperands& operands, Matrix y) {
  if (y.num_rows == 0 || y.num_cols == 0) return;
  streamed_gemm_planned(context, operands,
                        plan_streamed(streamed_shape(operands), streamed_device(context)), y);
}

void streamed_gemm_planned(const CudaContext& context, const StreamedOperands& operands,
                           const StreamedPlan& plan, Matrix y) {
  if (y.num_rows == 0 || y.num_cols == 0) return;
  check_operands(context, operands, y);
  const bool is_gated = operands.gate.has_value();
  StreamedArguments args;
  args.plan = plan;
  args.shared = streamed_shared(plan);
  args.M = static_cast<int>(y.num_rows);
  args.places = static_cast<int>(y.num_cols);
  args.tile_outputs = plan.tile_outputs();
  args.tile_places = is_gated ? plan.box_rows : plan.tile_outputs();
  args.second_box = is_gated ? args.places : plan.box_rows;
  args.scales = operands.scales;
  args.bias = operands.bias;
  args.is_gated = is_gated;
  args.activation = operands.gate.value_or(Activation::kSilu);
  args.y = y.data;
  args.y_dtype = y.dtype;
  args.y_stride = y.row_stride;
  launch_of(operands.x.dtype)(context, streamed_map(operands.w, plan.box_rows, plan.stage_chunks),
                              streamed_map(operands.x, plan.tokens, plan.stage_chunks), args);
}

}  // namespace halley::cuda
