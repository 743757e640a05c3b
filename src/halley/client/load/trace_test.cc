#include "halley/client/load/trace.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"

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

std::vector<TraceEntry> every_second(int num_seconds) {
  std::vector<TraceEntry> trace;
  for (int i = 0; i < num_seconds; ++i) trace.push_back({static_cast<double>(i), i + 1, 1});
  return trace;
}

TEST(TraceWindow, StartsAtItsBeginningAndEndsBeforeItsEnd) {
  const auto window = trace_window(every_second(10), 2.5, 3.5, "x.csv");
  ASSERT_EQ(window.size(), 3U);
  EXPECT_EQ(window[0].seconds, 0.5);  // the silence before it stays
  EXPECT_EQ(window[0].input_len, 4);
  EXPECT_EQ(window[2].seconds, 2.5);
  EXPECT_EQ(window[2].input_len, 6);
}

TEST(TraceWindow, MayLastToTheEnd) {
  EXPECT_EQ(trace_window(every_second(10), 0, INFINITY, "x.csv").size(), 10U);
  EXPECT_EQ(trace_window(every_second(10), 8, INFINITY, "x.csv").size(), 2U);
  EXPECT_EQ(trace_window(every_second(10), 8, 1e6, "x.csv").size(), 2U);
}

TEST(TraceWindow, WithoutRequestsIsAnError) {
  try {
    trace_window(every_second(10), 9.25, 0.5, "x.csv");
    FAIL() << "expected an error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("x.csv: expected requests from second 9.25 to 9.75"));
    EXPECT_THAT(error.what(), HasSubstr("the last one is at second 9."));
  }
}

// Minutes of the recorded traces, counted with another program.
TEST(Trace, ReadsTheRecordedMinutes) {
  const std::string folder = HALLEY_SOURCE_DIR "/testdata/traces/";
  const auto minute = [&](const char* name, double start) {
    const std::string path = folder + name;
    return trace_window(parse_trace(read_text_file(path, size_t{1} << 20), path), start, 60, path);
  };
  const auto counts_of = [](const std::vector<TraceEntry>& trace) {
    std::vector<int> counts(60);
    for (const TraceEntry& entry : trace) ++counts.at(static_cast<size_t>(entry.seconds));
    return counts;
  };
  const auto conversation = minute("azure_llm_2023_conv.csv", 501);
  EXPECT_EQ(conversation.size(), 303U);
  const auto counts = counts_of(conversation);
  EXPECT_EQ(std::ranges::min(counts), 1);
  EXPECT_EQ(std::ranges::max(counts), 11);
  const auto code = counts_of(minute("azure_llm_2023_code.csv", 854));
  EXPECT_EQ(std::ranges::min(code), 0);
  EXPECT_EQ(std::ranges::max(code), 67);
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
