#include "halley/checkpoint/safetensors/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

const fs::path kFolder = fs::path(HALLEY_SOURCE_DIR) / "testdata/fuzz/safetensors";
constexpr size_t kFileBytesMax = 64'000;

SafetensorsHeader parse(std::string_view bytes, const std::string& where = "x.safetensors") {
  return parse_safetensors(std::as_bytes(std::span(bytes)), where);
}

// A file of the corpus and what the message about it says behind "<file>: "; nothing for a file
// that must be accepted.
struct CorpusCase {
  const char* name;
  const char* message;
};

constexpr const char* kAccepted = nullptr;

const CorpusCase kCases[] = {
    {"good_one", kAccepted},
    {"good_two", kAccepted},
    {"good_two_backwards", kAccepted},
    {"good_every_dtype", kAccepted},
    {"good_empty", kAccepted},
    {"good_scalar", kAccepted},
    {"good_zero_size", kAccepted},
    {"good_zero_size_last", kAccepted},
    {"good_padded", kAccepted},
    {"good_metadata", kAccepted},
    {"good_metadata_last", kAccepted},
    {"good_unknown_field", kAccepted},
    {"good_escaped_name", kAccepted},
    {"good_line_breaks", kAccepted},
    {"good_f4_even", kAccepted},
    {"good_many_tiny", kAccepted},
    {"file_empty", "expected at least 8 bytes, which hold the header's length, got 0."},
    {"file_7_bytes", "expected at least 8 bytes, which hold the header's length, got 7."},
    {"header_0_bytes", "header: expected '{' as its first byte, got an empty header."},
    {"header_length_above_limit",
     "header length: expected at most 100000000 bytes, got 100000001."},
    {"header_length_above_file",
     "header length: expected at most 2 bytes, which is what follows in the file, got 3."},
    {"header_length_max",
     "header length: expected at most 100000000 bytes, got 18446744073709551615."},
    {"header_length_sign_bit",
     "header length: expected at most 100000000 bytes, got 9223372036854775808."},
    {"header_length_wraps",
     "header length: expected at most 100000000 bytes, got 18446744073709551608."},
    {"header_not_utf8", "header: not valid JSON at byte 3: "},
    {"header_not_json", "header: not valid JSON at byte 2: "},
    {"header_array", "header: expected '{' as its first byte, got 0x5B."},
    {"header_cut", "header: expected '}' and then only spaces at its end, got 0x22."},
    {"header_cut_at_brace", "header: not valid JSON at byte 20: "},
    {"header_nul_behind", "header: expected '}' and then only spaces at its end, got 0x00."},
    {"header_nul_inside", "header: expected JSON text, got a zero byte at byte 2 of the header."},
    {"header_two_documents", "header: not valid JSON at byte 3: "},
    {"header_space_before", "header: expected '{' as its first byte, got 0x20."},
    {"header_tab_behind", "header: expected '}' and then only spaces at its end, got 0x09."},
    {"header_line_break_behind", "header: expected '}' and then only spaces at its end, got 0x0A."},
    {"header_byte_order_mark", "header: expected '{' as its first byte, got 0xEF."},
    {"header_lone_surrogate", "header: not valid JSON at byte 9: "},
    {"header_depth_bomb", "header: JSON nested deeper than 128 levels."},
    {"header_depth_bomb_object", "header: JSON nested deeper than 128 levels."},
    {"header_depth_bomb_extra", "header: JSON nested deeper than 128 levels."},
    {"duplicate_tensor", "header: duplicate key \"a\" in a JSON object."},
    {"duplicate_tensor_escaped", "header: duplicate key \"a\" in a JSON object."},
    {"duplicate_field", "header: duplicate key \"shape\" in a JSON object."},
    {"duplicate_metadata", "header: duplicate key \"__metadata__\" in a JSON object."},
    {"duplicate_metadata_key", "header: duplicate key \"k\" in a JSON object."},
    {"metadata_not_an_object",
     "header: field '__metadata__': expected an object of strings, got an array of 1."},
    {"metadata_null", "header: field '__metadata__': expected an object of strings, got null."},
    {"metadata_number", "header: field '__metadata__': key \"k\": expected a string, got 1."},
    {"metadata_nested",
     "header: field '__metadata__': key \"k\": expected a string, got an object of 1."},
    {"entry_number", "tensor \"a\": expected an object with dtype, shape and data_offsets, got 1."},
    {"entry_array",
     "tensor \"a\": expected an object with dtype, shape and data_offsets, got an array of 3."},
    {"entry_empty", "tensor \"a\": field 'dtype': expected a value, got nothing."},
    {"dtype_missing", "tensor \"a\": field 'dtype': expected a value, got nothing."},
    {"dtype_unknown",
     "tensor \"a\": field 'dtype': expected BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, "
     "F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, "
     "I32, U32, F32, C64, F64, I64 or U64, got \"U7\"."},
    {"dtype_lower_case", "tensor \"a\": field 'dtype': expected BOOL"},
    {"dtype_number", "tensor \"a\": field 'dtype': expected BOOL"},
    {"shape_missing", "tensor \"a\": field 'shape': expected a value, got nothing."},
    {"shape_number",
     "tensor \"a\": field 'shape': expected an array of at most 64 dimensions, got 1."},
    {"dim_negative",
     "tensor \"a\": field 'shape': expected integers from 0 to 9223372036854775807, got -1."},
    {"dim_minus_zero",
     "tensor \"a\": field 'shape': expected integers from 0 to 9223372036854775807, got -0."},
    {"dim_float",
     "tensor \"a\": field 'shape': expected integers from 0 to 9223372036854775807, got 1.0."},
    {"dim_1e30",
     "tensor \"a\": field 'shape': expected integers from 0 to 9223372036854775807, got 1e+30."},
    {"dim_string",
     "tensor \"a\": field 'shape': expected integers from 0 to 9223372036854775807, got \"1\"."},
    {"dim_null",
     "tensor \"a\": field 'shape': expected integers from 0 to 9223372036854775807, got null."},
    {"dim_2_to_63",
     "tensor \"a\": field 'shape': expected integers from 0 to 9223372036854775807, "
     "got 9223372036854775808."},
    {"dim_2_to_63_times_0",
     "tensor \"a\": field 'shape': expected integers from 0 to "
     "9223372036854775807, got 9223372036854775808."},
    {"dim_2_to_64",
     "tensor \"a\": field 'shape': expected integers from 0 to 9223372036854775807, "
     "got 1.8446744073709552e+19."},
    {"rank_65",
     "tensor \"a\": field 'shape': expected an array of at most 64 dimensions, got an "
     "array of 65."},
    {"size_overflow",
     "tensor \"a\": field 'shape': expected a size that fits 64 bits, got u8 "
     "[4294967296, 4294967296, 4294967296]."},
    {"size_wraps_to_1_byte",
     "tensor \"a\": field 'shape': expected a size that fits 64 bits, "
     "got f32 [4611686018427387905]."},
    {"bits_overflow",
     "tensor \"a\": field 'shape': expected a size that fits 64 bits, got f64 "
     "[2305843009213693952]."},
    {"f4_odd",
     "tensor \"a\": field 'shape': expected whole bytes, got f4 [3], which takes 12 bits."},
    {"f6_odd",
     "tensor \"a\": field 'shape': expected whole bytes, got f6_e2m3 [3], which takes 18 bits."},
    {"offsets_missing", "tensor \"a\": field 'data_offsets': expected a value, got nothing."},
    {"offsets_three",
     "tensor \"a\": field 'data_offsets': expected an array of 2 integers, got an array of 3."},
    {"offsets_one",
     "tensor \"a\": field 'data_offsets': expected an array of 2 integers, got an array of 1."},
    {"offsets_negative",
     "tensor \"a\": field 'data_offsets': expected integers from 0 to 2^64-1, got -1."},
    {"offsets_float",
     "tensor \"a\": field 'data_offsets': expected integers from 0 to 2^64-1, got 0.0."},
    {"offsets_backwards",
     "tensor \"a\": field 'data_offsets': expected the end not to be before "
     "the begin, got [1, 0]."},
    {"offsets_huge",
     "tensor \"a\": field 'data_offsets': expected an end of at most 1, which is "
     "the size of the file's data, got 18446744073709551615."},
    {"offsets_above_file",
     "tensor \"a\": field 'data_offsets': expected an end of at most 1, which "
     "is the size of the file's data, got 2."},
    {"size_too_small",
     "tensor \"a\": field 'data_offsets': expected 1 bytes, which is what u8 [1] "
     "takes, got 2 ([0, 2])."},
    {"size_too_large",
     "tensor \"a\": field 'data_offsets': expected 3 bytes, which is what u8 [3] "
     "takes, got 2 ([0, 2])."},
    {"hole",
     "tensor \"b\": field 'data_offsets': expected to begin at 2, where tensor \"a\" ends, "
     "got 3: a hole in the data."},
    {"hole_at_start",
     "tensor \"a\": field 'data_offsets': expected to begin at 0, where the data "
     "begins, got 1: a hole in the data."},
    {"overlap",
     "tensor \"b\": field 'data_offsets': expected to begin at 2, where tensor \"a\" "
     "ends, got 1: tensors overlap."},
    {"overlap_same", "field 'data_offsets': expected to begin at 2, where tensor \""},
    {"zero_size_inside",
     "tensor \"b\": field 'data_offsets': expected to begin at 2, where tensor "
     "\"a\" ends, got 1: tensors overlap."},
    {"trailing_bytes", "expected 1 bytes of data, which is where the last tensor ends, got 3."},
    {"trailing_bytes_no_tensor",
     "expected 0 bytes of data, which is where the last tensor ends, got 1."},
    {"data_cut",
     "tensor \"b\": field 'data_offsets': expected an end of at most 3, which is the "
     "size of the file's data, got 4."},
    {"index_two_shards", "header length: expected at most 100000000 bytes, got "},
    {"index_path", "header length: expected at most 100000000 bytes, got "},
    {"index_other_kind", "header length: expected at most 100000000 bytes, got "},
};

