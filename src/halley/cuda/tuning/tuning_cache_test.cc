#include "halley/cuda/tuning/tuning_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cuda {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kDevice = "NVIDIA H100 80GB HBM3";

TuningTable table_with(int64_t rows, int64_t tokens) {
  return {kDevice,
          132,
          {{.gemm = {.kernel = "w4ax", .N = 256, .K = 128},
            .rows = rows,
            .settings = {{"tokens", tokens}},
            .microseconds = 3}}};
}

class TuningCache : public testing::Test {
 protected:
  TuningCache() : folder_(fs::path(testing::TempDir()) / "tuning_cache_test") {
    fs::remove_all(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~TuningCache() override {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(folder_);
  }
  fs::path path() const { return tuning_cache_path(kDevice, 132); }

  fs::path folder_;
};

TEST_F(TuningCache, HasAFileForEachKindOfGpu) {
  EXPECT_EQ(path(), folder_ / "halley/tuned/nvidia_h100_80gb_hbm3_132.json");
  EXPECT_NE(tuning_cache_path(kDevice, 114), path());
  EXPECT_NE(tuning_cache_path("NVIDIA H200", 132), path());
  // A name is no path.
  EXPECT_EQ(tuning_cache_path("../a/b", 1).parent_path(), folder_ / "halley/tuned");
}

TEST_F(TuningCache, LiesInHomeWithoutAFolderOfItsOwn) {
  unsetenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");  // NOLINT: one thread
  const std::string before = home == nullptr ? "" : home;
  setenv("HOME", "/users/someone", 1);
  EXPECT_EQ(path(), "/users/someone/.cache/halley/tuned/nvidia_h100_80gb_hbm3_132.json");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(path(), "/users/someone/.cache/halley/tuned/nvidia_h100_80gb_hbm3_132.json");
  unsetenv("HOME");
  EXPECT_EQ(path(), "");
  if (home != nullptr) setenv("HOME", before.c_str(), 1);
}

TEST_F(TuningCache, GrowsByEachRun) {
  add_to_tuning_cache(path(), table_with(16, 1));
  add_to_tuning_cache(path(), table_with(64, 2));
  add_to_tuning_cache(path(), table_with(16, 3));
  const TuningTable read = read_tuning_table(path(), kDevice, 132);
  ASSERT_EQ(read.plans().size(), 2U);
  EXPECT_EQ(setting_of(read.plans()[0].settings, "tokens", 0), 3);
  EXPECT_EQ(setting_of(read.plans()[1].settings, "tokens", 0), 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(path().parent_path()), {}), 1);
}

TEST_F(TuningCache, ReplacesAFileThatIsNone) {
  fs::create_directories(path().parent_path());
  std::ofstream(path()) << "{";
  EXPECT_THAT([&] { read_tuning_table(path(), kDevice, 132); },
              ThrowsMessage<InputError>(HasSubstr("not valid JSON")));
  add_to_tuning_cache(path(), table_with(16, 1));
  EXPECT_EQ(read_tuning_table(path(), kDevice, 132).plans().size(), 1U);
}

TEST_F(TuningCache, RejectsThatOfAnotherGpu) {
  add_to_tuning_cache(path(), table_with(16, 1));
  EXPECT_THAT([&] { read_tuning_table(path(), "NVIDIA H200", 132); },
              ThrowsMessage<InputError>(HasSubstr("expected plans of \"NVIDIA H200\"")));
  EXPECT_THAT([&] { read_tuning_table(path(), kDevice, 114); },
              ThrowsMessage<InputError>(HasSubstr("with 114 SMs, got those of")));
  EXPECT_THAT([&] { read_tuning_table(folder_ / "none.json", kDevice, 114); },
              ThrowsMessage<InputError>(HasSubstr("none.json")));
}

TEST_F(TuningCache, SaysWhereItCannotBeWritten) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "halley") << "a file";
  EXPECT_THAT([&] { add_to_tuning_cache(path(), table_with(16, 1)); },
              ThrowsMessage<InputError>(HasSubstr("cannot write measured plans")));
}

}  // namespace
}  // namespace halley::cuda
