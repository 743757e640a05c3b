#include "halley/cli/gemm_report.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cli {
namespace {

using cuda::GemmTime;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

GemmTime time_of(const char* problem, int64_t M, double microseconds, double early) {
  return {.problem = problem,
          .kernel = "a kernel",
          .N = 4096,
          .K = 1024,
          .M = M,
          .weight_bytes = 1e6,
          .time = {.microseconds = microseconds, .early_microseconds = early},
          .floor_microseconds = 2};
}

OrderedJson saved(const std::vector<GemmTime>& times) {
  OrderedJson json = {{"products", OrderedJson::array()}};
  for (const GemmTime& time : times) json["products"].push_back(json_of(time));
  return json;
}

TEST(GemmReport, ReadsWhatItWrote) {
  GemmTime first = time_of("u4_f16", 16, 9, 5);
  first.is_chosen = false;
  first.rejections = "why";
  GemmTime second = time_of("f16", 16, 9, 5);
  second.time.early_microseconds.reset();
  const std::vector<GemmTime> read = gemms_of(saved({first, second}), "a file");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].problem, "u4_f16");
  EXPECT_EQ(read[0].kernel, "a kernel");
  EXPECT_EQ(read[0].rejections, "why");
  EXPECT_FALSE(read[0].is_chosen);
  EXPECT_EQ(read[0].N, 4096);
  EXPECT_EQ(read[0].M, 16);
  EXPECT_EQ(read[0].time.early_microseconds, 5);
  EXPECT_NEAR(read[0].weight_bytes, 1e6, 1);
  EXPECT_EQ(read[1].time.microseconds, 9);
  EXPECT_FALSE(read[1].time.early_microseconds.has_value());
}

TEST(GemmReport, SharesAndRatesAreOfHowModelsRunIt) {
  const OrderedJson json = json_of(time_of("f16", 16, 9, 4));
  EXPECT_EQ(json.at("roofline_share"), 0.5);
  EXPECT_DOUBLE_EQ(json.at("tera_operations_per_s").get<double>(),
                   2.0 * 16 * 4096 * 1024 / 4 * 1e-6);
}

TEST(GemmReport, RejectsOtherFiles) {
  EXPECT_THAT([] { gemms_of(OrderedJson::object(), "a.json"); },
              ThrowsMessage<InputError>(HasSubstr("a.json: expected what `halley bench gemm")));
  EXPECT_THAT([] { gemms_of(saved({time_of("f16", 1, 0, 1)}), "a.json"); },
              ThrowsMessage<InputError>(HasSubstr("expected times above 0")));
}

TEST(GemmReport, PlotsSharesOfTheRoofline) {
  const std::string svg =
      render_shares(summarize({time_of("u4_s8", 1, 4, 4), time_of("u4_s8", 64, 2, 2)}));
  EXPECT_THAT(svg, HasSubstr("W4A8"));
  EXPECT_THAT(svg, HasSubstr("<polyline"));
}

}  // namespace
}  // namespace halley::cli
