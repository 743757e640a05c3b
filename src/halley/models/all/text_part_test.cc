// Text models inside of checkpoints with more parts: layouts of names, declarations, what is left
// out.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

const std::vector<int32_t> kTokens = {5, 17, 300, 4, 99, 23};

Json config_json(const std::string& family) {
  return read_test_json(testdata("models/" + family + "/config.json"));
}

HfConfig parse(const Json& json) { return HfConfig::parse(json.dump(), "config.json"); }

EditableSource weights_of(const std::string& family) {
  return EditableSource(*open_checkpoint_weights(testdata("models/" + family)));
}

std::vector<float> logits_of(const Json& json, const TensorSource& source) {
  ThreadPool pool(1);
  ExecContext context{pool};
  const auto model = load_model(context, parse(json), source, {}).model;
  const TestCache cache(model->shape(), KvDType::kF32, 1, 32);
  return forward_all_rows(*model, cache, {{.sequence = 0, .ids = kTokens}});
}

/// The checkpoint with other names of tensors.
EditableSource renamed(const EditableSource& source,
                       const std::function<std::string(const std::string&)>& rename) {
  EditableSource other(source);
  for (const TensorInfo& info : source.tensors()) other.remove(info.name);
  for (const TensorInfo& info : source.tensors()) {
    TensorInfo copy = info;
    copy.name = rename(info.name);
    other.set(std::move(copy), source.data(info.name));
  }
  return other;
}

std::string replaced(const std::string& name, const std::string& from, const std::string& to) {
  return name.starts_with(from) ? to + name.substr(from.size()) : name;
}

/// Names as modules of transformers have them, which some tools save.
std::string gemma3_module_name(const std::string& name) {
  if (name.starts_with("language_model.lm_head")) return name.substr(15);
  if (!name.starts_with("language_model.")) return "model." + name;
  return replaced(name, "language_model.model.", "model.language_model.");
}

std::string qwen_module_name(const std::string& name) {
  if (name.starts_with("visual.")) return "model." + name;
  return replaced(name, "model.", "model.language_model.");
}

TEST(TextPart, EveryLayoutOfNamesIsTheSameModel) {
  const EditableSource gemma3 = weights_of("gemma3"), qwen = weights_of("qwen2_5_vl");
  const EditableSource gemma3_modules = renamed(gemma3, gemma3_module_name);
  const EditableSource qwen_modules = renamed(qwen, qwen_module_name);
  ASSERT_NE(gemma3_modules.find("model.language_model.norm.weight"), nullptr);
  ASSERT_NE(qwen_modules.find("model.language_model.norm.weight"), nullptr);
  EXPECT_EQ(logits_of(config_json("gemma3"), gemma3_modules),
            logits_of(config_json("gemma3"), gemma3));
  EXPECT_EQ(logits_of(config_json("qwen2_5_vl"), qwen_modules),
            logits_of(config_json("qwen2_5_vl"), qwen));
}

