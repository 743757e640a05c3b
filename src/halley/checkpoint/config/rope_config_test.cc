#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"

namespace halley {
namespace {

using testing::ElementsAre;

RopeConfig read(const std::string& text, const std::string& layer_type = "") {
  return read_rope_config(HfConfig::parse(text, "config.json"), layer_type, 10000.0);
}

TEST(RopeConfig, IsDefaultWhereNothingIsSaid) {
  const RopeConfig rope = read("{}");
  EXPECT_EQ(rope.type, "default");
  EXPECT_EQ(rope.theta, 10000.0);
  EXPECT_EQ(read(R"({"rope_theta": 5e6, "rope_scaling": null})").theta, 5e6);
  EXPECT_EQ(read(R"({"partial_rotary_factor": 0.5})").partial_rotary_factor, 0.5);
}

TEST(RopeConfig, ReadsLlama3InBothForms) {
  for (const char* text : {R"({"rope_theta": 500000.0, "max_position_embeddings": 131072,
            "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                             "original_max_position_embeddings": 8192, "rope_type": "llama3"}})",
                           R"({"max_position_embeddings": 131072,
            "rope_parameters": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                "original_max_position_embeddings": 8192, "rope_type": "llama3",
                                "rope_theta": 500000.0}})"}) {
    const RopeConfig rope = read(text);
    EXPECT_EQ(rope.type, "llama3");
    EXPECT_EQ(rope.theta, 500000.0);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.low_freq_factor, 1.0);
    EXPECT_EQ(rope.high_freq_factor, 4.0);
    EXPECT_EQ(rope.original_max_position_embeddings, 8192);
  }
}

TEST(RopeConfig, ReadsTheOldestTypeName) {
  const RopeConfig rope = read(R"({"rope_scaling": {"type": "linear", "factor": 4.0}})");
  EXPECT_EQ(rope.type, "linear");
  EXPECT_EQ(rope.factor, 4.0);
}

TEST(RopeConfig, PicksTheEntryOfALayerType) {
  const std::string text = R"({"rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, "nope": null}})";
  EXPECT_EQ(read(text, "full_attention").theta, 1e6);
  EXPECT_EQ(read(text, "full_attention").factor, 8.0);
  EXPECT_EQ(read(text, "sliding_attention").theta, 1e4);
  EXPECT_EQ(read(text, "sliding_attention").type, "default");
  for (const char* layer_type : {"", "chunked_attention", "nope"}) {
    EXPECT_THAT([&] { read(text, layer_type); },
                testing::ThrowsMessage<InputError>(
                    str("config.json: field 'rope_parameters': expected an entry for layer type \"",
                        layer_type, "\", got none among 3.")));
  }
}

TEST(RopeConfig, ReadsTheOlderFormOfLocalLayers) {
  const std::string text = R"({"rope_theta": 1e6, "rope_local_base_freq": 1e4,
                               "rope_scaling": {"rope_type": "linear", "factor": 8.0}})";
  EXPECT_EQ(read(text, "full_attention").theta, 1e6);
  EXPECT_EQ(read(text, "full_attention").factor, 8.0);
  EXPECT_EQ(read(text, "sliding_attention").theta, 1e4);
  EXPECT_EQ(read(text, "sliding_attention").type, "default");
  EXPECT_EQ(read(text, "sliding_attention").factor, 1.0);
}

TEST(RopeConfig, ReadsPhi3LongRope) {
  const RopeConfig rope = read(R"({"max_position_embeddings": 131072, "rope_theta": 10000.0,
      "original_max_position_embeddings": 4096,
      "rope_scaling": {"type": "su", "short_factor": [1, 1.25], "long_factor": [2.5, 64]}})");
  EXPECT_EQ(rope.type, "longrope");
  EXPECT_EQ(rope.original_max_position_embeddings, 4096);
  EXPECT_EQ(rope.factor, 32.0);
  EXPECT_THAT(rope.short_factor, ElementsAre(1.0, 1.25));
  EXPECT_THAT(rope.long_factor, ElementsAre(2.5, 64.0));
}

TEST(RopeConfig, ReadsYarn) {
  const RopeConfig rope = read(R"({"max_position_embeddings": 163840, "rope_scaling": {
      "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
      "mscale_all_dim": 0, "original_max_position_embeddings": 4096, "attention_factor": 1.5,
      "truncate": false}})");
  EXPECT_EQ(rope.type, "yarn");
  EXPECT_EQ(rope.factor, 40.0);
  EXPECT_EQ(rope.mscale, 0.707);
  EXPECT_EQ(rope.mscale_all_dim, 0.0);
  EXPECT_EQ(rope.attention_factor, 1.5);
  EXPECT_FALSE(rope.truncate);
}

TEST(RopeConfig, KeepsTypesThatItDoesNotKnow) {
  EXPECT_EQ(read(R"({"rope_scaling": {"rope_type": "spiral"}})").type, "spiral");
  EXPECT_EQ(read(R"({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})").type,
            "mrope");
  EXPECT_EQ(read(R"({"rope_scaling": {"rope_type": "default", "mrope_section": [1]}})").type,
            "mrope");
}

TEST(RopeConfig, RejectsWrongValuesByName) {
  const auto error_of = [](const std::string& parameters) -> std::string {
    try {
      read(str(R"({"rope_scaling": {"rope_type": "yarn", )", parameters, "}}"));
    } catch (const InputError& caught) {
      return caught.what();
    }
    return "no error";
  };
  const std::string where = "config.json: field 'rope_scaling.";
  EXPECT_EQ(error_of(R"("factor": 0)"), where + "factor': expected a number in (0, 1e+15], got 0.");
  EXPECT_EQ(error_of(R"("factor": "8")"), where + "factor': expected a number, got \"8\".");
  EXPECT_EQ(error_of(R"("rope_theta": -1)"),
            where + "rope_theta': expected a number in (0, 1e+15], got -1.");
  EXPECT_EQ(error_of(R"("rope_theta": 1e300)"),
            where + "rope_theta': expected a number in (0, 1e+15], got 1e+300.");
  EXPECT_EQ(error_of(R"("mscale": -1)"),
            where + "mscale': expected a number in [0, 1e+15], got -1.");
  EXPECT_EQ(error_of(R"("original_max_position_embeddings": 0.5)"),
            where +
                "original_max_position_embeddings': expected an integer in [1, 1099511627776], "
                "got 0.5.");
  EXPECT_EQ(error_of(R"("short_factor": [1, 0])"),
            where + "short_factor': expected a number in (0, 1e+15], got 0.");
  std::string many = "1";
  for (int i = 0; i < 1024; ++i) many += ",1";
  EXPECT_EQ(error_of(str(R"("long_factor": [)", many, "]")),
            where + "long_factor': expected at most 1024 numbers, got 1025.");
  EXPECT_EQ(error_of(R"("truncate": 0)"), where + "truncate': expected true or false, got 0.");
  EXPECT_EQ(error_of(R"("partial_rotary_factor": 1.5)"),
            "config.json: field 'partial_rotary_factor': expected a number in (0, 1], got 1.5.");
}

}  // namespace
}  // namespace halley
