// The header of GGUF files: every file of testdata/fuzz/gguf with what must be said of it.
#include "halley/checkpoint/gguf/gguf_file.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/checkpoint/gguf/testing/metadata_in_memory.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace fs = std::filesystem;

const fs::path kCorpus = fs::path(HALLEY_SOURCE_DIR) / "testdata/fuzz/gguf";

/// Parses a file of the corpus under the name "f.gguf".
GgufHeader parse_file(const std::string& name) {
  const MappedFile file = MappedFile::open(kCorpus / name);
  return parse_gguf(file.bytes(), "f.gguf");
}

struct BadFile {
  const char* name;
  const char* message;
};

void PrintTo(const BadFile& file, std::ostream* out) { *out << file.name; }

constexpr BadFile kDamaged[] = {
    {"magic", "expected a GGUF file, which begins with \"GGUF\", got \"GGML\""},
    {"empty_file", "the file's first bytes at byte 0: expected 4 more bytes, got 0"},
    {"cut_header", "the number of tensors at byte 16: expected at most 0"},
    {"cut_data", "tensor \"a\": expected 18 bytes at offset 0"},
    {"many_tensors", "the number of tensors at byte"},
    {"many_entries", "the number of metadata entries at byte"},
    {"long_key", "the number of metadata entries at byte"},
    {"long_string", "a string of the metadata at byte"},
    {"long_array", "a value of the metadata at byte"},
    {"long_strings", "a string of the metadata at byte"},
    {"array_of_arrays", "expected a type from 0 to 12 and no array of arrays, got type 9"},
    {"value_type", "no array of arrays, got type 13"},
    {"key_twice", "expected each once, got \"general.architecture\" twice"},
    {"no_dimensions", "expected 1 to 4, got 0"},
    {"five_dimensions", "expected 1 to 4, got 5"},
    {"size_0", "a tensor's size at byte"},
    {"size_overflow", "expected a size below 2^63"},
    {"size_negative", "expected 1 to 2^63 - 1, got 18446744073709551615"},
    {"part_of_a_block", "expected rows of a multiple of 32 values for Q4_0, got 33"},
    {"offset_behind", "got an end behind it"},
    {"offset_overflow", "got an end behind it"},
    {"offset_unaligned", "expected an offset that is a multiple of 32, got 8"},
    {"overlap", "expected data of its own, got some of tensor"},
    {"name_twice", "tensor \"a\": expected each name once, got it twice"},
};

class DamagedFile : public testing::TestWithParam<BadFile> {};

TEST_P(DamagedFile, IsRejectedWithItsNameAndTheOffset) {
  EXPECT_THAT(
      [] { parse_file(GetParam().name); },
      ThrowsMessage<CheckpointError>(AllOf(HasSubstr("f.gguf: "), HasSubstr(GetParam().message))));
}

INSTANTIATE_TEST_SUITE_P(Corpus, DamagedFile, testing::ValuesIn(kDamaged),
                         [](const auto& param) { return std::string(param.param.name); });

constexpr BadFile kUnsupportedFiles[] = {
    {"version_1", "version: expected 2 or 3, got 1. Convert the model with a current llama.cpp."},
    {"big_endian", "got that of a big-endian file"},
    {"tensor_type", "tensor \"a\": expected one of the types F32, F16, BF16, Q4_0"},
    {"tensor_type_known", "got IQ2_XXS"},
};

class UnsupportedFile : public testing::TestWithParam<BadFile> {};

TEST_P(UnsupportedFile, IsRejectedWithWhatToDo) {
  EXPECT_THAT(
      [] { parse_file(GetParam().name); },
      ThrowsMessage<UnsupportedError>(AllOf(HasSubstr("f.gguf: "), HasSubstr(GetParam().message))));
}