/// As Qwen/Qwen2.5-VL-7B-Instruct declares it: no text_config, the older rotary fields.
TEST(TextPart, FieldsMayStandInTheFileItself) {
  const Json nested = config_json("qwen2_5_vl");
  Json flat = nested;
  flat.erase("text_config");
  for (const auto& [name, value] : nested.at("text_config").items()) {
    if (name != "rope_parameters" && name != "model_type" && name != "dtype") flat[name] = value;
  }
  flat["rope_theta"] = 1e6;
  flat["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {4, 6, 6}}};
  const EditableSource source = weights_of("qwen2_5_vl");
  EXPECT_EQ(logits_of(flat, source), logits_of(nested, source));
}

/// As google/gemma-3-4b-it declares it: what is not there has the values of transformers.
TEST(TextPart, GemmasFieldsHaveDefaults) {
  const Json json = {{"model_type", "gemma3"},
                     {"torch_dtype", "bfloat16"},
                     {"text_config",
                      {{"hidden_size", 2560},
                       {"intermediate_size", 10240},
                       {"model_type", "gemma3_text"},
                       {"num_hidden_layers", 34},
                       {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                       {"sliding_window", 1024}}}};
  const DecoderConfig decoder = read_decoder_config(parse(json));
  EXPECT_EQ(decoder.family, "gemma3");
  EXPECT_EQ(decoder.dtype, DType::kBf16);
  EXPECT_EQ(decoder.num_heads, 8);
  EXPECT_EQ(decoder.num_kv_heads, 4);
  EXPECT_EQ(decoder.head_dim, 256);
  EXPECT_EQ(decoder.vocab_size, 262208);
  EXPECT_EQ(decoder.max_positions, 131072);
  EXPECT_EQ(decoder.layers[4].window, 1024);
  EXPECT_EQ(decoder.layers[5].window, 0);
  EXPECT_EQ(decoder.embedding_name, "language_model.model.embed_tokens.weight");
  EXPECT_FALSE(decoder.lm_head);
}

TEST(TextPart, TensorsOfOtherPartsAreNamedInANote) {
  const EditableSource source = weights_of("qwen2_5_vl");
  const ModelPlan plan = plan_model(parse(config_json("qwen2_5_vl")), source);
  EXPECT_THAT(plan.warnings,
              testing::ElementsAre(AllOf(
                  StartsWith("the text model of \"qwen2_5_vl\" alone is loaded: 18 tensors of "
                             "other parts"),
                  HasSubstr("visual.*"))));
  EditableSource more = source;
  more.set({.name = "audio.proj.weight", .dtype = DType::kF16, .shape = {4}},
           std::vector<std::byte>(8));
  EXPECT_THAT([&] { plan_model(parse(config_json("qwen2_5_vl")), more); },
              ThrowsMessage<CheckpointError>(HasSubstr("such as [\"audio.proj.weight\"]")));
}

/// transformers 5 writes tie_word_embeddings outside, older versions inside, and mistral3 has had
/// different defaults for the two.
TEST(TextPart, TheCheckpointDecidesWhereDeclarationsOfATieDiffer) {
  EditableSource source = weights_of("qwen2_5_vl");
  const auto is_tied = [&](const Json& outer, const Json& inner) {
    Json json = config_json("qwen2_5_vl");
    json["tie_word_embeddings"] = outer;
    json["text_config"]["tie_word_embeddings"] = inner;
    return !read_decoder_config(parse(json), source, 0).lm_head;
  };
  EXPECT_TRUE(is_tied(true, nullptr));
  EXPECT_TRUE(is_tied(nullptr, true));
  EXPECT_FALSE(is_tied(false, nullptr));
  EXPECT_FALSE(is_tied(nullptr, false));
  for (const bool outer : {false, true}) EXPECT_TRUE(is_tied(outer, !outer));
  EXPECT_TRUE(is_tied(nullptr, nullptr));
  source.set({.name = "lm_head.weight", .dtype = DType::kF16, .shape = {384, 128}},
             std::vector<std::byte>(size_t{2} * 384 * 128));
  for (const bool outer : {false, true}) EXPECT_FALSE(is_tied(outer, !outer));
  EXPECT_FALSE(is_tied(nullptr, nullptr));
}

TEST(TextPart, WrongFieldsAreNamedWithTheirObject) {
  const auto read_with = [](const std::string& family, const std::string& field,
                            const Json& value) {
    Json json = config_json(family);
    json["text_config"][field] = value;
    return read_decoder_config(parse(json));
  };
  EXPECT_THAT([&] { read_with("gemma3", "hidden_size", 0); },
              ThrowsMessage<InputError>(
                  StartsWith("config.json: field 'text_config.hidden_size': expected")));
  EXPECT_THAT([&] { read_with("gemma3", "use_bidirectional_attention", true); },
              ThrowsMessage<UnsupportedError>(StartsWith(
                  "config.json: field 'text_config.use_bidirectional_attention': expected false")));
  EXPECT_THAT(
      [&] {
        read_with("qwen2_5_vl", "rope_parameters",
                  {{"rope_type", "yarn"}, {"factor", 4.0}, {"mrope_section", {4, 6, 6}}});
      },
      ThrowsMessage<UnsupportedError>(HasSubstr("expected type default or mrope")));
  for (const char* family : {"gemma3", "mistral3", "qwen3_vl"}) {
    EXPECT_THAT(
        [&] {
          read_decoder_config(parse({{"model_type", family}}));
        },
        ThrowsMessage<InputError>(
            StartsWith("config.json: field 'text_config': expected an object")));
  }
  EXPECT_THAT(
      [&] {
        read_decoder_config(
            parse({{"model_type", "mistral3"}, {"text_config", {{"model_type", "ministral3"}}}}));
      },
      ThrowsMessage<UnsupportedError>(
          StartsWith("config.json: field 'text_config.model_type': expected \"mistral\", got "
                     "\"ministral3\"")));
}

}  // namespace
}  // namespace halley
