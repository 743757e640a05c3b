#include <algorithm>
#include <iostream>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {
namespace {

class TimeW4axGemm : public HopperTest {
 protected:
  /// Random bytes, every one within the mask.
  static void fill(std::byte* to, size_t num_bytes, uint8_t mask) {
    std::vector<uint8_t> pattern(std::min<size_t>(num_bytes, (size_t{4} << 20) + 4096));
    std::mt19937 random(7);
    for (uint8_t& byte : pattern) byte = static_cast<uint8_t>(random()) & mask;
    for (size_t begin = 0; begin < num_bytes; begin += pattern.size()) {
      copy_to_device(to + begin, pattern.data(), std::min(pattern.size(), num_bytes - begin));
    }
  }
};

/// All tiles of the layers of Llama-3 8B: what the constants of w4ax_gemm.cc are judged by.
TEST_F(TimeW4axGemm, ListsAllTilesOfLayers) {
  constexpr int64_t kRowsMax = 2048;
  for (const auto& [N, K] : std::vector<std::pair<int64_t, int64_t>>{
           {6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {57344, 8192}}) {
    const size_t num_copies =
        std::max<size_t>(2, ceil_div<size_t>(3 * device_.l2_bytes, static_cast<size_t>(N * K / 2)));
    std::vector<W4axWeight> weights;
    for (size_t i = 0; i < num_copies; ++i) {
      weights.emplace_back(context_, N, K);
      stream_.synchronize();
      fill(weights.back().codes.data(), weights.back().codes.num_bytes(), 0xFF);
    }
    // Codes of 4 bits mostly: what the tensor cores multiply sets their power.
    const DeviceBuffer x(static_cast<size_t>(kRowsMax * K), "inputs to time");
    fill(x.data(), x.num_bytes(), 0x07);
    const DeviceArray<float> x_scales(
        std::vector<float>(static_cast<size_t>(kRowsMax * ceil_div<int64_t>(K, 128)), 0.01f));
    const DeviceBuffer y(static_cast<size_t>(kRowsMax * N) * 2, "outputs to time");
    for (const int64_t M : {1, 16, 64, 128, 256, 2048}) {
      for (size_t tile = 0; tile < w4ax_family().tiles.size(); ++tile) {
        const int tokens = w4ax_family().tiles[tile].tile.tokens;
        if (tokens > std::max<int64_t>(2 * M, 16) || M > 16 * tokens) continue;
        const ProductShape shape = {.M = M, .N = N, .K = K};
        const TilePlan plan =
            plan_one_tile(w4ax_family(), shape, context_.device, static_cast<int>(tile));
        const double microseconds = time_products(context_, num_copies, [&](size_t copy) {
          w4ax_gemm_planned(context_, weights[copy],
                            {.x = {x.data(), DType::kI8, M, K, K},
                             .x_scales = x_scales.data(),
                             .x_scales_pitch = kRowsMax},
                            plan, {y.data(), DType::kF16, M, N, N});
        });
        EXPECT_GT(microseconds, 0);
        const bool is_chosen =
            plan_tiles(w4ax_family(), shape, context_.device).tile_index == plan.tile_index;
        std::cout << (is_chosen ? "time * " : "time   ") << N << "x" << K << " M " << M << ": "
                  << microseconds << " us, " << plan << "\n";
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
