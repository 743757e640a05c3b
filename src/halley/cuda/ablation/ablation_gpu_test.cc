// Every variant of the W4Ax product gives the product's bits.
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/ablation/ablation.h"
#include "halley/cuda/ablation/row_order.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/w4ax_pack.h"

namespace halley::cuda {
namespace {

/// As pack_w4ax(), in the order of row_order.h.
std::vector<uint8_t> pack_rows(const std::vector<uint8_t>& codes, int64_t N, int64_t K) {
  const int64_t num_chunks = ceil_div<int64_t>(K, kW4axInputs);
  std::vector<uint8_t> chunks(
      static_cast<size_t>(ceil_div<int64_t>(N, kTileOutputs) * num_chunks * kW4axChunkBytes));
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      const int64_t chunk = n / kTileOutputs * num_chunks + k / kW4axInputs;
      const int byte =
          row_code_byte(static_cast<int>(n % kTileOutputs), static_cast<int>(k % kW4axInputs));
      const uint32_t code = (codes[static_cast<size_t>(n * K + k)] ^ 8u) & 15u;
      uint8_t& to = chunks[static_cast<size_t>(chunk * kW4axChunkBytes + byte)];
      to = static_cast<uint8_t>(to | code << (k % 2 * 4));
    }
  }
  return chunks;
}

/// A weight in both orders, and inputs.
class Product {
 public:
  Product(const CudaContext& context, const ProductShape& shape)
      : shape_(shape),
        ordered_(context, shape.N, shape.K),
        rows_(context, shape.N, shape.K),
        x_(DType::kI8, shape.M, shape.K, round_up<int64_t>(shape.K, 16) - shape.K + 16),
        pitch_(round_up<int64_t>(shape.M, kW4axTokenPadding)),
        x_scales_(random_scales(static_cast<size_t>(ordered_.num_blocks() * pitch_))) {
    std::uniform_int_distribution<int> nibbles(0, 15), s8(-128, 127);
    std::vector<uint8_t> codes(static_cast<size_t>(shape.N * shape.K));
    for (uint8_t& code : codes) code = static_cast<uint8_t>(nibbles(random_));
    std::vector<float> x(static_cast<size_t>(shape.M * shape.K));
    for (float& value : x) value = static_cast<float>(s8(random_));
    x_.set(x);
    const auto w_scales =
        random_scales(static_cast<size_t>(ordered_.num_blocks() * ordered_.scales_pitch()));
    context.stream.synchronize();
    put(ordered_, pack_w4ax(codes, shape.N, shape.K), w_scales);
    put(rows_, pack_rows(codes, shape.N, shape.K), w_scales);
  }

  std::vector<float> run(const CudaContext& context, const AblationVariant& variant,
                         const TilePlan& plan) const {
    const DeviceMatrix y(DType::kF32, shape_.M, shape_.N);
    ablated_w4ax_gemm(context, variant, variant.has_rows ? rows_ : ordered_,
                      {.x = x_.matrix(), .x_scales = x_scales_.data(), .x_scales_pitch = pitch_},
                      plan, y.matrix());
    EXPECT_TRUE(y.guards_are_intact(context.stream));
    return y.get(context.stream);
  }

 private:
  /// Of f16.
  std::vector<float> random_scales(size_t count) {
    std::uniform_int_distribution<int> mantissas(1024, 2047);
    std::vector<float> scales(count);
    for (float& scale : scales) scale = static_cast<float>(mantissas(random_)) * 0x1p-16f;
    return scales;
  }

  static void put(const W4axWeight& weight, const std::vector<uint8_t>& chunks,
                  const std::vector<float>& scales) {
    ASSERT_EQ(chunks.size(), weight.codes.num_bytes());
    ASSERT_EQ(scales.size() * sizeof(float), weight.scales.num_bytes());
    copy_to_device(weight.codes.data(), chunks.data(), chunks.size());
    copy_to_device(weight.scales.data(), scales.data(), weight.scales.num_bytes());
  }

  ProductShape shape_;
  std::mt19937 random_{17};
  W4axWeight ordered_, rows_;
  DeviceMatrix x_;
  int64_t pitch_;
  DeviceArray<float> x_scales_;
};

class AblationGpu : public GpuTest {
 protected:
  void SetUp() override {
    if (device_.compute_major != 9 || device_.compute_minor != 0) {
      GTEST_SKIP() << "needs compute capability 9.0, the GPU has " << device_.compute_major << "."
                   << device_.compute_minor;
    }
  }

  /// Each plan's bits by the product's own kernel, then by all variants.
  void check(const ProductShape& shape, const Product& product, const TilePlan& plan,
             bool is_whole) {
    const std::vector<float> expected = product.run(context_, ablation_variants()[0], plan);
    double sum = 0;
    for (const float value : expected) sum += std::abs(value);
    ASSERT_GT(sum, 0);  // no NaN, and not nothing
    for (const AblationVariant& variant : ablation_variants()) {
      if (variant.has_whole_tiles && !is_whole) continue;
      SCOPED_TRACE(str(variant.name, ", M ", shape.M, ", ", plan));
      ASSERT_EQ(product.run(context_, variant, plan), expected);
    }
  }
};

TEST_F(AblationGpu, EveryVariantHasTheBitsOfTheProduct) {
  for (const ProductShape& shape : {ProductShape{1, 130, 128}, ProductShape{17, 264, 2000},
                                    ProductShape{130, 390, 1096}, ProductShape{300, 1000, 4096}}) {
    const Product product(context_, shape);
    for (size_t i = 0; i < w4ax_family().tiles.size(); ++i) {
      const auto tile = static_cast<int>(i);
      check(shape, product, plan_whole_tiles(shape, device_, tile), true);
      check(shape, product, plan_one_tile(w4ax_family(), shape, device_, tile), false);
      if (shape.K < 1000) continue;
      check(shape, product, plan_shared_tile(w4ax_family(), shape, device_, tile, 7), false);
      check(shape, product, plan_split_tile(w4ax_family(), shape, device_, tile, 3), false);
    }
  }
}

}  // namespace
}  // namespace halley::cuda
