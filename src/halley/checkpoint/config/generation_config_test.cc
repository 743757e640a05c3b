#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

GenerationConfig read(const std::string& generation, const std::string& config = "{}") {
  const HfConfig parsed = HfConfig::parse(generation, "generation_config.json");
  return read_generation_config(&parsed, HfConfig::parse(config, "config.json"));
}

TEST(GenerationConfig, ReadsTokensAndSampling) {
  const GenerationConfig config =
      read(R"({"bos_token_id": 1, "eos_token_id": [5, 3, 5], "temperature": 0.6, "top_p": 0.9,
               "top_k": 20, "min_p": 0, "repetition_penalty": 1.05, "do_sample": true})");
  EXPECT_THAT(config.eos_token_ids, ElementsAre(5, 3));
  EXPECT_EQ(config.bos_token_id, 1);
  ChoiceParams params = {.min_p = 0.5};
  apply_settings(config.sampling, params);
  EXPECT_EQ(params.temperature, 0.6);
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.min_p, 0.0);
  EXPECT_EQ(params.repetition_penalty, 1.05);
  EXPECT_EQ(config.do_sample, true);
}

TEST(GenerationConfig, FallsBackToTheConfigurationForTokens) {
  const std::string config = R"({"eos_token_id": [7, 8], "bos_token_id": 6, "top_k": 5})";
  EXPECT_THAT(read("{}", config).eos_token_ids, ElementsAre(7, 8));
  EXPECT_EQ(read("{}", config).bos_token_id, 6);
  EXPECT_THAT(read("{}", config).sampling, IsEmpty());
  EXPECT_THAT(read(R"({"eos_token_id": 2})", config).eos_token_ids, ElementsAre(2));
  EXPECT_THAT(read(R"({"eos_token_id": null})", config).eos_token_ids, ElementsAre(7, 8));
  EXPECT_THAT(read("{}").eos_token_ids, IsEmpty());
  // gemma-3-4b-it has them outside, other models in text_config.
  const std::string nested = R"({"bos_token_id": 1, "text_config": {"eos_token_id": 3,
                                 "bos_token_id": 2}})";
  EXPECT_THAT(read("{}", nested).eos_token_ids, ElementsAre(3));
  EXPECT_EQ(read("{}", nested).bos_token_id, 1);
}

TEST(GenerationConfig, RejectsWrongValuesByName) {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      read(text);
    } catch (const InputError& caught) {
      return caught.what();
    }
    return "no error";
  };
  const std::string where = "generation_config.json: field ";
  EXPECT_EQ(error_of(R"({"eos_token_id": -1})"),
            where + "'eos_token_id': expected an integer in [0, 2147483647], got -1.");
  EXPECT_EQ(error_of(R"({"eos_token_id": [1, 2147483648]})"),
            where + "'eos_token_id': expected ids in [0, 2147483647], got 2147483648.");
  EXPECT_EQ(error_of(R"({"eos_token_id": ["</s>"]})"),
            where + "'eos_token_id': element 0: expected a 64-bit integer, got \"</s>\".");
  EXPECT_EQ(error_of(R"({"bos_token_id": [1]})"),
            where + "'bos_token_id': expected an integer in [0, 2147483647], got an array of 1.");
  EXPECT_EQ(error_of(R"({"temperature": -0.5})"),
            where + "'temperature': expected a number in [0, 1e+06], got -0.5.");
  EXPECT_EQ(error_of(R"({"top_p": 2})"), where + "'top_p': expected a number in [0, 1], got 2.");
  EXPECT_EQ(error_of(R"({"top_k": 1.5})"),
            where + "'top_k': expected an integer in [-1, 2147483647], got 1.5.");
  EXPECT_EQ(error_of(R"({"do_sample": 1})"), where + "'do_sample': expected true or false, got 1.");
  std::string many = "0";
  for (int i = 1; i <= 1024; ++i) many += str(",", i);
  EXPECT_EQ(error_of(str(R"({"eos_token_id": [)", many, "]}")),
            where + "'eos_token_id': expected at most 1024 ids, got 1025.");
}

TEST(GenerationConfig, IsOptionalAsAFile) {
  const fs::path dir = fs::temp_directory_path() / str("halley_generation_", ::getpid());
  fs::create_directories(dir);
  const HfConfig config = HfConfig::parse(R"({"eos_token_id": 2})", "config.json");
  EXPECT_THAT(load_generation_config(dir, config).eos_token_ids, ElementsAre(2));
  std::ofstream(dir / "generation_config.json") << R"({"eos_token_id": 3})";
  EXPECT_THAT(load_generation_config(dir, config).eos_token_ids, ElementsAre(3));
  std::ofstream(dir / "generation_config.json") << "[]";
  EXPECT_THROW(load_generation_config(dir, config), InputError);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace halley
