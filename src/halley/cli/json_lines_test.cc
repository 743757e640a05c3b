#include "halley/cli/json_lines.h"

#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Answers each object with {"n": its number of members}.
std::string answers_to(const std::string& lines) {
  std::istringstream in(lines);
  std::ostringstream out;
  for_each_json_line(in, out, [](const OrderedJson& request) -> OrderedJson {
    if (request.contains("bad")) throw InputError("'bad': expected nothing.");
    return {{"n", request.size()}};
  });
  return out.str();
}

TEST(JsonLines, AreAnsweredOneByOneInOrder) {
  EXPECT_EQ(answers_to("{\"a\": 1, \"b\": 2}\n{}\n"), "{\"n\":2}\n{\"n\":0}\n");
}

TEST(JsonLines, LeaveBlankLinesOut) {
  EXPECT_EQ(answers_to("\n  \t\r\n{}\n\n"), "{\"n\":0}\n");
  EXPECT_EQ(answers_to(""), "");
}

TEST(JsonLines, NeedNoLineEndAfterTheLast) { EXPECT_EQ(answers_to("{}"), "{\"n\":0}\n"); }

TEST(JsonLines, ErrorsNameTheLine) {
  EXPECT_THAT([] { answers_to("{}\n\n[1]\n"); },
              ThrowsMessage<InputError>(HasSubstr("line 3: expected a JSON object, got array")));
  EXPECT_THAT([] { answers_to("{}\n{"); }, ThrowsMessage<InputError>(HasSubstr("line 2")));
  EXPECT_THAT([] { answers_to("{\"bad\": 1}"); },
              ThrowsMessage<InputError>(HasSubstr("line 1: 'bad': expected nothing.")));
}

TEST(JsonLines, StopAtALineThatIsTooLong) {
  EXPECT_THAT([] { answers_to("{}\n" + std::string(kJsonLineBytesMax + 1, ' ')); },
              ThrowsMessage<InputError>(HasSubstr("line 2: expected at most")));
}

TEST(JsonLines, ShowInvalidTextAsReplacements) {
  std::istringstream in("{}");
  std::ostringstream out;
  for_each_json_line(in, out, [](const OrderedJson&) -> OrderedJson {
    return {{"text", std::string("a\xFF")}};
  });
  EXPECT_EQ(out.str(), "{\"text\":\"a\xEF\xBF\xBD\"}\n");
}

}  // namespace
}  // namespace halley::cli
