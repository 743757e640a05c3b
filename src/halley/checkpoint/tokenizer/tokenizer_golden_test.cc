#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/testing/golden_cases.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/json/json.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

std::string decode_one_by_one(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                              bool skip_special_tokens) {
  IncrementalDetokenizer stream(tokenizer, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

void expect_decodes_to(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                       bool skip_special_tokens, const std::string& expected) {
  EXPECT_EQ(tokenizer.decode(ids, skip_special_tokens), expected) << str(ids);
  EXPECT_EQ(decode_one_by_one(tokenizer, ids, skip_special_tokens), expected) << str(ids);
}

void expect_equals_goldens(const Tokenizer& tokenizer, const std::vector<GoldenCase>& cases) {
  ASSERT_FALSE(cases.empty());
  for (const GoldenCase& golden : cases) {
    SCOPED_TRACE(quote(golden.text, 200));
    EXPECT_EQ(tokenizer.encode(golden.text, false), golden.ids);
    const bool has_special = !golden.ids_with_special.empty();
    if (has_special) {
      EXPECT_EQ(tokenizer.encode(golden.text, true), golden.ids_with_special);
      const size_t num_ids = golden.ids_with_special.size();
      EXPECT_EQ(tokenizer.encode_within(golden.text, true, {.num_ids_max = num_ids}),
                golden.ids_with_special);
      if (num_ids > 0) {
        EXPECT_EQ(tokenizer.encode_within(golden.text, true, {.num_ids_max = num_ids - 1}),
                  std::nullopt);
      }
    }
    if (golden.decoded) expect_decodes_to(tokenizer, golden.ids, false, *golden.decoded);
    if (golden.decoded_skip_special) {
      expect_decodes_to(tokenizer, golden.ids_with_special, true, *golden.decoded_skip_special);
    }
  }
}

const fs::path kSourceDir = HALLEY_SOURCE_DIR;

class CommittedGoldens : public testing::TestWithParam<const char*> {};

TEST_P(CommittedGoldens, AreEqualInIdsAndText) {
  const fs::path dir = kSourceDir / "testdata/tokenizers" / GetParam();
  expect_equals_goldens(*load_tokenizer(dir), read_golden_cases(dir / "golden.json"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CommittedGoldens,
                         testing::Values("llama3_style", "qwen2_style", "gpt2"),
                         [](const auto& param) { return std::string(param.param); });

TEST(DemoModelGoldens, AreEqualInIdsAndText) {
  const fs::path dir = kSourceDir / "models/demo-21m";
  expect_equals_goldens(*load_tokenizer(dir), read_golden_cases(dir / "tokenizer_golden.json"));
}

class ExtraGoldens : public testing::TestWithParam<const char*> {};

TEST_P(ExtraGoldens, AreEqualInIdsAndText) {
  const auto extra = extra_goldens_dir();
  if (!extra) {
    GTEST_SKIP() << "The goldens of " << GetParam() << " may not be in the repository (licence), "
                 << "and HALLEY_EXTRA_GOLDENS names no directory that has them.";
  }
  const fs::path dir = *extra / "tokenizers" / GetParam();
  expect_equals_goldens(*load_tokenizer(dir), read_golden_cases(dir / "golden.json"));
}

TEST(SyntheticGoldens, CoverEveryComponentAndAreEqualInIdsAndText) {
  const fs::path path = kSourceDir / "testdata/tokenizers/synthetic.json";
  const Json file = parse_json(read_text_file(path, 16u << 20), path.string());
  ASSERT_FALSE(file.at("cases").empty());
  for (const Json& value : file.at("cases")) {
    Json tokenizer_json = value.at("file");
    SCOPED_TRACE(tokenizer_json.dump());
    tokenizer_json["model"] = file.at("models").at(tokenizer_json.at("model").get<size_t>());
    std::vector<GoldenCase> cases = golden_cases(value.at("golden"));
    const auto tokenizer = parse_tokenizer_json(tokenizer_json.dump(), "synthetic");
    expect_equals_goldens(*tokenizer, cases);
    for (const GoldenCase& golden : cases) {
      // Ids that the file leaves out equal those without special tokens.
      if (!golden.ids_with_special.empty()) continue;
      EXPECT_EQ(tokenizer->encode(golden.text, true), golden.ids) << quote(golden.text);
    }
  }
}

class OwnSentencePieceGoldens : public testing::TestWithParam<const char*> {};

TEST_P(OwnSentencePieceGoldens, AreEqualInIdsAndText) {
  const fs::path dir = kSourceDir / "testdata/tokenizers/spm_own" / GetParam();
  expect_equals_goldens(*load_tokenizer(dir), read_golden_cases(dir / "golden.json"));
}

TEST_P(OwnSentencePieceGoldens, DecodeRandomIdsToTheSameText) {
  const fs::path dir = kSourceDir / "testdata/tokenizers/spm_own" / GetParam();
  const Json list =
      parse_json(read_text_file(dir / "golden.json", 16u << 20), (dir / "golden.json").string());
  const Json& golden = list.back();
  expect_decodes_to(*load_tokenizer(dir), golden.at("random_ids").get<std::vector<int32_t>>(),
                    false, golden.at("text").get<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Kinds, OwnSentencePieceGoldens, testing::Values("bpe", "unigram"),
                         [](const auto& param) { return std::string(param.param); });

INSTANTIATE_TEST_SUITE_P(Kinds, ExtraGoldens, testing::Values("real_llama2", "spm_llama2"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace halley
