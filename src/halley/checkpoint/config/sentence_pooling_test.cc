#include "halley/checkpoint/config/sentence_pooling.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
namespace fs = std::filesystem;

// As sentence-transformers writes it for Qwen3-Embedding.
constexpr const char* kModules = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
])";
constexpr const char* kLast = R"({"word_embedding_dimension": 1024, "pooling_mode_cls_token": false,
  "pooling_mode_mean_tokens": false, "pooling_mode_max_tokens": false,
  "pooling_mode_mean_sqrt_len_tokens": false, "pooling_mode_weightedmean_tokens": false,
  "pooling_mode_lasttoken": true, "include_prompt": true})";

class SentencePoolingFiles : public testing::Test {
 protected:
  SentencePoolingFiles()
      : dir_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "1_Pooling");
  }
  ~SentencePoolingFiles() override { fs::remove_all(dir_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
  }
  std::optional<SentencePooling> load() const { return load_sentence_pooling(dir_); }

 private:
  fs::path dir_;
};

TEST_F(SentencePoolingFiles, AreReadAsSentenceTransformersWritesThem) {
  EXPECT_FALSE(load());
  write("modules.json", kModules);
  write("1_Pooling/config.json", kLast);
  ASSERT_TRUE(load());
  EXPECT_EQ(load()->mode, SentencePooling::Mode::kLastToken);
  EXPECT_TRUE(load()->normalizes);
  write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  EXPECT_EQ(load()->mode, SentencePooling::Mode::kMeanTokens);
  write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"}])");
  EXPECT_FALSE(load());
}

TEST_F(SentencePoolingFiles, OfOtherKindsAreRejectedByName) {
  write("modules.json", kModules);
  const auto loading = [this] { load(); };
  write("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  EXPECT_THAT(loading, ThrowsMessage<UnsupportedError>(HasSubstr("got pooling_mode_cls_token")));
  write("1_Pooling/config.json",
        R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})");
  EXPECT_THAT(loading, ThrowsMessage<UnsupportedError>(HasSubstr("got 2 kinds of pooling")));
  write("1_Pooling/config.json", "{}");
  EXPECT_THAT(loading, ThrowsMessage<UnsupportedError>(HasSubstr("got 0 kinds of pooling")));
  write("modules.json", R"([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])");
  EXPECT_THAT(loading, ThrowsMessage<UnsupportedError>(HasSubstr("models.Dense")));
}

TEST_F(SentencePoolingFiles, MayNotLeadOutOfTheFolder) {
  const auto loading = [this] { load(); };
  for (const char* path : {"../other", "/etc", "", "a/b"}) {
    write("modules.json", std::string(R"([{"path": ")") + path +
                              R"(", "type": "sentence_transformers.models.Pooling"}])");
    EXPECT_THAT(loading, ThrowsMessage<InputError>(HasSubstr("expected a folder's name"))) << path;
  }
  write("modules.json", R"({"a": 1})");
  EXPECT_THAT(loading, ThrowsMessage<InputError>(HasSubstr("expected a list")));
  write("modules.json", R"([{"path": "x"}])");
  EXPECT_THAT(loading, ThrowsMessage<InputError>(HasSubstr("with a text in \"type\"")));
}

}  // namespace
}  // namespace halley
