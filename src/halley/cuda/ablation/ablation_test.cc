#include "halley/cuda/ablation/ablation.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

TEST(Ablation, HasEveryTileOfTheFullKernel) {
  for (const AblationVariant& variant : ablation_variants()) {
    if (variant.launch_of == nullptr) continue;
    std::set<W4axLaunch> launches;
    for (const TimedTile& timed : w4ax_family().tiles) {
      EXPECT_TRUE(launches.insert(variant.launch_of(timed.tile.tokens)).second) << variant.name;
    }
    EXPECT_FALSE(launches.contains(nullptr)) << variant.name;
    EXPECT_EQ(variant.launch_of(48), nullptr) << variant.name;
  }
}

TEST(Ablation, BeginsWithTheFullKernelAndNamesEachVariantOnce) {
  EXPECT_EQ(std::string(ablation_variants()[0].name), "full");
  EXPECT_EQ(ablation_variants()[0].launch_of, nullptr);
  std::set<std::string> names;
  for (const AblationVariant& variant : ablation_variants()) {
    EXPECT_TRUE(names.insert(variant.name).second) << variant.name;
  }
}

TEST(Ablation, PlansOfWholeTilesShareNone) {
  const CudaDeviceInfo device = {.compute_major = 9, .num_sms = 132, .shared_bytes_max = 232448};
  for (const ProductShape& shape : {ProductShape{16, 4096, 4096}, ProductShape{256, 6144, 4096},
                                    ProductShape{2048, 28672, 4096}}) {
    for (size_t tile = 0; tile < w4ax_family().tiles.size(); ++tile) {
      const TilePlan plan = plan_whole_tiles(shape, device, static_cast<int>(tile));
      EXPECT_EQ(plan.split, 1);
      EXPECT_EQ(num_shared_chunks(plan.schedule), 0);
      int64_t num_chunks = 0;
      for (int cta = 0; cta < plan.schedule.num_blocks; ++cta) {
        for (TileSegment segment = first_segment(plan.schedule, cta); segment.num_chunks > 0;
             segment = next_segment(plan.schedule, cta, segment)) {
          EXPECT_EQ(segment.num_chunks, plan.schedule.num_chunks);
          num_chunks += segment.num_chunks;
        }
      }
      EXPECT_EQ(num_chunks, int64_t{plan.schedule.num_tiles} * plan.schedule.num_chunks);
    }
  }
}

}  // namespace
}  // namespace halley::cuda
