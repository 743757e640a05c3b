#include "halley/hub/repo_name.h"

#include <string>

#include <gtest/gtest.h>

namespace halley::hub {
namespace {

TEST(ModelName, IsAnOrganizationAndAName) {
  EXPECT_EQ(parse_model_name("meta-llama/Llama-3.1_8B")->repo, "meta-llama/Llama-3.1_8B");
  EXPECT_EQ(parse_model_name("meta-llama/Llama-3.1_8B")->file, "");
  const auto with_file = parse_model_name("org/name/Q8_0/name-00001-of-00002.gguf");
  EXPECT_EQ(with_file->repo, "org/name");
  EXPECT_EQ(with_file->file, "Q8_0/name-00001-of-00002.gguf");
}

TEST(ModelName, OtherTextsAreNone) {
  for (const std::string& text : {std::string(),
                                  std::string("gpt2"),
                                  std::string("/org/name"),
                                  std::string("./name"),
                                  std::string("../name"),
                                  std::string("org/"),
                                  std::string("org/.."),
                                  std::string("org//name"),
                                  std::string("org/name/"),
                                  std::string("org/name/config.json"),
                                  std::string("org/name/../x.gguf"),
                                  std::string("org/a--b"),
                                  std::string("org/a..b"),
                                  std::string("org/na me"),
                                  std::string("-org/name"),
                                  std::string("org/name."),
                                  std::string("org/na\nme"),
                                  std::string("~/name"),
                                  std::string("org/n\\ame"),
                                  std::string(97, 'a') + "/name"}) {
    EXPECT_FALSE(parse_model_name(text)) << text;
  }
}

TEST(Revision, IsAPathOfPlainParts) {
  for (const char* text : {"main", "v1.0", "refs/pr/1", "0123456789abcdef"}) {
    EXPECT_TRUE(is_revision(text)) << text;
  }
  for (const char* text : {"", "/", "a/", "/a", "a//b", "..", "a/../b", ".", "a b", "a?b", "a#b",
                           "-a", "a/-b", "a%2fb", "a\n"}) {
    EXPECT_FALSE(is_revision(text)) << text;
  }
}

TEST(PathInside, IsRelativeAndPlain) {
  for (const char* text : {"config.json", "a/b/c.safetensors", "..a", "a..", ".gitattributes",
                           "with space.json", "\xc3\xa4.json"}) {
    EXPECT_TRUE(is_path_inside(text)) << text;
  }
  for (const std::string& text :
       {std::string(), std::string(".."), std::string("."), std::string("../x"), std::string("/x"),
        std::string("a/../x"), std::string("a/./x"), std::string("a//x"), std::string("a/"),
        std::string("a\\b"), std::string("a\nb"), std::string("a\0b", 3), std::string(256, 'a'),
        std::string("C:\\x")}) {
    EXPECT_FALSE(is_path_inside(text)) << text;
  }
}

TEST(PercentEncode, LeavesNothingThatEndsAPath) {
  EXPECT_EQ(percent_encode("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(percent_encode("a b/\xc3\xa4?#%.json", true), "a%20b/%C3%A4%3F%23%25.json");
}

}  // namespace
}  // namespace halley::hub
