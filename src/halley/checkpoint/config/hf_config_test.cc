#include "halley/checkpoint/config/hf_config.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

HfConfig parse(const std::string& text) { return HfConfig::parse(text, "config.json"); }

TEST(HfConfig, ReadsFieldsOfEveryKind) {
  const HfConfig config = parse(R"({"model_type": "llama", "hidden_size": 64, "eps": 1e-5,
    "tied": true, "none": null, "numbers": [1, 2.5], "integers": [-1, 2], "strings": ["a", "b"],
    "text_config": {"hidden_size": 32}, "torch_dtype": "float16"})");
  EXPECT_EQ(config.model_type(), "llama");
  EXPECT_EQ(config.integer("hidden_size", 1, 100), 64);
  EXPECT_DOUBLE_EQ(config.number("eps"), 1e-5);
  EXPECT_DOUBLE_EQ(config.number("hidden_size"), 64.0);
  EXPECT_TRUE(config.boolean_or("tied", false));
  EXPECT_THAT(config.numbers("numbers"), ElementsAre(1.0, 2.5));
  EXPECT_THAT(config.integers("integers"), ElementsAre(-1, 2));
  EXPECT_THAT(config.strings("strings"), ElementsAre("a", "b"));
  EXPECT_EQ(config.object("text_config")->integer("hidden_size", 1, 100), 32);
  EXPECT_EQ(config.dtype(), "float16");
  EXPECT_EQ(parse(R"({"dtype": "bfloat16", "torch_dtype": "float16"})").dtype(), "bfloat16");
  EXPECT_EQ(parse("{}").dtype(), std::nullopt);
}

TEST(HfConfig, TakesNullForAbsent) {
  const HfConfig config = parse(R"({"x": null})");
  EXPECT_FALSE(config.has("x"));
  EXPECT_EQ(config.integer_or("x", 7, 0, 1), 7);
  EXPECT_EQ(config.number_or("x", 0.5), 0.5);
  EXPECT_TRUE(config.boolean_or("x", true));
  EXPECT_EQ(config.string_or("x", "y"), "y");
  EXPECT_THAT(config.numbers("x"), IsEmpty());
  EXPECT_THAT(config.integers("y"), IsEmpty());
  EXPECT_FALSE(config.object("x").has_value());
}

// The error of `read` for a wrong value of the field x.
template <typename Read>
std::string error_of(const std::string& value, const Read& read) {
  const HfConfig config =
      HfConfig::parse(value.empty() ? "{}" : str(R"({"x": )", value, "}"), "config.json");
  try {
    read(config);
  } catch (const InputError& caught) {
    return caught.what();
  }
  return "no error";
}

TEST(HfConfig, NamesFieldExpectedAndFound) {
  const auto integer = [](const HfConfig& c) { c.integer("x", 1, 100); };
  const std::string expected = "config.json: field 'x': expected an integer in [1, 100], got ";
  EXPECT_EQ(error_of("", integer), expected + "nothing.");
  EXPECT_EQ(error_of("0", integer), expected + "0.");
  EXPECT_EQ(error_of("101", integer), expected + "101.");
  EXPECT_EQ(error_of("64.0", integer), expected + "64.0.");
  EXPECT_EQ(error_of("true", integer), expected + "true.");
  EXPECT_EQ(error_of("18446744073709551615", integer), expected + "18446744073709551615.");
  EXPECT_EQ(error_of("\"64\"", integer), expected + "\"64\".");
  EXPECT_EQ(error_of("[64]", integer), expected + "an array of 1.");
  EXPECT_EQ(error_of("-1", [](const HfConfig& c) { c.integer("x", 1, INT64_MAX); }),
            "config.json: field 'x': expected a positive integer, got -1.");
  EXPECT_EQ(error_of("\"1\"", [](const HfConfig& c) { c.number("x"); }),
            "config.json: field 'x': expected a number, got \"1\".");
  EXPECT_EQ(error_of("1", [](const HfConfig& c) { c.string("x"); }),
            "config.json: field 'x': expected a string, got 1.");
  EXPECT_EQ(error_of("1", [](const HfConfig& c) { c.boolean_or("x", true); }),
            "config.json: field 'x': expected true or false, got 1.");
  EXPECT_EQ(error_of("[]", [](const HfConfig& c) { c.object("x"); }),
            "config.json: field 'x': expected an object, got an array of 0.");
  EXPECT_EQ(error_of("[1, null]", [](const HfConfig& c) { c.numbers("x"); }),
            "config.json: field 'x': element 1: expected a number, got null.");
  EXPECT_EQ(error_of("[1.5]", [](const HfConfig& c) { c.integers("x"); }),
            "config.json: field 'x': element 0: expected a 64-bit integer, got 1.5.");
  EXPECT_EQ(error_of("7", [](const HfConfig& c) { c.strings("x"); }),
            "config.json: field 'x': expected an array of at most 65536 strings, got 7.");
  EXPECT_EQ(error_of("{}", [](const HfConfig& c) { c.object("x")->integer("y", 1, 2); }),
            "config.json: field 'x.y': expected an integer in [1, 2], got nothing.");
}

TEST(HfConfig, RejectsTextThatIsNoObject) {
  EXPECT_THAT([] { parse("[]"); },
              ThrowsMessage<InputError>("config.json: expected a JSON object, got an array of 0."));
  EXPECT_THROW(parse(""), InputError);
  EXPECT_THROW(parse(R"({"a": 1, "a": 1})"), InputError);
}

TEST(HfConfig, LoadsFromAModelDirectory) {
  const fs::path dir = fs::temp_directory_path() / str("halley_config_", ::getpid());
  fs::create_directories(dir);
  EXPECT_THAT([&] { HfConfig::load(dir); }, ThrowsMessage<InputError>(HasSubstr("config.json")));
  EXPECT_THAT([&] { check_model_dir(dir); },
              ThrowsMessage<InputError>(HasSubstr("got a directory without config.json.")));
  EXPECT_THAT([&] { check_model_dir(dir / "none"); },
              ThrowsMessage<InputError>(HasSubstr("got nothing of that name. Check the path")));
  std::ofstream(dir / "model.gguf") << "GGUF";
  EXPECT_EQ(check_model_dir(dir / "model.gguf"), dir / "model.gguf");
  EXPECT_THAT([&] { HfConfig::load(dir / "model.gguf"); },
              ThrowsMessage<CheckpointError>(HasSubstr("model.gguf: the version at byte 4")));
  std::ofstream(dir / "model.bin") << "text";
  EXPECT_THAT([&] { check_model_dir(dir / "model.bin"); },
              ThrowsMessage<InputError>(HasSubstr("expected a GGUF file or a Hugging Face model "
                                                  "directory with config.json, got a file.")));
  std::ofstream(dir / "config.json") << R"({"model_type": "llama"})";
  EXPECT_EQ(check_model_dir(dir), dir);
  EXPECT_EQ(HfConfig::load(dir).model_type(), "llama");
  EXPECT_THAT([&] { HfConfig::load(dir).string("x"); },
              ThrowsMessage<InputError>(HasSubstr((dir / "config.json").string() + ": field 'x'")));
  std::ofstream(dir / "config.json") << std::string((16 << 20) + 1, ' ');
  EXPECT_THAT([&] { HfConfig::load(dir); },
              ThrowsMessage<InputError>(HasSubstr("expected at most 16777216 bytes")));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace halley
