#include "halley/cli/engine_options.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

EngineConfig parse(std::vector<std::string> args) {
  CLI::App app;
  EngineConfig config;
  add_step_precision_options(app, config);
  app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  return config;
}

TEST(StepPrecisionOptions, AreFullWithoutAnSloByDefault) {
  const EngineConfig config = parse({});
  EXPECT_EQ(config.precision, PrecisionMode::kFull);
  EXPECT_TRUE(config.slo.is_empty());
}

TEST(StepPrecisionOptions, TakeEachModeByItsName) {
  for (const PrecisionMode mode :
       {PrecisionMode::kFull, PrecisionMode::kLow, PrecisionMode::kAuto}) {
    EXPECT_EQ(parse({"--precision", name_of(mode)}).precision, mode);
  }
  for (const char* name : {"", "half", "Full", "f16"}) {
    EXPECT_THROW(parse({"--precision", name}), CLI::ValidationError) << name;
  }
}

TEST(StepPrecisionOptions, TakeTheLimitsThatTheEngineHolds) {
  EXPECT_EQ(parse({"--slo", "tpot=40ms,ttft=1s"}).slo, (Slo{.ttft = 1, .tpot = 40e-3}));
  EXPECT_EQ(parse({"--slo", "ttft=1s"}).slo, Slo{.ttft = 1});
  EXPECT_THAT(
      [] {
        parse({"--slo", "itl=1s"});
      },
      ThrowsMessage<InputError>(HasSubstr("--slo: expected ttft")));
}

TEST(StepPrecisionOptions, SayWhichLimitsThereAreInsteadOfE2el) {
  for (const char* text : {"e2el=5s", "ttft=1s,e2el=5s"}) {
    EXPECT_THAT(
        [&] {
          parse({"--slo", text});
        },
        ThrowsMessage<InputError>(AllOf(HasSubstr("--slo: expected ttft and tpot, like"),
                                        HasSubstr(text), HasSubstr("--request-timeout"))));
  }
}

}  // namespace
}  // namespace halley::cli
