#include "halley/client/load/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;

// The first lines of AzureLLMInferenceTrace_code.csv.
constexpr const char* kExcerpt =
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319600,3180,8\r\n"
    "2023-11-16 18:17:04.0781490,110,27";

TEST(Trace, ReadsTheAzureTraces) {
  const auto entries = parse_trace(kExcerpt, "x.csv");
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].seconds, 0);
  EXPECT_EQ(entries[0].input_len, 4808);
  EXPECT_EQ(entries[0].output_len, 10);
  EXPECT_DOUBLE_EQ(entries[1].seconds, 0.052);
  EXPECT_DOUBLE_EQ(entries[2].seconds, 0.098189);
  EXPECT_EQ(entries[2].output_len, 27);
}

TEST(Trace, ReadsOtherOrdersColumnsAndZones) {
  const auto entries = parse_trace(
      "Id,GeneratedTokens,TIMESTAMP,ContextTokens\n"
      "a,1,2024-02-28T23:59:59.5+00:00,2\n\nb,3,2024-03-01 00:00:01Z,4\n",
      "x.csv");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_DOUBLE_EQ(entries[1].seconds, 86401.5);  // over the 29th of February
  EXPECT_EQ(entries[1].input_len, 4);
  EXPECT_EQ(entries[1].output_len, 3);
}

std::string error_of(const std::string& lines) {
  try {
    parse_trace(lines, "x.csv");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Trace, NamesTheLineOfWhatIsWrong) {
  const std::string head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const std::string good = "2023-11-16 18:17:03,1,1\n";
  EXPECT_THAT(error_of(""), HasSubstr("x.csv: expected at least one request"));
  EXPECT_THAT(error_of(head), HasSubstr("x.csv: expected at least one request"));
  EXPECT_THAT(error_of("time,in,out\n"), HasSubstr("x.csv:1: expected the columns TIMESTAMP"));
  EXPECT_THAT(
      error_of(head + good + "2023-11-16 18:17:04,1\n"),
      HasSubstr("x.csv:3: GeneratedTokens: expected a number from 1 to 10000000, got \"\""));
  EXPECT_THAT(error_of(head + "2023-11-16 18:17:04,-1,1\n"), HasSubstr("x.csv:2: ContextTokens"));
  EXPECT_THAT(error_of(head + "2023-11-16 18:17:04,1e3,1\n"), HasSubstr("x.csv:2: ContextTokens"));
  EXPECT_THAT(error_of(head + "2023-11-16 18:17:04,99999999,1\n"), HasSubstr("ContextTokens"));
  EXPECT_THAT(error_of(head + good + "2023-11-16 18:17:02.9,1,1\n"), HasSubstr("ascending order"));
  for (const char* time :
       {"2023-11-16", "2023-02-30 18:17:03", "2023-11-16 25:17:03", "2023-11-16 18:61:03",
        "2023-11-16 18:17:03.", "1e9", "2023-11-16 18:17:03.0000000000", "2023-11-16 18:17:03.x",
        "0000-11-16 18:17:03", "2023/11/16 18:17:03"}) {
    EXPECT_THAT(error_of(head + time + ",1,1\n"), HasSubstr("x.csv:2: TIMESTAMP: expected a time"))
        << time;
  }
  EXPECT_THAT(error_of(std::string(70, ',') + "\n"), HasSubstr("at most 64 columns"));
}

}  // namespace
}  // namespace halley
