#include "halley/cuda/mixed_gemm/mixed_gemm.h"

#include <array>
#include <bit>
#include <limits>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/mixed_gemm/mixed_instances.h"
#include "halley/cuda/mixed_gemm/narrow_arguments.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/tensor_map.h"

namespace halley::cuda {
namespace {

using TileLaunches = std::array<MixedLaunch, kMixedTiles.size()>;

template <class Decoder, MixedKind kKind, size_t kTile>
constexpr MixedLaunch launch_of_tile() {
  constexpr MixedTile kShape = kMixedTiles[kTile];
  if constexpr (has_tile(kKind, kShape)) {
    return launch_mixed<Decoder, kShape.tokens, kShape.outputs>;
  } else {
    return nullptr;
  }
}

template <class Decoder, MixedKind kKind>
constexpr TileLaunches launches_of() {
  return []<size_t... kTiles>(std::index_sequence<kTiles...>) {
    return TileLaunches{launch_of_tile<Decoder, kKind, kTiles>()...};
  }
  (std::make_index_sequence<kMixedTiles.size()>());
}

/// Rows in the order of MixedKind, columns in that of kMixedTiles; null where it has no has_tile().
constexpr std::array<TileLaunches, 6> kLaunches = {
    launches_of<U4S8Decoder, MixedKind::kU4S8>(),
    launches_of<U4GroupS8Decoder, MixedKind::kU4GroupS8>(),
    launches_of<U4F16Decoder, MixedKind::kU4F16>(),
    launches_of<U4Bf16Decoder, MixedKind::kU4Bf16>(),
    launches_of<U8F16Decoder, MixedKind::kU8F16>(),
    launches_of<U8Bf16Decoder, MixedKind::kU8Bf16>()};

/// In the order of MixedKind.
constexpr std::array<NarrowLaunch, 6> kNarrowLaunches = {
    launch_narrow<U4S8Decoder>,   launch_narrow<U4GroupS8Decoder>, launch_narrow<U4F16Decoder>,
    launch_narrow<U4Bf16Decoder>, launch_narrow<U8F16Decoder>,     launch_narrow<U8Bf16Decoder>};

DType activation_dtype(MixedKind kind) {
  if (is_s8(kind)) return DType::kI8;
  return is_f16(kind) ? DType::kF16 : DType::kBf16;
}

/// Vectors of eight tokens, of a box of y: all that a block writes of a tile where every block
/// of a cluster writes as many, else one.
int y_box_vectors(const MixedTile& tile, int num_ranks) {
  const int vectors = tile.tokens / 8;
  return vectors % num_ranks == 0 ? vectors / num_ranks : 1;
}

MixedMaps maps_of(const MixedTile& tile, int box_vectors, ConstMatrix x, Matrix y, bool has_y) {
  MixedMaps maps;
  maps.x = box_map({.matrix = x, .box_cols = 128 * 8 / bits_of(x.dtype), .box_rows = tile.tokens});
  maps.y = has_y ? box_map({.matrix = y, .box_cols = 64, .box_rows = 8 * box_vectors}) : maps.x;
  return maps;
}

void check_operands(const CudaContext& context, const MixedWeight& weight,
                    const MixedOperands& operands, Matrix y) {
  if (context.device.compute_major != 9 || context.device.compute_minor != 0) {
    throw UnsupportedError(str("products of packed weights: expected compute capability 9.0, got ",
                               context.device.compute_major, ".", context.device.compute_minor,
                               ". Use a kernel that decodes at load."));
  }
  const ConstMatrix& x = operands.x;
  HALLEY_CHECK(x.dtype == activation_dtype(weight.kind), x.dtype, weight.kind);
  HALLEY_CHECK(x.num_cols == weight.K && y.num_cols == weight.N && x.num_rows == y.num_rows,
               x.num_rows, x.num_cols, y.num_rows, y.num_cols, weight.N, weight.K);
  HALLEY_CHECK(row_alignment(x) == 16, x.row_stride);
  HALLEY_CHECK(y.dtype == DType::kF16 || y.dtype == DType::kBf16 || y.dtype == DType::kF32,
               y.dtype);
  HALLEY_CHECK(!weight.needs_sums() || operands.x_scales.x_sums != nullptr, weight.kind);
}

/// All but what depends on the tile.
MixedArguments arguments_of(const MixedWeight& weight, const MixedOperands& operands,
                            const MixedPlan& plan, Matrix y) {
  MixedArguments args;
  args.weights = reinterpret_cast<const uint8_t*>(weight.chunks.data());
  args.chunk_bytes = chunk_bytes(weight.kind, weight.group_size);
  args.group_shift = std::countr_zero(static_cast<unsigned>(weight.group_size / kStepInputs));
  args.num_panels = static_cast<int>(ceil_div<int64_t>(weight.N, kChunkOutputs));
  args.num_stages = plan.num_stages;
  args.token_tiles = plan.token_tiles;
  args.schedule = DealtSchedule(plan.schedule);
  args.M = static_cast<int>(y.num_rows);
  args.N = static_cast<int>(weight.N);
  args.starts_early = operands.starts_early;
  args.scales = mixed_scales(weight, operands.x_scales);
  args.bias = operands.bias;
  args.y = y.data;
  args.y_dtype = y.dtype;
  args.y_stride = y.row_stride;
  args.has_y_map = y.dtype != DType::kF32 && row_alignment(y) == 16;
  return args;
}

/// Of a product that arguments_of() has described.
NarrowArguments narrow_arguments_of(const MixedArguments& args, const MixedPlan& plan,
                                    const ConstMatrix& x) {
  const int64_t number_bytes = bits_of(x.dtype) / 8;
  return {.weights = args.weights,
          .chunk_bytes = args.chunk_bytes,
          .group_shift = args.group_shift,
          .num_chunks = args.schedule.num_chunks,
          .num_blocks = args.schedule.num_blocks,
          .block_rows = args.schedule.num_tiles / args.schedule.num_blocks,
          .longer_blocks = args.schedule.num_tiles % args.schedule.num_blocks,
          .narrow = plan.narrow,
          .M = args.M,
          .N = args.N,
          .x = x.data,
          .x_stride_bytes = x.row_stride * number_bytes,
          .x_row_bytes = static_cast<int>(x.num_cols * number_bytes),
          .scales = args.scales,
          .bias = args.bias,
          .y = args.y,
          .y_dtype = args.y_dtype,
          .y_stride = args.y_stride,
          .starts_early = args.starts_early};
}

}  // namespace

MixedWeight::MixedWeight(const MixedShape& shape, bool with_offsets)
    : kind(shape.kind),
      N(shape.N),
      K(shape.K),
      group_size(shape.group_size),
      chunks(static_cast<size_t>(mixed_bytes(kind, N, K, group_size)), "a packed weight"),
      has_offsets(with_offsets),
      counters(size_t{kSlotsMax} * sizeof(uint32_t), "counters of a weight") {
  check_cuda(cudaMemset(counters.data(), 0, counters.num_bytes()), "counters of a weight");
  // Other streams do not wait for it.
  check_cuda(cudaStreamSynchronize(nullptr), "counters of a weight");
  if (is_s8(kind)) {
    const int64_t scale_bytes = mixed_scale_bytes(kind, N, with_offsets);
    scales = DeviceBuffer(static_cast<size_t>(scale_bytes), "scales of a packed weight");
  }
}

MixedWeight::MixedWeight(const MixedPacked& packed)
    : MixedWeight(
          {.kind = packed.kind, .N = packed.N, .K = packed.K, .group_size = packed.group_size},
          !packed.w_offsets.empty()) {
  check_cuda(
      cudaMemcpy(chunks.data(), packed.chunks.data(), packed.chunks.size(), cudaMemcpyHostToDevice),
      "copy of a packed weight");
  std::vector<float> both = packed.w_scales;
  both.insert(both.end(), packed.w_offsets.begin(), packed.w_offsets.end());
  if (!both.empty()) {
    check_cuda(cudaMemcpy(scales.data(), both.data(), scales.num_bytes(), cudaMemcpyHostToDevice),
               "copy of scales");
  }
  // Other streams do not wait for copies beside them.
  check_cuda(cudaDeviceSynchronize(), "copy of a packed weight");
}

MixedShape mixed_shape(const MixedWeight& weight, int64_t M) {
  return {
      .kind = weight.kind, .M = M, .N = weight.N, .K = weight.K, .group_size = weight.group_size};
}

MixedDevice mixed_device(const CudaContext& context) {
  return {.num_sms = context.device.num_sms,
          .shared_bytes_max = static_cast<int>(context.device.shared_bytes_max)};
}

RowScales mixed_scales(const MixedWeight& weight, const RowScales& x_scales) {
  if (!is_s8(weight.kind)) return {};
  HALLEY_CHECK(x_scales.x_scales != nullptr);
  HALLEY_CHECK(!weight.has_offsets || x_scales.x_sums != nullptr);
  return {.x_scales = x_scales.x_scales,
          .w_scales = weight.w_scales(),
          .is_x_tensor = x_scales.is_x_tensor,
          .w_offsets = weight.w_offsets(),
          .x_sums = x_scales.x_sums};
}

void mixed_gemm(const CudaContext& context, const MixedWeight& weight,
                const MixedOperands& operands, Matrix y) {
  if (y.num_rows == 0) return;
  const MixedPlan plan = plan_mixed_gemm(mixed_shape(weight, y.num_rows), mixed_device(context));
  mixed_gemm_planned(context, weight, operands, plan, y);
}

void mixed_gemm_planned(const CudaContext& context, const MixedWeight& weight,
                        const MixedOperands& operands, const MixedPlan& plan, Matrix y) {
  if (y.num_rows == 0) return;
  check_operands(context, weight, operands, y);
  HALLEY_CHECK(y.num_rows <= std::numeric_limits<int>::max() / 2, y.num_rows);
  MixedArguments args = arguments_of(weight, operands, plan, y);
  const auto kind = static_cast<size_t>(weight.kind);
  if (plan.is_narrow) {
    HALLEY_CHECK(can_be_narrow(mixed_shape(weight, y.num_rows)), y.num_rows, weight.K);
    kNarrowLaunches[kind](context, narrow_arguments_of(args, plan, operands.x));
    return;
  }
  HALLEY_CHECK(has_tile(weight.kind, plan.tile), weight.kind, plan.tile.tokens, plan.tile.outputs);
  args.shared = mixed_shared(weight.kind, plan.tile, args.chunk_bytes, plan.num_stages,
                             plan.schedule.num_ranks);
  args.of_units = equal_parts(num_units(plan.tile), plan.schedule.num_ranks);
  args.y_box_vectors = y_box_vectors(plan.tile, plan.schedule.num_ranks);
  HALLEY_CHECK(num_slots(plan.schedule) <= kSlotsMax, plan);
  const size_t mark = context.workspace.mark();
  args.left_sums = context.workspace.take(plan.workspace_bytes());
  args.counters = reinterpret_cast<uint32_t*>(weight.counters.data());
  const MixedMaps maps = maps_of(plan.tile, args.y_box_vectors, operands.x, y, args.has_y_map);
  kLaunches[kind][static_cast<size_t>(plan.tiling.tile_index)](context, maps, args);
  context.workspace.release(mark);
}

}  // namespace halley::cuda
