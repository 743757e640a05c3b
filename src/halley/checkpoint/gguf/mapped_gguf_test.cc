// Parts that the Python package gguf wrote, against the file that they were made of.
#include "halley/checkpoint/gguf/mapped_gguf.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/testing/metadata_in_memory.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const fs::path kTestdata = fs::path(HALLEY_SOURCE_DIR) / "testdata/gguf";

std::string part_name(int number) { return str("split-0000", number, "-of-00003.gguf"); }

void expect_equal(const GgufHeader& split, const GgufHeader& whole) {
  EXPECT_EQ(split.metadata.strings("tokenizer.ggml.tokens"),
            whole.metadata.strings("tokenizer.ggml.tokens"));
  EXPECT_EQ(split.metadata.integer("llama.block_count", 0, 100),
            whole.metadata.integer("llama.block_count", 0, 100));
  ASSERT_EQ(split.tensors.size(), whole.tensors.size());
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    const GgufTensor &a = split.tensors[i], &b = whole.tensors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.type, b.type) << a.name;
    EXPECT_EQ(a.shape, b.shape) << a.name;
    ASSERT_EQ(a.num_bytes, b.num_bytes) << a.name;
    EXPECT_EQ(0, std::memcmp(a.data, b.data, a.num_bytes)) << a.name;
  }
}

TEST(MappedGguf, JoinsThePartsFromAnyOfThem) {
  const MappedGguf whole(kTestdata / "quantized.gguf");
  ASSERT_GT(whole.header().tensors.size(), 20u);
  for (int number = 1; number <= 3; ++number) {
    const MappedGguf split(kTestdata / part_name(number));
    expect_equal(split.header(), whole.header());
  }
}

/// A folder with links to the parts.
class SplitFolder : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    for (int number = 1; number <= 3; ++number) {
      fs::create_symlink(kTestdata / part_name(number), folder_ / part_name(number));
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::temp_directory_path() / str("halley_split_", ::getpid());
};

TEST_F(SplitFolder, NamesThePartThatIsMissing) {
  fs::remove(folder_ / part_name(2));
  EXPECT_THAT([&] { MappedGguf{folder_ / part_name(1)}; },
              ThrowsMessage<CheckpointError>(
                  AllOf(HasSubstr("split-00001-of-00003.gguf: expected all of its 3 parts"),
                        HasSubstr("got no \"split-00002-of-00003.gguf\". Download it too."))));
}

TEST_F(SplitFolder, NeedsNamesThatLeadToTheParts) {
  fs::rename(folder_ / part_name(1), folder_ / "model.gguf");
  EXPECT_THAT(
      [&] { MappedGguf{folder_ / "model.gguf"}; },
      ThrowsMessage<CheckpointError>(AllOf(HasSubstr("model.gguf: expected a name that ends in "),
                                           HasSubstr("\"-00001-of-00003.gguf\""))));
}

TEST_F(SplitFolder, RejectsAPartInThePlaceOfAnother) {
  fs::remove(folder_ / part_name(2));
  fs::create_symlink(kTestdata / part_name(3), folder_ / part_name(2));
  EXPECT_THAT([&] { MappedGguf{folder_ / part_name(1)}; },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "split-00002-of-00003.gguf: metadata \"split.no\": expected 1, got 2")));
}

TEST_F(SplitFolder, RejectsAPartThatIsCut) {
  fs::remove(folder_ / part_name(2));
  fs::copy_file(kTestdata / part_name(2), folder_ / part_name(2));
  fs::resize_file(folder_ / part_name(2), 100'000);
  EXPECT_THAT([&] { MappedGguf{folder_ / part_name(1)}; },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("split-00002-of-00003.gguf: tensor"),
                                                   HasSubstr("got an end behind it"))));
}

/// Headers of parts with a tensor each, in memory.
class Parts {
 public:
  explicit Parts(std::vector<std::string> tensors) : tensors_(std::move(tensors)) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      memory_.emplace_back();
      memory_[i].integer("split.no", static_cast<int64_t>(i));
      memory_[i].integer("split.count", static_cast<int64_t>(tensors_.size()));
    }
  }
  MetadataInMemory& metadata(size_t index) { return memory_[index]; }
  GgufHeader join() const {
    std::vector<GgufHeader> headers;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      headers.push_back(
          {.metadata = memory_[i].get(), .tensors = {{.name = tensors_[i], .shape = {}}}});
    }
    return join_gguf_parts(std::move(headers));
  }

 private:
  std::vector<std::string> tensors_;
  std::vector<MetadataInMemory> memory_;
};

void expect_rejected(const Parts& parts, const char* message) {
  EXPECT_THAT([&] { parts.join(); }, ThrowsMessage<CheckpointError>(HasSubstr(message)));
}

TEST(GgufParts, HaveTheTensorsOfAllByName) {
  const GgufHeader header = Parts({"c", "a", "b"}).join();
  ASSERT_EQ(header.tensors.size(), 3u);
  for (const char* name : {"a", "b", "c"}) EXPECT_NE(header.find(name), nullptr) << name;
  EXPECT_EQ(Parts({"a"}).join().tensors.size(), 1u);
}

TEST(GgufParts, RejectsPartsThatContradictEachOther) {
  expect_rejected(Parts({"a", "a"}), "tensor \"a\": expected it in one part, got it in two");
  Parts count({"a", "b"});
  count.metadata(1).integer("split.count", 3);
  expect_rejected(count, "metadata \"split.count\": expected 2 as in the first part, got 3");
  Parts number({"a", "b"});
  number.metadata(1).remove("split.no");
  expect_rejected(number, "metadata \"split.no\": expected 1, got nothing");
  Parts tensors({"a", "b"});
  tensors.metadata(0).integer("split.tensors.count", 3);
  expect_rejected(tensors, "expected 3 tensors in all parts, got 2");
}

}  // namespace
}  // namespace halley
