#include "halley/client/http/sse_parser.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

using Events = std::vector<std::pair<std::string, std::string>>;  // type, data

Events parse(const std::vector<std::string>& pieces) {
  Events events;
  SseParser parser([&](const SseEvent& event) { events.emplace_back(event.type, event.data); });
  for (const std::string& piece : pieces) parser.feed(piece);
  return events;
}

// The examples of section 9.2.6 of the standard.
TEST(SseParser, JoinsDataLines) {
  EXPECT_THAT(parse({"data: YHOO\ndata: +2\ndata: 10\n\n"}),
              ElementsAre(Pair("message", "YHOO\n+2\n10")));
}

TEST(SseParser, DropsCommentsAndIncompleteEvents) {
  EXPECT_THAT(parse({": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n"
                     "data:  third event\n"}),
              ElementsAre(Pair("message", "first event"), Pair("message", "second event")));
}

TEST(SseParser, DispatchesEmptyData) {
  EXPECT_THAT(parse({"data\n\ndata\ndata\n\ndata:"}),
              ElementsAre(Pair("message", ""), Pair("message", "\n")));
}

TEST(SseParser, IgnoresOneSpaceAfterTheColon) {
  EXPECT_THAT(
      parse({"data:test\n\ndata: test\n\ndata:  test\n\n"}),
      ElementsAre(Pair("message", "test"), Pair("message", "test"), Pair("message", " test")));
}

TEST(SseParser, AnEventTypeIsForOneEvent) {
  EXPECT_THAT(parse({"event: add\ndata: 1\n\ndata: 2\n\nevent: lost\n\ndata: 3\n\n"}),
              ElementsAre(Pair("add", "1"), Pair("message", "2"), Pair("message", "3")));
}

TEST(SseParser, TakesAllThreeEndsOfLines) {
  EXPECT_THAT(parse({"data: a\r\n\r\ndata: b\r\rdata: c\n\n"}),
              ElementsAre(Pair("message", "a"), Pair("message", "b"), Pair("message", "c")));
}

TEST(SseParser, SkipsAByteOrderMarkAtTheBeginningAlone) {
  EXPECT_THAT(parse({"\xEF\xBB\xBF"
                     "data: a\n\n\xEF\xBB\xBF"
                     "data: b\n\n"}),
              ElementsAre(Pair("message", "a")));
}

TEST(SseParser, GivesTheSameWhereverThePiecesAreCut) {
  const std::string stream =
      "\xEF\xBB\xBF: hello\r\nevent: delta\r\ndata: {\"a\": \"\xC3\xA4\"}\r\ndata: more\r\n\r\n"
      "data: x\n\ndata: y\r\rdata: [DONE]\n\n";
  const Events whole = parse({stream});
  ASSERT_EQ(whole.size(), 4U);
  for (size_t i = 0; i <= stream.size(); ++i) {
    for (size_t j = i; j <= stream.size(); ++j) {
      ASSERT_EQ(parse({stream.substr(0, i), stream.substr(i, j - i), stream.substr(j)}), whole)
          << "cut at " << i << " and " << j;
    }
  }
}

std::string error_of(const std::string& stream, const SseLimits& limits) {
  SseParser parser([](const SseEvent&) {}, limits);
  try {
    for (const char c : stream) parser.feed(std::string(1, c));
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SseParser, LimitsLinesAndEvents) {
  const SseLimits limits{.line_bytes_max = 16, .event_bytes_max = 24};
  EXPECT_EQ(error_of("data: 1234567890\n\n", limits), "no error");
  EXPECT_THAT(error_of("data: 12345678901\n\n", limits), HasSubstr("lines of at most 16 bytes"));
  EXPECT_THAT(error_of(":2345678901234567", limits), HasSubstr("lines of at most 16 bytes"));
  EXPECT_EQ(error_of("data: 1234567890\ndata: 1234567890\n\n", limits), "no error");
  EXPECT_THAT(error_of("data: 1234567890\ndata: 1234567890\ndata: 123\n\n", limits),
              HasSubstr("events of at most 24 bytes"));
  EXPECT_THAT(error_of("data\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\n"
                       "data\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\n"
                       "data\ndata\ndata\n",
                       limits),
              HasSubstr("events of at most 24 bytes"));
}

TEST(SseParser, EmptyPiecesGiveNothing) { EXPECT_THAT(parse({"", "\n", ""}), IsEmpty()); }

}  // namespace
}  // namespace halley
