#include "halley/models/base/op_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

TEST(OpSummary, TakesTheLayersNumberOff) {
  EXPECT_EQ(op_name_without_layer("layers.0.qkv"), "qkv");
  EXPECT_EQ(op_name_without_layer("layers.127.mlp.down"), "mlp.down");
  for (const char* name :
       {"embedding", "layers.", "layers.x.qkv", "layers.12", "my.layers.0.qkv"}) {
    EXPECT_EQ(op_name_without_layer(name), name);
  }
}

TEST(OpSummary, AddsUpWhatHasOneNameLongestFirst) {
  const std::vector<OpTime> times = {{"embedding", 0, 1},  {"layers.0.qkv", 1, 2},
                                     {"layers.0.o", 3, 1}, {"layers.1.qkv", 4, 3},
                                     {"layers.1.o", 7, 0}, {"output", 7, 3}};
  const std::vector<OpTotal> totals = summarize_ops(times);
  ASSERT_EQ(totals.size(), 4u);
  std::vector<std::string> names;
  for (const OpTotal& total : totals) names.push_back(total.name);
  EXPECT_THAT(names, testing::ElementsAre("qkv", "output", "embedding", "o"));
  EXPECT_EQ(totals[0].count, 2);
  EXPECT_EQ(totals[0].total_us, 5);
  EXPECT_DOUBLE_EQ(totals[0].share, 0.5);
  EXPECT_TRUE(summarize_ops({}).empty());
}

}  // namespace
}  // namespace halley
