#include "halley/cuda/grouped_gemm/quantized_grouped_gemm.h"

#include <algorithm>
#include <array>
#include <bit>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/grouped_gemm/grouped_arguments.h"
#include "halley/cuda/grouped_gemm/grouped_tiles.h"

namespace halley::cuda {
namespace {

using Launch = void (*)(const CudaContext&, const GroupedArguments&);
/// In the order of Tile.
using TileLaunches = std::array<Launch, 4>;

enum class Tile : uint8_t { kLone, kFew, kSome, kMany };

template <GroupedKind kKind>
constexpr TileLaunches kLaunchesOf = {
    launch_quantized_grouped<kKind, LoneTile>, launch_quantized_grouped<kKind, FewTile>,
    launch_quantized_grouped<kKind, SomeTile>, launch_quantized_grouped<kKind, ManyTile>};

/// In the order of GroupedKind.
constexpr std::array<TileLaunches, kNumQuantizedKinds> kLaunches = {
    kLaunchesOf<GroupedKind::kU4S8>,  kLaunchesOf<GroupedKind::kU4GroupS8>,
    kLaunchesOf<GroupedKind::kU4F16>, kLaunchesOf<GroupedKind::kU4Bf16>,
    kLaunchesOf<GroupedKind::kU8F16>, kLaunchesOf<GroupedKind::kU8Bf16>,
    kLaunchesOf<GroupedKind::kS8>,    kLaunchesOf<GroupedKind::kE4m3>};

/// By the slots that an expert has on average, and by how many tiles there will be.
Tile choose_tile(const CudaContext& context, const GroupedGemm& gemm, const Matrix& y) {
  if (gemm.second_half_begin % kHalfOutputs != 0) return Tile::kLone;
  if (y.num_rows > kSomeTokensMax * gemm.num_experts) return Tile::kMany;
  if (y.num_rows > kFewTokensMax * gemm.num_experts) return Tile::kSome;
  const int64_t experts = std::min(y.num_rows, gemm.num_experts);
  const int64_t tiles = experts * num_output_tiles(static_cast<int>(y.num_cols),
                                                   gemm.epilogue == GroupedEpilogue::kGated,
                                                   FewTile::kRowBlocks * kBlockOutputs);
  // Its warps add the inputs of a stage in two parts. Accumulators of integers are exact.
  const bool may_be_lone = has_integer_sums(gemm.kind) || !gemm.is_batch_invariant;
  return may_be_lone && tiles < int64_t{2} * context.device.num_sms ? Tile::kLone : Tile::kFew;
}

}  // namespace

void quantized_grouped_gemm(const CudaContext& context, const GroupedGemm& gemm, Matrix y) {
  check_grouped_gemm(gemm, y);
  HALLEY_CHECK(!is_float_rows(gemm.kind), gemm.kind);
  HALLEY_CHECK(gemm.second_half_begin % kHalfOutputsMin == 0, gemm.second_half_begin);
  HALLEY_CHECK(!is_rows(gemm.kind) || gemm.weight_stride % kPieceBytes == 0, gemm.weight_stride);
  if (y.num_rows == 0 || y.num_cols == 0) return;
  const ConstMatrix& x = gemm.x;
  const int64_t x_bytes = bits_of(x.dtype) / 8;
  GroupedArguments args;
  static_cast<GroupedBaseArguments&>(args) = base_arguments(gemm, y);
  args.x = reinterpret_cast<const uint8_t*>(x.data);
  args.x_stride_bytes = x.row_stride * x_bytes;
  args.x_row_bytes = static_cast<int>(x.num_cols * x_bytes);
  args.second_half_block = static_cast<int>(gemm.second_half_begin / kBlockOutputs);
  args.weight_step_bytes = gemm.weight_stride;
  if (!is_rows(gemm.kind)) {
    args.weight_step_bytes = chunk_bytes(mixed_kind(gemm.kind), gemm.group_size);
    args.group_shift = std::countr_zero(static_cast<unsigned>(gemm.group_size / kStepInputs));
  }
  args.num_chunks = static_cast<int>(ceil_div<int64_t>(x.num_cols, kChunkInputs));
  args.is_in_pairs = y.num_cols % 2 == 0 && args.y_stride_bytes % 4 == 0 &&
                     std::bit_cast<uintptr_t>(y.data) % 4 == 0;
  const Tile tile = choose_tile(context, gemm, y);
  kLaunches[static_cast<size_t>(gemm.kind)][static_cast<size_t>(tile)](context, args);
}

}  // namespace halley::cuda
