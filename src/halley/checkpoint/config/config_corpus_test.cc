// The corpus that tools/make_bad_configs.py wrote: which files are read, and what is said of
// others.
#include <filesystem>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(HALLEY_SOURCE_DIR) / "testdata/fuzz/config";
constexpr size_t kFileBytesMax = 64'000;

// The text that a file's error must hold; nothing for a file that must be accepted.
struct CorpusCase {
  const char* name;
  const char* message;
};

constexpr const char* kAccepted = nullptr;

const CorpusCase kCases[] = {
    {"good_older", kAccepted},
    {"good_newer", kAccepted},
    {"good_layer_types", kAccepted},
    {"good_longrope", kAccepted},
    {"good_yarn", kAccepted},
    {"good_mrope", kAccepted},
    {"good_nested", kAccepted},
    {"good_generation", kAccepted},
    {"good_nulls", kAccepted},
    {"empty", ": not valid JSON at byte "},
    {"array", ": expected a JSON object, got an array of 0."},
    {"cut", ": not valid JSON at byte 101: "},
    {"depth_bomb", ": JSON nested deeper than 128 levels."},
    {"duplicate_field", ": duplicate key \"hidden_size\" in a JSON object."},
    {"nan", ": not valid JSON at byte 16: "},
    {"infinite_by_digits", ": not valid JSON at byte "},
    {"not_utf8", ": not valid JSON at byte 17: "},
    {"theta_string", ": field 'rope_theta': expected a number, got \"10000\"."},
    {"theta_zero", ": field 'rope_theta': expected a number in (0, 1e+15], got 0."},
    {"scaling_string", ": field 'rope_scaling': expected an object, got \"linear\"."},
    {"scaling_layer_type_missing",
     ": field 'rope_parameters': expected an entry for layer type "
     "\"full_attention\", got none among 1."},
    {"scaling_type_number", ": field 'rope_scaling.type': expected a string, got 1."},
    {"factor_negative", ": field 'rope_scaling.factor': expected a number in (0, 1e+15], got -2."},
    {"factor_huge", ": field 'rope_scaling.factor': expected a number in (0, 1e+15], got 1e+300."},
    {"original_length_zero",
     ": field 'rope_scaling.original_max_position_embeddings': expected an "
     "integer in [1, 1099511627776], got 0."},
    {"original_length_huge",
     ": field 'rope_scaling.original_max_position_embeddings': expected an "
     "integer in [1, 1099511627776], got 9223372036854775808."},
    {"long_factor_zero",
     ": field 'rope_scaling.long_factor': expected a number in (0, 1e+15], got 0."},
    {"long_factor_string",
     ": field 'rope_scaling.long_factor': element 0: expected a number, got \"1\"."},
    {"long_factor_long",
     ": field 'rope_scaling.long_factor': expected at most 1024 numbers, got 1025."},
    {"eos_negative", ": field 'eos_token_id': expected an integer in [0, 2147483647], got -1."},
    {"eos_large", ": field 'eos_token_id': expected ids in [0, 2147483647], got 2147483648."},
    {"eos_string", ": field 'eos_token_id': expected an integer in [0, 2147483647], got \"</s>\"."},
    {"top_p_above_1", ": field 'top_p': expected a number in [0, 1], got 1.5."},
    {"temperature_negative", ": field 'temperature': expected a number in [0, 1e+06], got -1."},
};

// The message about the file read as both of the files that a model has, or nothing.
std::string error_of(const std::string& file) {
  try {
    const HfConfig config = HfConfig::parse(read_text_file(kFolder / file, kFileBytesMax), file);
    read_rope_config(config, "full_attention", 10000.0);
    read_generation_config(&config, config);
  } catch (const InputError& caught) {
    return caught.what();
  }
  return "";
}

TEST(ConfigCorpus, IsAcceptedOrRejectedWithItsMessage) {
  for (const CorpusCase& test_case : kCases) {
    const std::string file = str(test_case.name, ".json");
    if (test_case.message == kAccepted) {
      EXPECT_EQ(error_of(file), "") << file;
    } else {
      EXPECT_THAT(error_of(file), testing::StartsWith(str(file, test_case.message)));
    }
  }
}

TEST(ConfigCorpus, HasARowForEveryFile) {
  std::set<std::string> expected;
  for (const CorpusCase& test_case : kCases) expected.insert(str(test_case.name, ".json"));
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    found.insert(entry.path().filename().string());
  }
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace halley
