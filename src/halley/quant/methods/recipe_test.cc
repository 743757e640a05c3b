#include "halley/quant/methods/recipe.h"

#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

std::string message_of(const std::string& method, const RecipeChanges& changes) {
  try {
    make_recipe(method, changes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RecipeTest, EveryMethodStandsByItself) {
  for (const Recipe& recipe : recipes()) {
    EXPECT_EQ(message_of(recipe.method, {}), "no error");
    EXPECT_FALSE(describe(recipe).empty());
  }
}

TEST(RecipeTest, EveryTechniqueCanBeSwitchedOff) {
  for (const Recipe& recipe : recipes()) {
    for (const Technique& technique : techniques()) {
      const std::string message = message_of(recipe.method, {.without = {technique.name}});
      if (technique.has(recipe)) {
        EXPECT_EQ(message, "no error") << recipe.method << technique.name;
        EXPECT_FALSE(technique.has(make_recipe(recipe.method, {.without = {technique.name}})));
      } else {
        EXPECT_NE(message.find("got one that it does not have"), std::string::npos) << message;
      }
    }
  }
}

TEST(RecipeTest, BlockClipNeedsClip) {
  EXPECT_TRUE(make_recipe("qoq", {}).has_block_clip);
  EXPECT_FALSE(make_recipe("qoq", {.without = {"clip"}}).has_block_clip);
  EXPECT_FALSE(make_recipe("qoq", {.without = {"clip", "block-clip"}}).has_block_clip);
}

TEST(RecipeTest, RejectsWhatFilesCannotHold) {
  EXPECT_EQ(message_of("frob", {}).substr(0, 29), "--method: expected one of [rt");
  EXPECT_NE(message_of("rtn", {.without = {"frob"}}).find("--without: expected one of"),
            std::string::npos);
  EXPECT_EQ(message_of("awq", {.bits = 3}), "--bits: expected one of [4] for method awq, got 3.");
  EXPECT_EQ(message_of("qoq", {.group_size = 64}),
            "--group-size: expected one of [0, 128] (0: per-channel) for method qoq, "
            "got 64.");
  EXPECT_EQ(message_of("gptq", {.group_size = 7}),
            "--group-size: expected -1 or a multiple of 8 up to 65536, got 7.");
  EXPECT_EQ(message_of("fmpq", {.is_symmetric = false}),
            "--symmetric: expected true for method fmpq, whose files hold nothing else.");
  EXPECT_EQ(message_of("gptq", {.damp = 2.0}), "--damp: expected 1e-06 to 1, got 2.");
  EXPECT_EQ(message_of("rtn", {.kv_bits = 5}), "--kv-bits: expected 16, 8 or 4, got 5.");
  EXPECT_EQ(message_of("gptq", {.kv_bits = 4}),
            "--kv-bits: expected 16 for method gptq, whose files do not state a KV cache, got 4. "
            "Leave it out, and run the model with --kv-dtype.");
}

TEST(RecipeTest, MethodsWithoutCalibrationNeedNoText) {
  std::vector<std::string> methods;
  for (const Recipe& recipe : recipes()) {
    if (message_of(recipe.method, {.has_calibration = false}) == "no error") {
      methods.emplace_back(recipe.method);
    }
  }
  EXPECT_EQ(methods, (std::vector<std::string>{"rtn", "fp8", "nestedfp", "none"}));
  EXPECT_TRUE(make_recipe("none", {}).has_key_smoothing);
  EXPECT_FALSE(make_recipe("none", {.has_calibration = false}).has_key_smoothing);
}

TEST(RecipeTest, ATextIsNeededForWhatIsCalibrated) {
  EXPECT_EQ(message_of("gptq", {.has_calibration = false}),
            "--calibrate: expected a text, from which method gptq computes [clip, compensation], "
            "got none. Name a UTF-8 file of text like that which the model will see, or use a "
            "method without calibration: rtn, fp8 or nestedfp.");
  EXPECT_NE(message_of("fp8", {.is_activation_static = true, .has_calibration = false})
                .find("computes [static activations], got none"),
            std::string::npos);
  const RecipeChanges rounding = {.without = {"clip", "compensation"}, .has_calibration = false};
  EXPECT_EQ(message_of("gptq", rounding), "no error");
  for (const Recipe& recipe : recipes()) {
    RecipeChanges changes = {.has_calibration = false};
    for (const Technique& technique : techniques()) {
      if (technique.has(recipe) && std::string(technique.name) != "block-clip") {
        changes.without.emplace_back(technique.name);
      }
    }
    const bool is_fmpq = std::string(recipe.method) == "fmpq";
    EXPECT_EQ(message_of(recipe.method, changes) == "no error", !is_fmpq) << recipe.method;
  }
}

TEST(LayerOverrideTest, Parses) {
  const LayerOverride change = parse_layer_override("*.o_proj=bits=8,group=-1,sym");
  EXPECT_TRUE(change.pattern.matches("model.layers.0.self_attn.o_proj"));
  EXPECT_EQ(change.bits, 8);
  EXPECT_EQ(change.group_size, 0);
  EXPECT_EQ(change.is_symmetric, true);
  EXPECT_TRUE(parse_layer_override("a=none").is_dense);
  for (const char* text :
       {"a", "=none", "a=", "a=bits=x", "a=bits=", "a=none,bits=4", "a=group=1e9"}) {
    EXPECT_THROW(parse_layer_override(text), InputError) << text;
  }
}

}  // namespace
}  // namespace halley
