#include "halley/json/json.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ParseJson, ReadsADocument) {
  const Json value = parse_json(R"({"b": [1, -2, 3.5, null, true], "a": "x"})", "test");
  EXPECT_EQ(value.dump(), R"({"a":"x","b":[1,-2,3.5,null,true]})");
  EXPECT_EQ(parse_ordered_json(R"({"b": 1, "a": {"d": 1, "c": 2}})", "test").dump(),
            R"({"b":1,"a":{"d":1,"c":2}})");
}

TEST(ParseJson, RejectsDuplicateKeys) {
  EXPECT_THAT([] { parse_json(R"({"a": 1, "a": 2})", "config.json"); },
              ThrowsMessage<InputError>(HasSubstr("config.json: duplicate key \"a\"")));
  EXPECT_NO_THROW(parse_json(R"({"a": {"a": 1}})", "test"));
}

TEST(ParseJson, RejectsDuplicateKeysInOrderedDocuments) {
  EXPECT_THROW(parse_ordered_json(R"({"a": {"x": [1]}, "a": 2})", "test"), InputError);
  EXPECT_EQ(parse_ordered_json(R"({"b": {"x": [1, {}]}, "a": [[]]})", "test").dump(),
            R"({"b":{"x":[1,{}]},"a":[[]]})");
}

TEST(ParseJson, RejectsANulByte) {
  EXPECT_THAT([] { parse_json(std::string("{}\0x", 4), "test"); },
              ThrowsMessage<InputError>(HasSubstr("test: not valid JSON at byte 3: a NUL byte")));
}

TEST(ParseJson, EscapesControlCharactersInMessages) {
  EXPECT_THAT([] { parse_json("{\"\\u001b\": 1, \"\\u001b\": 2}", "test"); },
              ThrowsMessage<InputError>(HasSubstr("duplicate key \"\\x1b\"")));
}

TEST(ParseJson, RejectsDepthBombs) {
  const std::string bomb(1'000'000, '[');
  EXPECT_THAT([&] { parse_json(bomb, "test"); },
              ThrowsMessage<InputError>(HasSubstr("nested deeper than 128 levels")));
}

TEST(ParseJson, RejectsTooManyValues) {
  EXPECT_THAT([] { parse_json("[1,2,3]", "test", {.num_values_max = 3}); },
              ThrowsMessage<InputError>(HasSubstr("at most 3 JSON values")));
}

TEST(ParseJson, NamesThePositionOfASyntaxError) {
  EXPECT_THAT([] { parse_json("{\"a\": 1,}", "test"); },
              ThrowsMessage<InputError>(HasSubstr("test: not valid JSON at byte 9")));
  EXPECT_THROW(parse_json("", "test"), InputError);
  EXPECT_THROW(parse_json("{} x", "test"), InputError);
  EXPECT_THROW(parse_json("NaN", "test"), InputError);
  EXPECT_THROW(parse_json("1e999", "test"), InputError);
  EXPECT_THROW(parse_json("\"\xff\"", "test"), InputError);
}

}  // namespace
}  // namespace halley