TEST(SafetensorsCorpus, IsAcceptedOrRejectedWithItsMessage) {
  for (const CorpusCase& test_case : kCases) {
    const std::string file = str(test_case.name, ".safetensors");
    const std::string bytes = read_text_file(kFolder / file, kFileBytesMax);
    if (test_case.message == kAccepted) {
      EXPECT_NO_THROW(parse(bytes, file)) << file;
    } else {
      EXPECT_THAT([&] { parse(bytes, file); },
                  ThrowsMessage<CheckpointError>(
                      testing::AllOf(StartsWith(file + ": "), HasSubstr(test_case.message))));
    }
  }
}

TEST(SafetensorsCorpus, HasARowForEveryFile) {
  std::set<std::string> expected;
  for (const CorpusCase& test_case : kCases) expected.insert(str(test_case.name, ".safetensors"));
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    found.insert(entry.path().filename().string());
  }
  EXPECT_EQ(found, expected);
}

// A cut file must not pass for a shorter one.
TEST(SafetensorsCorpus, IsRejectedWhereverItIsCut) {
  for (const char* name : {"good_two", "good_every_dtype", "good_metadata"}) {
    const std::string bytes = read_text_file(kFolder / str(name, ".safetensors"), kFileBytesMax);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW(parse(bytes.substr(0, size)), CheckpointError) << name << " " << size;
    }
  }
}

