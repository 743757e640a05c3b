// Every variant of the W4Ax GEMM gives the full kernel's bits.
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/ablation/ablation.h"
#include "halley/cuda/ablation/row_order.h"
#include "halley/cuda/hopper_tile/testing/forced_plans.h"
#include "halley/cuda/testing/block_inputs.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/testing/w4ax_test_weight.h"

namespace halley::cuda {
namespace {

/// pack_w4ax() with the layout of row_order.h.
std::vector<uint8_t> pack_rows(std::span<const uint8_t> quantized, int64_t N, int64_t K) {
  const int64_t num_chunks = ceil_div<int64_t>(K, kW4axInputs);
  std::vector<uint8_t> chunks(
      static_cast<size_t>(ceil_div<int64_t>(N, kTileOutputs) * num_chunks * kW4axChunkBytes));
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      const int64_t chunk = n / kTileOutputs * num_chunks + k / kW4axInputs;
      const int byte =
          row_major_byte(static_cast<int>(n % kTileOutputs), static_cast<int>(k % kW4axInputs));
      const uint32_t code = (quantized[static_cast<size_t>(n * K + k)] ^ 8u) & 15u;
      uint8_t& to = chunks[static_cast<size_t>(chunk * kW4axChunkBytes + byte)];
      to = static_cast<uint8_t>(to | code << (k % 2 * 4));
    }
  }
  return chunks;
}

/// A weight in both layouts, and inputs, half of them of 8 bits.
class AblationCase : public BlockInputs {
 public:
  AblationCase(const CudaContext& context, const Sizes& sizes)
      : BlockInputs(sizes, {.num_s8_inputs = sizes.K / 2}, kW4axTokenPadding),
        ordered_(context, N, K),
        rows_(context, N, K) {
    put_w4ax(context, codes(), w_scales(), ordered_);
    put_w4ax(context, codes(), w_scales(), rows_);
    const std::vector<uint8_t> chunks = pack_rows(codes(), N, K);
    copy_to_device(rows_.codes.data(), chunks.data(), rows_.codes.num_bytes());
  }

  ProductShape shape() const { return {.M = M, .N = N, .K = K}; }

  /// Checks the full kernel versus f64, then all variants that support the plan versus its bits.
  void check(const CudaContext& context, const TilePlan& plan, bool is_whole) const {
    SCOPED_TRACE(str(plan, ", M ", M));
    const DeviceMatrix y(DType::kF32, M, N);
    run(context, ablation_variants()[0], plan, y.matrix());
    expect_right(context.stream, y, DType::kF32);
    const std::vector<float> expected = y.get(context.stream);
    for (const AblationVariant& variant : ablation_variants()) {
      if (variant.has_whole_tiles && !is_whole) continue;
      SCOPED_TRACE(variant.name);
      const DeviceMatrix other(DType::kF32, M, N);
      run(context, variant, plan, other.matrix());
      ASSERT_EQ(other.get(context.stream), expected);
      ASSERT_TRUE(other.guards_are_intact(context.stream));
    }
  }

 private:
  void run(const CudaContext& context, const AblationVariant& variant, const TilePlan& plan,
           Matrix y) const {
    const W4axOperands operands = {
        .x = x(), .x_scales = x_scales(), .x_scales_pitch = x_scales_pitch, .bias = bias()};
    ablated_w4ax_gemm(context, variant, variant.has_rows ? rows_ : ordered_, operands, plan, y);
  }

  W4axWeight ordered_, rows_;
};

class AblationGpu : public HopperTest {};

TEST_F(AblationGpu, EveryVariantHasTheBitsOfTheFullKernel) {
  for (const BlockInputs::Sizes& sizes :
       {BlockInputs::Sizes{1, 130, 128}, {17, 264, 1000}, {130, 390, 1096}, {300, 500, 1536}}) {
    const AblationCase test_case(context_, sizes);
    for (size_t i = 0; i < w4ax_family().tiles.size(); ++i) {
      const auto tile = static_cast<int>(i);
      const ProductShape shape = test_case.shape();
      test_case.check(context_, plan_whole_tiles(shape, device_, tile), true);
      if (sizes.K < 1000) continue;
      test_case.check(context_, plan_shared_tile(w4ax_family(), shape, device_, tile, 7), false);
      for (const int split : {2, 3, 4}) {
        test_case.check(context_, plan_split_tile(w4ax_family(), shape, device_, tile, split),
                        false);
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
