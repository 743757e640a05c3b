#include "halley/base/nearest_name.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace halley {
namespace {

TEST(NearestName, FindsWhatWasMeant) {
  const std::vector<std::string_view> names = {"max_tokens", "temperature", "top_p", "stop", "n"};
  EXPECT_EQ(nearest_name("max_token", names), "max_tokens");
  EXPECT_EQ(nearest_name("maxTokens", names), "max_tokens");
  EXPECT_EQ(nearest_name("max_new_tokens", names), "max_tokens");
  EXPECT_EQ(nearest_name("temprature", names), "temperature");
  EXPECT_EQ(nearest_name("tempertaure", names), "temperature");
  EXPECT_EQ(nearest_name("topp", names), "top_p");
  EXPECT_EQ(nearest_name("stop_", names), "stop");
}

TEST(NearestName, FindsNothingWhereTooMuchDiffers) {
  const std::vector<std::string_view> names = {"max_tokens", "top_p", "n", std::string_view()};
  for (const std::string_view name : {"", "x", "frobnicate", "p_top"}) {
    EXPECT_EQ(nearest_name(name, names), "") << name;
  }
  EXPECT_EQ(nearest_name(std::string(65, 'n'), names), "");
  const std::string long_name(100, 'n');
  EXPECT_EQ(nearest_name(std::string(64, 'n'), {{std::string_view(long_name)}}), "");
  EXPECT_EQ(nearest_name("max_tokens", {}), "");
}

}  // namespace
}  // namespace halley
