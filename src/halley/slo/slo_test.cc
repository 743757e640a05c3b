#include "halley/slo/slo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::DoubleEq;
using testing::HasSubstr;

std::string error_of(const char* text) {
  try {
    parse_slo(text, "--slo");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Slo, ReadsUnits) {
  const Slo slo = parse_slo("ttft=200ms,tpot=1500us,e2el=1.5s", "--slo");
  EXPECT_THAT(*slo.ttft, DoubleEq(0.2));
  EXPECT_THAT(*slo.tpot, DoubleEq(0.0015));
  EXPECT_THAT(*slo.e2el, DoubleEq(1.5));
}

TEST(Slo, HasNoObjectiveThatIsNotNamed) {
  EXPECT_TRUE(Slo().is_empty());
  const Slo slo = parse_slo("tpot=33.3ms", "--slo");
  EXPECT_FALSE(slo.is_empty());
  EXPECT_EQ(slo, (Slo{.tpot = 33.3 * 1e-3}));
  EXPECT_EQ(parse_slo("e2el=1s,tpot=1s", "--slo"), parse_slo("tpot=1s,e2el=1s", "--slo"));
}

TEST(Slo, RejectsWhatIsNone) {
  EXPECT_THAT(error_of(""), HasSubstr("--slo: expected ttft, tpot and e2el"));
  EXPECT_THAT(error_of("ttft"), HasSubstr("got \"ttft\""));
  EXPECT_THAT(error_of("itl=1ms"), HasSubstr("got \"itl=1ms\""));
  EXPECT_THAT(error_of("ttft=1s,ttft=2s"), HasSubstr("each at most once"));
  EXPECT_THAT(error_of("ttft=1s,"), HasSubstr("expected ttft"));
  for (const char* text : {"ttft=200", "ttft=-1s", "ttft=0s", "ttft=nans", "ttft=infs", "ttft=1m",
                           "ttft=ms", "ttft=1e999s", "ttft=86401s", "ttft=1e-400s", "ttft= 1s"}) {
    EXPECT_THAT(error_of(text), HasSubstr("--slo: expected a duration above 0 and up to a day"))
        << text;
  }
}

TEST(Slo, NamesTheFieldThatIsWrong) {
  try {
    parse_slo("ttft=1", "slo");
    FAIL() << "expected an error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("slo: expected a duration"));
  }
}

}  // namespace
}  // namespace halley
