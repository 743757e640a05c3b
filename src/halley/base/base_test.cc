#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "halley/base/byte_budget.h"
#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A path of this process alone; what lies there is removed at both ends.
class TemporaryPath {
 public:
  explicit TemporaryPath(const std::string& name)
      : path_(std::filesystem::path(testing::TempDir()) / str("halley_", name, "_", ::getpid())) {
    std::filesystem::remove(path_);
  }
  ~TemporaryPath() { std::filesystem::remove(path_); }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Str, JoinsValuesAndSequences) {
  EXPECT_EQ(str("a", 1, ": ", std::vector<int64_t>{2, 3}), "a1: [2, 3]");
}

TEST(Str, QuotedEscapesControlCharactersAndInvalidUtf8) {
  EXPECT_EQ(quote("a\"b\n\x01\xff\xc3\xa9"), "\"a\\\"b\\n\\x01\\xff\xc3\xa9\"");
  EXPECT_EQ(quote("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\"") << "a surrogate is not a character";
}

TEST(Str, QuotedCutsLongText) { EXPECT_EQ(quote("abcdef", 3), "\"abc\"..."); }

TEST(Str, FormatBytesUsesPowersOfAThousand) {
  EXPECT_EQ(format_bytes(812), "812 B");
  EXPECT_EQ(format_bytes(42225088), "42.2 MB");
}

TEST(CheckedMath, RejectsOverflow) {
  EXPECT_EQ(checked_mul<int64_t>(3, 4), 12);
  EXPECT_FALSE(checked_mul<int64_t>(int64_t{1} << 62, 4));
  EXPECT_FALSE(checked_add<size_t>(SIZE_MAX, 1));
  EXPECT_EQ(ceil_div(7, 2), 4);
  EXPECT_EQ(round_up(8, 4), 8);
}

TEST(CheckDeathTest, PrintsExpressionAndValues) {
  const int a = 1;
  const int b = 2;
  EXPECT_DEATH(HALLEY_CHECK(a == b, a, b), "a == b is false; values: 1, 2");
}

TEST(Env, NamesTheProcessor) { EXPECT_FALSE(cpu_name().empty()); }

TEST(Env, CountsUsableCores) { EXPECT_GE(num_usable_cores(), 1); }

TEST(MappedFile, MapsTheBytes) {
  const TemporaryPath temporary("mapped_file_test");
  const std::filesystem::path& path = temporary.path();
  std::ofstream(path) << "hello";
  const MappedFile file = MappedFile::open(path);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()),
            "hello");
}

TEST(MappedFile, EmptyFileGivesEmptySpan) {
  const TemporaryPath temporary("mapped_file_empty");
  const std::filesystem::path& path = temporary.path();
  std::ofstream(path).flush();
  EXPECT_TRUE(MappedFile::open(path).bytes().empty());
}

TEST(ByteBudget, GivesNoMoreThanItHasAndTakesItBack) {
  const auto budget = std::make_shared<ByteBudget>(100);
  {
    ByteReservation first(budget);
    EXPECT_TRUE(first.try_grow(60));
    ByteReservation second(budget);
    EXPECT_FALSE(second.try_grow(41));
    EXPECT_FALSE(second.try_grow(std::numeric_limits<size_t>::max()));
    EXPECT_TRUE(second.try_grow(40));
    const ByteReservation moved(std::move(second));
    EXPECT_EQ(budget->stats().num_taken_bytes, 100u);
  }
  EXPECT_EQ(budget->stats().num_taken_bytes, 0u);
  EXPECT_EQ(budget->stats().num_bytes_max, 100u);
  EXPECT_EQ(budget->stats().num_rejected, 2u);
}

TEST(MappedFile, NamesTheMissingFile) {
  EXPECT_THAT([] { MappedFile::open("/nonexistent/x"); },
              ThrowsMessage<InputError>(HasSubstr("/nonexistent/x: cannot open")));
}

TEST(ReadTextFile, RejectsAFifoAtOnce) {
  const TemporaryPath temporary("read_text_file_fifo");
  const std::filesystem::path& path = temporary.path();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT([&] { read_text_file(path, 10); },
              ThrowsMessage<InputError>(HasSubstr("expected a regular file, got something else")));
}

TEST(ReadTextFile, RejectsDirectoriesAndTooLargeFiles) {
  EXPECT_THAT([] { read_text_file(testing::TempDir(), 10); },
              ThrowsMessage<InputError>(HasSubstr("expected a regular file, got a directory")));
  const TemporaryPath temporary("read_text_file_test");
  const std::filesystem::path& path = temporary.path();
  std::ofstream(path) << "hello";
  EXPECT_EQ(read_text_file(path, 5), "hello");
  EXPECT_THAT([&] { read_text_file(path, 4); },
              ThrowsMessage<InputError>(HasSubstr("expected at most 4 bytes, got 5")));
}

TEST(Env, AVariableOfTheUserStays) {
  const char* name = "HALLEY_TEST_OF_ENV";
  unsetenv(name);
  set_env_if_absent(name, "ours");
  EXPECT_EQ(env_string(name), "ours");
  setenv(name, "", 1);
  set_env_if_absent(name, "ours");
  EXPECT_TRUE(is_env_set(name));
  EXPECT_EQ(env_string(name), std::nullopt);
  unsetenv(name);
}

}  // namespace
}  // namespace halley
