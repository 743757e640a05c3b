#include "halley/cuda/mma_gemm/mma_gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/mma_gemm/mma_instances.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"

namespace halley::cuda {
namespace {

using TileLaunches = std::array<MmaLaunch, kMmaTiles.size()>;

template <class Decoder>
constexpr TileLaunches kLaunchesOf = {launch_mma<Decoder, 0>, launch_mma<Decoder, 1>};

/// Rows in the order of MmaKind, columns in that of kMmaTiles.
constexpr std::array<TileLaunches, 5> kLaunches = {kLaunchesOf<MmaU4S8>, kLaunchesOf<MmaU4GroupS8>,
                                                   kLaunchesOf<MmaU4F16>, kLaunchesOf<MmaU4Bf16>,
                                                   kLaunchesOf<MmaS4Blocks>};

DType activation_dtype(MmaKind kind) {
  if (has_bytes(kind)) return DType::kI8;
  return kind == MmaKind::kU4F16 ? DType::kF16 : DType::kBf16;
}

void check_operands(const CudaContext& context, const MmaShape& shape, const ConstMatrix& x,
                    const Matrix& y) {
  w4_kernels_named(context.device, "mma");  // throws where they do not run
  HALLEY_CHECK(x.dtype == activation_dtype(shape.kind), x.dtype, shape.kind);
  HALLEY_CHECK(x.num_cols == shape.K && y.num_cols == shape.N && x.num_rows == y.num_rows,
               x.num_rows, x.num_cols, y.num_rows, y.num_cols, shape.N, shape.K);
  HALLEY_CHECK(row_alignment(x) == 16, x.row_stride);
  HALLEY_CHECK(y.dtype == DType::kF16 || y.dtype == DType::kBf16 || y.dtype == DType::kF32,
               y.dtype);
  HALLEY_CHECK(y.num_rows <= std::numeric_limits<int>::max() / 2, y.num_rows);
}

/// All but what belongs to the weight's kind.
MmaArguments arguments_of(const MmaShape& shape, const MmaPlan& plan, const ConstMatrix& x,
                          const Matrix& y) {
  const int64_t blocks = int64_t{plan.token_tiles} * plan.num_panels * plan.num_splits;
  HALLEY_CHECK(blocks <= std::numeric_limits<int>::max(), blocks);
  MmaArguments args;
  args.num_chunks = static_cast<int>(ceil_div<int64_t>(shape.K, kChunkInputs));
  args.num_panels = plan.num_panels;
  args.token_tiles = plan.token_tiles;
  args.num_stages = plan.num_stages;
  args.num_splits = plan.num_splits;
  args.chunk_bytes = chunk_bytes(layout_of(shape.kind), shape.group_size);
  args.group_shift = std::countr_zero(static_cast<unsigned>(shape.group_size / kStepInputs));
  args.M = static_cast<int>(shape.M);
  args.N = static_cast<int>(shape.N);
  const int64_t element_bytes = bits_of(x.dtype) / 8;
  args.x = reinterpret_cast<const uint8_t*>(x.data);
  args.x_stride_bytes = x.row_stride * element_bytes;
  args.x_row_bytes = shape.K * element_bytes;
  args.y = y.data;
  args.y_dtype = y.dtype;
  args.y_stride = y.row_stride;
  args.has_wide_rows = row_alignment(y) == 16;
  return args;
}

/// By the rules, for this number of rows.
template <typename Weight>
MmaPlan plan_of(const CudaContext& context, const Weight& weight, int64_t M) {
  return plan_mma_gemm(mma_shape(weight, M), mixed_device(context));
}

/// The kernel, and the one that adds its partial sums.
void launch(const CudaContext& context, MmaKind kind, const MmaPlan& plan, MmaArguments args) {
  const MmaLaunch kernel =
      kLaunches[static_cast<size_t>(kind)][static_cast<size_t>(plan.tile_index)];
  const bool has_integer_sums = kind == MmaKind::kU4S8 || kind == MmaKind::kU4GroupS8;
  const size_t mark = context.workspace.mark();
  if (plan.num_splits > 1) args.partials = context.workspace.take(plan.workspace_bytes());
  kernel(context, args, plan.shared_bytes);
  if (plan.num_splits > 1) {
    (has_integer_sums ? launch_add_partials_s32 : launch_add_partials_f32)(context, args);
  }
  context.workspace.release(mark);
}

}  // namespace

MmaShape mma_shape(const MixedWeight& weight, int64_t M) {
  HALLEY_CHECK(!is_u8(weight.kind), weight.kind);
  return {.kind = mma_kind(weight.kind),
          .M = M,
          .N = weight.N,
          .K = weight.K,
          .group_size = weight.group_size};
}

void mma_gemm(const CudaContext& context, const MixedWeight& weight, const MixedOperands& operands,
              Matrix y) {
  if (y.num_rows == 0) return;
  mma_gemm_planned(context, weight, operands, plan_of(context, weight, y.num_rows), y);
}

void mma_gemm_planned(const CudaContext& context, const MixedWeight& weight,
                      const MixedOperands& operands, const MmaPlan& plan, Matrix y) {
  if (y.num_rows == 0) return;
  const MmaShape shape = mma_shape(weight, y.num_rows);
  check_operands(context, shape, operands.x, y);
  MmaArguments args = arguments_of(shape, plan, operands.x, y);
  args.weights = reinterpret_cast<const uint8_t*>(weight.chunks.data());
  args.bias = operands.bias;
  args.scales = mixed_scales(weight, operands.x_scales);
  // Its codes are multiplied as 16 times the number.
  if (weight.kind == MixedKind::kU4S8) args.sum_factor = 0.0625f;
  launch(context, shape.kind, plan, args);
}

MmaShape mma_shape(const W4axWeight& weight, int64_t M) {
  return {.kind = MmaKind::kS4Blocks, .M = M, .N = weight.N, .K = weight.K};
}

void mma_w4ax_gemm(const CudaContext& context, const W4axWeight& weight,
                   const MmaW4axOperands& operands, Matrix y) {
  if (y.num_rows == 0) return;
  mma_w4ax_gemm_planned(context, weight, operands, plan_of(context, weight, y.num_rows), y);
}

void mma_w4ax_gemm_planned(const CudaContext& context, const W4axWeight& weight,
                           const MmaW4axOperands& operands, const MmaPlan& plan, Matrix y) {
  if (y.num_rows == 0) return;
  const MmaShape shape = mma_shape(weight, y.num_rows);
  const W4axOperands& inputs = operands.operands;
  check_operands(context, shape, inputs.x, y);
  HALLEY_CHECK(inputs.x_scales_pitch >= shape.M && inputs.x_scales_pitch % kW4axTokenPadding == 0,
               inputs.x_scales_pitch, shape.M);
  HALLEY_CHECK(std::bit_cast<uintptr_t>(inputs.x_scales) % 16 == 0);
  HALLEY_CHECK(weight.scales_pitch() == int64_t{plan.num_panels} * kChunkOutputs,
               weight.scales_pitch(), plan.num_panels);
  MmaArguments args = arguments_of(shape, plan, inputs.x, y);
  args.weights = reinterpret_cast<const uint8_t*>(weight.codes.data());
  args.bias = inputs.bias;
  args.w_block_scales = reinterpret_cast<const float*>(weight.scales.data());
  args.x_block_scales = inputs.x_scales;
  args.x_scales_pitch = inputs.x_scales_pitch;
  args.num_s8_chunks = static_cast<int>(
      ceil_div<int64_t>(std::clamp<int64_t>(operands.num_s8_inputs, 0, shape.K), kChunkInputs));
  launch(context, shape.kind, plan, args);
}

}  // namespace halley::cuda
