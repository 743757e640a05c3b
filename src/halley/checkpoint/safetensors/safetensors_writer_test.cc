#include "halley/checkpoint/safetensors/safetensors_writer.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"

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

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TemporaryPath temporary("safetensors_writer_test");
  const std::filesystem::path& path = temporary.path();
  const std::vector<float> a = {1, 2, 3, 4};
  const std::vector<uint16_t> b = {5, 6};
  SafetensorsWriter writer(path, {{"b", DType::kF32, {2, 2}}, {"a", DType::kU16, {2}}},
                           {{"format", "test"}});
  writer.append(0, std::as_bytes(std::span(a)).first(8));
  writer.append(1, std::as_bytes(std::span(b)));
  writer.append(0, std::as_bytes(std::span(a)).subspan(8));
  EXPECT_FALSE(std::filesystem::exists(path)) << "nothing that looks finished before finish()";
  writer.finish();

  const MappedFile file = MappedFile::open(path);
  const SafetensorsHeader header = parse_safetensors(file.bytes(), "test");
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.data_start % 8, 0u);
  const auto& entry_a = header.entries[0];
  const auto& entry_b = header.entries[1];
  EXPECT_EQ(entry_a.info.name, "a");
  EXPECT_EQ(entry_a.info.dtype, DType::kU16);
  EXPECT_EQ(entry_b.info.shape, (Shape{2, 2}));
  const auto data = file.bytes().subspan(header.data_start);
  EXPECT_TRUE(std::ranges::equal(data.subspan(entry_b.offset, 16), std::as_bytes(std::span(a))));
  EXPECT_TRUE(std::ranges::equal(data.subspan(entry_a.offset, 4), std::as_bytes(std::span(b))));
}

TEST(SafetensorsWriter, LeavesNothingBehindWithoutFinish) {
  const TemporaryPath temporary("safetensors_writer_unfinished");
  const std::filesystem::path& path = temporary.path();
  { const SafetensorsWriter writer(path, {{"a", DType::kF32, {1}}}, {}); }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
}

TEST(SafetensorsWriter, NamesAFileThatCannotBeCreated) {
  EXPECT_THAT([] { SafetensorsWriter("/nonexistent/x.safetensors", {}, {}); },
              ThrowsMessage<InputError>(HasSubstr("/nonexistent/x.safetensors.partial: cannot")));
}

}  // namespace
}  // namespace halley
