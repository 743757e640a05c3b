#include "halley/cli/pooling_options.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
namespace fs = std::filesystem;
using Kind = Pooling::Kind;

class PoolingOptionsOf : public testing::Test {
 protected:
  PoolingOptionsOf()
      : tokenizer_(load_tokenizer(fs::path(HALLEY_SOURCE_DIR) / "testdata/tokenizers/gpt2")),
        dir_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "1_Pooling");
  }
  ~PoolingOptionsOf() override { fs::remove_all(dir_); }

  PoolingConfig make(const std::string& words) const {
    CLI::App app;
    PoolingOptions options;
    add_pooling_options(app, options);
    app.parse(words);
    return make_pooling_config(options, dir_, *tokenizer_);
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
    return (dir_ / name).string();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  fs::path dir_;
};

TEST_F(PoolingOptionsOf, AModelAreThoseOfItsFiles) {
  EXPECT_EQ(make("").kind, Kind::kLast);
  EXPECT_TRUE(make("").normalizes);
  EXPECT_FALSE(make("").yes_no);
  EXPECT_EQ(make("--pooling mean").kind, Kind::kMean);
  write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
      {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
  write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  EXPECT_EQ(make("").kind, Kind::kMean);
  EXPECT_FALSE(make("").normalizes) << "it has no module Normalize";
  EXPECT_EQ(make("--pooling last").kind, Kind::kLast);
  write("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  EXPECT_THROW(make(""), UnsupportedError);
  EXPECT_EQ(make("--pooling last").kind, Kind::kLast);
}

TEST_F(PoolingOptionsOf, ScoringTakeTheTokensOfTheVocabulary) {
  const PoolingConfig config = make("--scoring yes-no");
  ASSERT_TRUE(config.yes_no);
  EXPECT_EQ(tokenizer_->token_of(config.yes_no->yes_id), "yes");
  EXPECT_EQ(tokenizer_->token_of(config.yes_no->no_id), "no");
  EXPECT_THAT(config.yes_no->prompt.render("", "q", "d"), HasSubstr("<Query>: q"));
  const std::string path = write("prompt.txt", "{query} {document}?");
  EXPECT_EQ(make("--scoring yes-no --score-template " + path).yes_no->prompt.render("", "q", "d"),
            "q d?");
  EXPECT_THAT([&] { make("--score-template " + path); },
              ThrowsMessage<InputError>(HasSubstr("expected --scoring yes-no with it")));
  const std::string bad = write("bad.txt", "{query}");
  EXPECT_THAT([&] { make("--scoring yes-no --score-template " + bad); },
              ThrowsMessage<InputError>(HasSubstr("bad.txt: expected {document} once")));
}

TEST(PoolingOptions, AreRejectedForAModelWithoutHiddenStates) {
  EXPECT_NO_THROW(check_pooling_options({}, 0));
  EXPECT_NO_THROW(check_pooling_options({.pooling = "mean"}, 64));
  EXPECT_THAT([] { check_pooling_options({.pooling = "mean"}, 0); },
              ThrowsMessage<UnsupportedError>(HasSubstr("--pooling mean: expected a model")));
}

}  // namespace
}  // namespace halley::cli
