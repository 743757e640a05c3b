#include "halley/cuda/mma_gemm/mma_plan.h"

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley::cuda {
namespace {

/// An A100, an A10 or L4 and an H200: what plans know of them.
constexpr MixedDevice kDevices[] = {{108, 166912}, {72, 101376}, {132, 232448}};
constexpr MmaKind kKinds[] = {MmaKind::kU4S8, MmaKind::kU4GroupS8, MmaKind::kU4F16,
                              MmaKind::kU4Bf16, MmaKind::kS4Blocks};

TEST(MmaPlan, FitsEveryDevice) {
  for (const MixedDevice& device : kDevices) {
    for (const MmaKind kind : kKinds) {
      for (const int group_size : {32, 64, 128}) {
        for (int tile = 0; tile < static_cast<int>(kMmaTiles.size()); ++tile) {
          const MmaPlan plan = mma_plan_of({kind, 5, 300, 700, group_size}, device, tile, 1);
          EXPECT_GE(plan.num_stages, 2) << kind << ", " << plan;
          EXPECT_LE(plan.shared_bytes, device.shared_bytes_max) << kind << ", " << plan;
          EXPECT_EQ(plan.workspace_bytes(), 0u);
        }
      }
    }
  }
}

TEST(MmaPlan, TakesNoMoreWorkspaceThanItSays) {
  for (const MixedDevice& device : kDevices) {
    for (const int64_t M : {1, 16, 17, 64, 65, 128, 129, 500, 5000}) {
      for (const int64_t N : {1, 128, 129, 4096, 28672}) {
        for (const int64_t K : {1, 511, 512, 4096, 28672}) {
          const MmaPlan plan = plan_mma_gemm({MmaKind::kU4F16, M, N, K, 128}, device);
          EXPECT_LE(plan.workspace_bytes(), mma_workspace_bytes_max(device)) << plan;
          EXPECT_LE(plan.num_splits, (K + 127) / 128) << plan;
          EXPECT_EQ(plan.workspace_bytes() > 0, plan.num_splits > 1) << plan;
          EXPECT_GE(int64_t{plan.token_tiles} * plan.tile().tokens, M) << plan;
          EXPECT_EQ(plan.num_panels, (N + 127) / 128) << plan;
        }
      }
    }
  }
}

TEST(MmaPlan, SplitsSmallLayersAndNoLargeOnes) {
  const MixedDevice& a100 = kDevices[0];
  EXPECT_GT(plan_mma_gemm({MmaKind::kU4F16, 1, 4096, 4096, 128}, a100).num_splits, 1);
  EXPECT_EQ(plan_mma_gemm({MmaKind::kU4F16, 2048, 4096, 4096, 128}, a100).num_splits, 1);
  EXPECT_EQ(plan_mma_gemm({MmaKind::kU4F16, 1, 57344, 8192, 128}, a100).num_splits, 1);
  EXPECT_EQ(invariant_mma_plan({MmaKind::kU4F16, 1, 4096, 4096, 128}, a100).num_splits, 1);
}

/// All that a launch is made of.
auto fields_of(const MmaPlan& plan) {
  return std::tuple(plan.tile_index, plan.token_tiles, plan.num_panels, plan.num_splits,
                    plan.num_stages);
}

TEST(MmaPlan, IsTheSameEveryTime) {
  for (const MixedDevice& device : kDevices) {
    for (const MmaKind kind : kKinds) {
      for (const int64_t M : {1, 16, 65, 2048}) {
        const MmaShape shape = {kind, M, 4096, 4096, 128};
        EXPECT_EQ(fields_of(plan_mma_gemm(shape, device)), fields_of(plan_mma_gemm(shape, device)))
            << kind << " " << M;
      }
    }
  }
}

TEST(MmaPlan, SplitsInputsAlikeForAllRowsWhereItIsInvariant) {
  for (const MixedDevice& device : kDevices) {
    for (const int64_t N : {1, 129, 4096, 28672}) {
      const MmaPlan one = invariant_mma_plan({MmaKind::kU4F16, 1, N, 4096, 128}, device);
      for (const int64_t M : {2, 16, 17, 64, 65, 2048}) {
        const MmaPlan plan = invariant_mma_plan({MmaKind::kU4F16, M, N, 4096, 128}, device);
        EXPECT_EQ(plan.num_splits, one.num_splits) << plan;
        EXPECT_GE(int64_t{plan.token_tiles} * plan.tile().tokens, M) << plan;
      }
    }
  }
}

TEST(MmaPlan, PlansThatDifferPrintDifferently) {
  std::map<std::string, decltype(fields_of(MmaPlan()))> plans;
  for (const int64_t M : {1, 70, 300}) {
    for (const int64_t N : {128, 300}) {
      for (int tile = 0; tile < static_cast<int>(kMmaTiles.size()); ++tile) {
        for (const int num_splits : {1, 2, 5}) {
          const MmaPlan plan =
              mma_plan_of({MmaKind::kU4F16, M, N, 700, 128}, kDevices[0], tile, num_splits);
          const auto [found, is_new] = plans.emplace(str(plan), fields_of(plan));
          EXPECT_EQ(found->second, fields_of(plan)) << plan;
        }
      }
    }
  }
  EXPECT_EQ(plans.size(), 36U);
}

/// Eight lanes read one piece of eight tokens at a time, and threads write neighbouring pieces.
TEST(MmaLayout, PiecesMeetNoBankTwice) {
  for (const MmaKind kind : kKinds) {
    const int pieces = row_bytes(kind) / 16;
    std::set<int> places;
    for (int token = 0; token < 128; ++token) {
      for (int piece = 0; piece < pieces; ++piece) {
        const int offset = piece_offset(kind, token, piece);
        EXPECT_EQ(offset % 16, 0);
        EXPECT_LT(offset, weights_offset(kind, 128));
        EXPECT_TRUE(places.insert(offset).second) << kind << " " << token << " " << piece;
      }
    }
    for (int token = 0; token < 128; token += 8) {
      for (int piece = 0; piece < pieces; ++piece) {
        std::set<int> banks;
        for (int i = 0; i < 8; ++i) banks.insert(piece_offset(kind, token + i, piece) % 128);
        EXPECT_EQ(banks.size(), 8u) << kind;
      }
    }
  }
}

TEST(MmaLayout, SumsOfAWarpMeetNoBankTwice) {
  std::set<int> banks;
  for (int lane = 0; lane < 32; ++lane) {
    banks.insert((lane % 4 * 2 * kSumsPitch + lane / 4) % 32);
  }
  EXPECT_EQ(banks.size(), 32u);
}

/// A lane's codes of 64 inputs are 16 bytes that begin at its own multiple of 16.
TEST(MmaLayout, LanesOfATileAreNextToEachOther) {
  for (const MmaKind kind :
       {MmaKind::kU4S8, MmaKind::kU4GroupS8, MmaKind::kU4F16, MmaKind::kU4Bf16}) {
    const MixedKind layout = layout_of(kind);
    for (int n = 0; n < kChunkOutputs; ++n) {
      for (int k = 0; k < kChunkInputs; ++k) {
        const int begin = codes_offset(kind, n / 16, k / 64);
        const int lane = n % 8 * 4 + (has_bytes(kind) ? k % 16 / 4 : k % 8 / 2);
        const int word = k % 64 / 16;
        EXPECT_EQ(nibble_place(layout, n, k).byte / 4, begin / 4 + lane * 4 + word)
            << n << " " << k;
      }
    }
  }
}

TEST(MmaLayout, LanesOfABlocksTileAreNextToEachOther) {
  for (int byte = 0; byte < kW4axChunkBytes; ++byte) {
    const auto& [output, input] = w4ax_byte_place(byte);
    const int lane = output % 8 * 4 + input % 16 / 4, word = input % 64 / 16;
    const int begin = codes_offset(MmaKind::kS4Blocks, output / 16, input / 64);
    EXPECT_EQ(byte, begin + lane * 16 + word * 4 + input % 4);
    EXPECT_LT(output % 16, 8);
  }
}

}  // namespace
}  // namespace halley::cuda
