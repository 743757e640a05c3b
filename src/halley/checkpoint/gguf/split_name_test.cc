#include "halley/checkpoint/gguf/split_name.h"

#include <gtest/gtest.h>

namespace halley {
namespace {

TEST(GgufSplitName, HasPrefixNumberAndCount) {
  const GgufSplitName expected = {.prefix = "Q8_0/model-Q8_0", .number = 2, .count = 12};
  EXPECT_EQ(parse_gguf_split_name("Q8_0/model-Q8_0-00002-of-00012.gguf"), expected);
  EXPECT_EQ(gguf_split_name(expected), "Q8_0/model-Q8_0-00002-of-00012.gguf");
}

TEST(GgufSplitName, OtherNamesHaveNone) {
  for (const char* name :
       {"", "model.gguf", "-00001-of-00002.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf",
        "m-0001-of-00002.gguf", "m-00001-of-00002.safetensors", "m_00001-of-00002.gguf",
        "m-00001_of_00002.gguf", "m-0000a-of-00002.gguf", "m--0001-of-00002.gguf",
        "m-+0001-of-00002.gguf"}) {
    EXPECT_EQ(parse_gguf_split_name(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace halley
