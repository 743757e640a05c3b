#include "halley/evaluation/logits_file.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kVocabSize = 50, kWindow = 4;
/// Half a step of 1/65535 of a range of 30, and f32.
constexpr double kLogProbTolerance = 3e-4;

/// A text of two whole windows and a part of one: 3 + 3 + 1 scored tokens.
const std::vector<int32_t> kIds = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
constexpr int64_t kRows = 7;

class LogitsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-20, 10);
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<float> logits(kVocabSize);
      for (float& logit : logits) logit = uniform(random);
      logits_.push_back(logits);
    }
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void write() const {
    LogitsFile file(path_, kIds, kRows, kVocabSize, kWindow);
    for (const std::vector<float>& logits : logits_) file.append(logits, 0);
    file.finish();
  }

  /// The definition.
  static std::vector<double> log_probs(const std::vector<float>& logits) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    std::vector<double> result;
    for (const float logit : logits) result.push_back(static_cast<double>(logit) - std::log(sum));
    return result;
  }

  std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) /
      (std::string("logits_") + testing::UnitTest::GetInstance()->current_test_info()->name() +
       ".safetensors");
  std::vector<std::vector<float>> logits_;
};

TEST_F(LogitsFileTest, HoldsTheLogProbabilitiesOfEveryScoredRow) {
  write();
  LogitsReader reader(path_);
  EXPECT_EQ(reader.vocab_size(), kVocabSize);
  reader.check(kIds, kWindow);
  size_t row = 0;
  // Chunks of two rows: windows have three and the last one has one.
  for (const WindowChunk& chunk : cut_windows(10, kWindow, 2)) {
    const auto got = reader.read(chunk);
    ASSERT_EQ(std::ssize(got), chunk.num_rows * kVocabSize);
    for (int64_t i = 0; i < chunk.num_rows; ++i, ++row) {
      const std::vector<double> expected = log_probs(logits_.at(row));
      for (int64_t id = 0; id < kVocabSize; ++id) {
        ASSERT_NEAR(got[static_cast<size_t>(i * kVocabSize + id)],
                    expected[static_cast<size_t>(id)], kLogProbTolerance)
            << row << " " << id;
      }
    }
  }
  EXPECT_EQ(row, logits_.size());
}

TEST_F(LogitsFileTest, HoldsRowsOfOneValue) {
  for (std::vector<float>& logits : logits_) logits.assign(kVocabSize, 3.0f);
  write();
  LogitsReader reader(path_);
  for (const float value : reader.read({.window_begin = 4, .first_row = 4, .num_rows = 3})) {
    EXPECT_NEAR(value, -std::log(static_cast<double>(kVocabSize)), kLogProbTolerance);
  }
}

TEST_F(LogitsFileTest, RejectsLogitsThatAreNotFinite) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    LogitsFile file(path_, kIds, kRows, kVocabSize, kWindow);
    file.append(logits_[0], 0);
    logits_[1][7] = bad;
    EXPECT_THAT([&] { file.append(logits_[1], 0); },
                ThrowsMessage<InputError>(HasSubstr("row 1 of the logits: expected finite")));
  }
}

TEST_F(LogitsFileTest, IsOfOneTextAndWindow) {
  write();
  const LogitsReader reader(path_);
  // The first windows of the text are enough.
  reader.check({kIds.data(), 8}, kWindow);
  EXPECT_THAT([&] { reader.check(kIds, kWindow + 1); },
              ThrowsMessage<InputError>(HasSubstr("Pass --window 4")));
  std::vector<int32_t> other = kIds;
  other.back() = 11;
  EXPECT_THAT([&] { reader.check(other, kWindow); },
              ThrowsMessage<InputError>(HasSubstr("another text or tokenizer")));
  other = kIds;
  other.push_back(11);
  EXPECT_THAT([&] { reader.check(other, kWindow); },
              ThrowsMessage<InputError>(HasSubstr("10 tokens there, 11 here")));
}

TEST_F(LogitsFileTest, RejectsOtherFiles) {
  SafetensorsWriter writer(path_, {{"token_ids", DType::kI32, {1}}}, {{"format", "pt"}});
  const int32_t id = 1;
  writer.append(0, std::as_bytes(std::span(&id, 1)));
  writer.finish();
  EXPECT_THAT([&] { LogitsReader{path_}; },
              ThrowsMessage<InputError>(HasSubstr("expected a file that `halley eval --logits`")));
}

}  // namespace
}  // namespace halley
