// Tokenizers out of GGUF files: they give the ids of the tokenizer that the file was made of.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/testing/golden_cases.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::filesystem::path kTestdata = std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata";

struct Kind {
  const char* name;    // of testdata/gguf/tokenizer_<name>.gguf
  const char* folder;  // of testdata/tokenizers
};

class GgufTokenizers : public testing::TestWithParam<Kind> {};

/// Added tokens that strip white space or match single words are not in the file; SentencePiece
/// alone does not look for control tokens.
bool can_differ(const std::string& text) {
  constexpr std::array<std::string_view, 6> kAdded = {"<|",    "word", "<mask>",
                                                      "<tool", "<s>",  "</s>"};
  return std::any_of(kAdded.begin(), kAdded.end(),
                     [&](std::string_view added) { return text.find(added) != std::string::npos; });
}

TEST_P(GgufTokenizers, GiveTheIdsAndTextsOfTheOriginal) {
  const auto tokenizer =
      load_tokenizer(kTestdata / "gguf" / str("tokenizer_", GetParam().name, ".gguf"));
  const std::filesystem::path folder = kTestdata / "tokenizers" / GetParam().folder;
  const auto original = load_tokenizer(folder);
  size_t num_compared = 0;
  for (const GoldenCase& golden : read_golden_cases(folder / "golden.json")) {
    if (can_differ(golden.text)) continue;
    ++num_compared;
    EXPECT_EQ(tokenizer->encode(golden.text, false), golden.ids) << quote(golden.text);
    EXPECT_EQ(tokenizer->decode(golden.ids, false), original->decode(golden.ids, false));
    EXPECT_EQ(tokenizer->encode(golden.text, true), original->encode(golden.text, true));
  }
  EXPECT_GE(num_compared, 20u);
}

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

INSTANTIATE_TEST_SUITE_P(Kinds, GgufTokenizers,
                         testing::Values(Kind{"qwen2", "qwen2_style"},
                                         Kind{"llama3", "llama3_style"},
                                         Kind{"spm", "spm_own/bpe"}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(GgufTokenizer, FindsControlTokensInTexts) {
  const auto tokenizer = load_tokenizer(kTestdata / "gguf/tokenizer_llama3.gguf");
  const auto id = tokenizer->id_of("<|begin_of_text|>");
  ASSERT_TRUE(id.has_value());
  EXPECT_TRUE(tokenizer->is_special(*id));
  EXPECT_EQ(tokenizer->encode("<|begin_of_text|>", false), std::vector<int32_t>{*id});
  EXPECT_EQ(tokenizer->encode("a", true).front(), *id);
}

TEST(GgufTokenizer, IsMissingInAFileWithout) {
  const auto path = kTestdata / "gguf/llama.gguf";
  EXPECT_FALSE(has_tokenizer_file(path));
  EXPECT_THAT([&] { load_tokenizer(path); },
              ThrowsMessage<InputError>(HasSubstr("expected a tokenizer.json")));
}

}  // namespace
}  // namespace halley