TEST(ParseSafetensors, FindsTensorsAndData) {
  const std::string bytes = read_text_file(kFolder / "good_two_backwards.safetensors", 1000);
  const SafetensorsHeader header = parse(bytes);
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(bytes.substr(header.data_start), "wxyz");
  EXPECT_EQ(header.entries[0].info.name, "a");
  EXPECT_EQ(header.entries[0].offset, 2u);
  EXPECT_EQ(header.entries[1].info.name, "b");
  EXPECT_EQ(header.entries[1].offset, 0u);
  EXPECT_EQ(header.entries[1].info.shape, Shape{2});
  EXPECT_EQ(header.entries[1].info.num_bytes, 2u);
}

TEST(ParseSafetensors, KnowsEveryDType) {
  const SafetensorsHeader header =
      parse(read_text_file(kFolder / "good_every_dtype.safetensors", kFileBytesMax));
  ASSERT_EQ(header.entries.size(), 22u);
  for (const auto& entry : header.entries) {
    EXPECT_EQ(entry.info.dtype, dtype_from_safetensors(entry.info.name)) << entry.info.name;
    EXPECT_EQ(entry.info.num_bytes, static_cast<size_t>(bits_of(entry.info.dtype)) / 2);
  }
}

TEST(ParseSafetensors, EscapesHostileNames) {
  const std::string text = R"({"\u001b[2J\n":1})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(text.size());
  EXPECT_THAT([&] { parse(bytes + text); },
              ThrowsMessage<CheckpointError>(HasSubstr(R"(tensor "\x1b[2J\n": expected)")));
}

}  // namespace
}  // namespace halley
