#include "halley/cuda/gemv/gemv_digits.h"

#include <algorithm>

#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/input_digits.h"
#include "halley/cuda/gemv/gemv_layout.h"

namespace halley::cuda {
namespace {

constexpr int kStagesMax = 4;
/// Codes of 8 bits: the other kernel is faster where its blocks, which have 16 or 32 outputs each,
/// have fewer inputs (seen on an H200).
constexpr int64_t kInputsMin8Bits = 16384;
static_assert(kGemvPieceInputs == kDigitChunk);

}  // namespace

GemvDigitPlan plan_gemv_digits(const GemvShape& shape, int64_t M, const GemvDevice& device) {
  const bool has_kernel = shape.inputs == GemvInputs::kNumbers && shape.bits >= 3 && M >= 1 &&
                          M <= kDigitTokens &&
                          (!shape.is_grouped() || shape.group_size >= kGemvPieceInputs);
  if (!has_kernel || (shape.bits == 8 && shape.K < kInputsMin8Bits)) return {};
  const int64_t all_digits = shape.num_pieces() * digit_bytes(static_cast<int>(M));
  if (all_digits >= device.shared_bytes_max) return {};
  GemvDigitPlan plan;
  plan.blocks = static_cast<int>(std::min<int64_t>(shape.num_tiles(), device.num_sms));
  const auto block_tiles = static_cast<int>(ceil_div<int64_t>(shape.num_tiles(), plan.blocks));
  // Equal parts, which all pass the ring at the same time.
  plan.tiles = ceil_div(block_tiles, ceil_div(block_tiles, gemv_digit_tiles(shape.bits)));
  plan.stage_bytes = plan.tiles * (gemv_piece_bytes(shape.bits) + (shape.is_grouped() ? 64 : 0));
  plan.sum_pitch = plan.tiles * kGemvTileOutputs + 4;
  const int sum_bytes = 2 * kGemvDigitWarps * static_cast<int>(M) * plan.sum_pitch * 4;
  for (plan.stages = kStagesMax; plan.stages >= 2; --plan.stages) {
    plan.digits = kGemvDigitWarps * plan.stages * plan.stage_bytes;
    plan.sums = plan.digits + static_cast<int>(all_digits);
    plan.num_bytes = plan.sums + sum_bytes;
    if (plan.num_bytes <= device.shared_bytes_max) return plan;
  }
  return {};
}

}  // namespace halley::cuda
