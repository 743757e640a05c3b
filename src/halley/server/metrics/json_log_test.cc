#include "halley/server/metrics/json_log.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Lines {
  std::vector<std::string> lines;
  JsonLog log(LogLevel level) {
    return {level, [this](std::string_view line) { lines.emplace_back(line); },
            [] {
              return std::chrono::system_clock::time_point(
                  std::chrono::milliseconds(1'767'225'600'042));
            }};
  }
};

AccessEntry entry() {
  return {.client = "127.0.0.1:5",
          .method = "POST",
          .path = "/v1/completions",
          .request_id = "a-1",
          .status = 200,
          .sent_bytes = 12,
          .duration = std::chrono::microseconds(1500),
          .is_complete = true,
          .error = ""};
}

TEST(JsonLog, AnAccessIsOneLine) {
  Lines lines;
  lines.log(LogLevel::kInfo).write_access(entry());
  ASSERT_THAT(lines.lines, SizeIs(1));
  EXPECT_EQ(lines.lines[0],
            "{\"time\":\"2026-01-01T00:00:00.042Z\",\"level\":\"info\",\"event\":\"http_request\","
            "\"request_id\":\"a-1\",\"client\":\"127.0.0.1:5\",\"method\":\"POST\","
            "\"path\":\"/v1/completions\",\"status\":200,\"sent_bytes\":12,\"duration_ms\":1.5,"
            "\"is_complete\":true}\n");
}

TEST(JsonLog, PollsAreForDebuggingAndFailuresAreErrors) {
  Lines lines;
  JsonLog log = lines.log(LogLevel::kInfo);
  AccessEntry poll = entry();
  for (const char* path : {"/health", "/ready", "/metrics", "/precision"}) {
    poll.path = path;
    log.write_access(poll);
  }
  EXPECT_THAT(lines.lines, IsEmpty());
  poll.status = 503;
  log.write_access(poll);
  AccessEntry thrown = entry();
  thrown.error = "bad \"thing\"\n";
  log.write_access(thrown);
  ASSERT_THAT(lines.lines, SizeIs(2));
  EXPECT_THAT(lines.lines[0], HasSubstr("\"level\":\"error\""));
  EXPECT_THAT(lines.lines[1], HasSubstr("\"error\":\"bad \\\"thing\\\"\\n\""));
}

TEST(JsonLog, AnUntrustedPathStaysOneLineOfUtf8) {
  Lines lines;
  AccessEntry untrusted = entry();
  untrusted.path = "/\n{\"level\":\"forged\"}\x01\xFF";
  lines.log(LogLevel::kDebug).write_access(untrusted);
  ASSERT_THAT(lines.lines, SizeIs(1));
  EXPECT_EQ(lines.lines[0].find('\n'), lines.lines[0].size() - 1);
  EXPECT_EQ(Json::parse(lines.lines[0]).at("path"), "/\n{\"level\":\"forged\"}\x01\xEF\xBF\xBD");
}

TEST(JsonLog, WritesNothingBelowItsLevel) {
  Lines lines;
  JsonLog log = lines.log(LogLevel::kWarning);
  log.write(LogLevel::kInfo, "no");
  log.write(LogLevel::kWarning, "yes", {{"x", 1}});
  ASSERT_THAT(lines.lines, SizeIs(1));
  EXPECT_THAT(lines.lines[0], HasSubstr("\"event\":\"yes\",\"x\":1}"));
  lines.log(LogLevel::kOff).write(LogLevel::kError, "no");
  EXPECT_THAT(lines.lines, SizeIs(1));
}

TEST(LogLevel, IsReadByName) {
  EXPECT_EQ(parse_log_level("warning"), LogLevel::kWarning);
  EXPECT_EQ(parse_log_level("off"), LogLevel::kOff);
  try {
    parse_log_level("Info");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "--log-level: expected debug, info, warning, error or off, got \"Info\".");
  }
}

}  // namespace
}  // namespace halley