INSTANTIATE_TEST_SUITE_P(Corpus, UnsupportedFile, testing::ValuesIn(kUnsupportedFiles),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(GgufFile, RejectsBadAlignments) {
  EXPECT_THAT([] { parse_file("alignment"); },
              ThrowsMessage<InputError>(HasSubstr(
                  "f.gguf: metadata \"general.alignment\": expected a power of two, got 24")));
  EXPECT_THAT([] { parse_file("alignment_0"); },
              ThrowsMessage<InputError>(HasSubstr("expected an integer in [1, 1048576], got 0")));
  EXPECT_THAT([] { parse_file("alignment_type"); },
              ThrowsMessage<InputError>(HasSubstr("expected an integer, got string")));
}

TEST(GgufFile, EveryFileOfTheCorpusIsNamedHere) {
  size_t num_files = 0;
  for (const auto& entry : fs::directory_iterator(kCorpus)) num_files += entry.is_regular_file();
  constexpr size_t kAlignments = 3, kGood = 3;
  EXPECT_EQ(num_files, std::size(kDamaged) + std::size(kUnsupportedFiles) + kAlignments + kGood);
}

TEST(GgufFile, ReadsWhatIsGood) {
  EXPECT_TRUE(parse_file("good_empty").tensors.empty());
  const MappedFile part = MappedFile::open(kCorpus / "split");
  EXPECT_EQ(parse_gguf(part.bytes(), "f.gguf").metadata.integer("split.count", 0, 9), 3);
  const MappedFile file = MappedFile::open(kCorpus / "good");
  const GgufHeader header = parse_gguf(file.bytes(), "f.gguf");
  EXPECT_EQ(header.metadata.string("general.architecture"), "llama");
  ASSERT_EQ(header.tensors.size(), 1u);
  const GgufTensor& tensor = header.tensors[0];
  EXPECT_EQ(tensor.type->type, GgmlType::kQ4_0);
  EXPECT_EQ(tensor.shape, (Shape{32}));
  EXPECT_EQ(tensor.num_bytes, 18u);
  EXPECT_EQ(tensor.begin + tensor.num_bytes, fs::file_size(kCorpus / "good"));
  EXPECT_EQ(tensor.data, file.bytes().data() + tensor.begin);
  EXPECT_EQ(header.find("a"), &tensor);
  EXPECT_EQ(header.find("b"), nullptr);
}

TEST(GgufFile, IsKnownByItsNameOrItsFirstBytes) {
  EXPECT_TRUE(is_gguf_file(kCorpus / "good"));
  EXPECT_FALSE(is_gguf_file(kCorpus / "magic"));
  EXPECT_FALSE(is_gguf_file(kCorpus / "empty_file"));
  EXPECT_FALSE(is_gguf_file(kCorpus));
  EXPECT_FALSE(is_gguf_file(kCorpus / "none.gguf"));
  const fs::path named = fs::path(testing::TempDir()) / "not_really.gguf";
  std::ofstream(named) << "text";
  EXPECT_TRUE(is_gguf_file(named));
  fs::remove(named);
}

// ---- metadata -----------------------------------------------------------------------------------

TEST(GgufMetadata, IntegersOfAllTypesAreIntegers) {
  MetadataInMemory memory;
  memory.values<uint8_t>("u8", GgufValueType::kU8, {200}, false);
  memory.values<int8_t>("i8", GgufValueType::kI8, {-3}, false);
  memory.values<uint16_t>("u16", GgufValueType::kU16, {60'000}, false);
  memory.values<int16_t>("i16", GgufValueType::kI16, {-30'000}, false);
  memory.values<uint32_t>("u32", GgufValueType::kU32, {4'000'000'000}, false);
  memory.values<int32_t>("i32", GgufValueType::kI32, {-5}, false);
  memory.values<uint64_t>("u64", GgufValueType::kU64, {uint64_t{1} << 40}, false);
  memory.values<int64_t>("i64", GgufValueType::kI64, {-(int64_t{1} << 40)}, false);
  const GgufMetadata metadata = memory.get();
  const auto get = [&](const char* key) {
    return metadata.integer(key, std::numeric_limits<int64_t>::min(),
                            std::numeric_limits<int64_t>::max());
  };
  EXPECT_EQ(get("u8"), 200);
  EXPECT_EQ(get("i8"), -3);
  EXPECT_EQ(get("u16"), 60'000);
  EXPECT_EQ(get("i16"), -30'000);
  EXPECT_EQ(get("u32"), 4'000'000'000);
  EXPECT_EQ(get("i32"), -5);
  EXPECT_EQ(get("u64"), int64_t{1} << 40);
  EXPECT_EQ(get("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(get("none"), std::nullopt);
  EXPECT_EQ(metadata.number("i16"), -30'000.0);
}

TEST(GgufMetadata, RejectsOtherTypesAndRanges) {
  MetadataInMemory memory;
  memory.values<float>("nan", GgufValueType::kF32, {std::numeric_limits<float>::quiet_NaN()},
                       false);
  memory.values<float>("f32", GgufValueType::kF32, {1.5f}, false);
  memory.values<uint64_t>("wide", GgufValueType::kU64, {~uint64_t{0}}, false);
  memory.values<uint64_t>("wides", GgufValueType::kU64, {~uint64_t{0}}, true);
  memory.values<uint8_t>("array", GgufValueType::kU8, {1, 2}, true);
  const GgufMetadata metadata = memory.get();
  const auto expect = [](const auto& call, const char* message) {
    EXPECT_THAT(call, ThrowsMessage<InputError>(HasSubstr(message)));
  };
  expect([&] { metadata.integer("f32", 0, 9); },
         "f.gguf: metadata \"f32\": expected an integer, got f32");
  expect([&] { metadata.integer("array", 0, 9); }, "expected an integer, got an array of u8");
  expect([&] { metadata.integer("wide", 0, 9); },
         "expected an integer in [0, 9], got a larger one");
  expect([&] { metadata.integers("wides"); }, "expected integers below 2^63");
  expect([&] { metadata.required_integer("none", 0, 9); }, "expected an integer, got nothing");
  expect([&] { metadata.number("nan"); }, "expected a finite number");
  expect([&] { metadata.numbers("nan"); }, "expected finite numbers, got nan at 0");
  expect([&] { metadata.boolean("f32"); }, "expected a boolean, got f32");
  expect([&] { metadata.booleans("f32"); }, "expected booleans, got f32");
  expect([&] { metadata.string("f32"); }, "expected a string, got f32");
  expect([&] { metadata.strings("array"); }, "expected strings, got an array of u8");
  EXPECT_EQ(metadata.integers("array"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(metadata.numbers("f32"), (std::vector<double>{1.5}));
}

TEST(GgufMetadata, RejectsMoreElementsThanAnyVocabularyHas) {
  GgufMetadata metadata("f.gguf");
  const std::vector<std::byte> bytes((1 << 24) + 1);
  metadata.add(
      "long",
      {.type = GgufValueType::kU8, .is_array = true, .count = bytes.size(), .bytes = bytes});
  EXPECT_THAT([&] { metadata.integers("long"); },
              ThrowsMessage<InputError>(HasSubstr("expected at most 16777216 elements")));
}

}  // namespace
}  // namespace halley
