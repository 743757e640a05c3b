// Models that are rejected at load, and the texts of the errors.
#include <algorithm>
#include <functional>
#include <map>

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

Json config_json(const std::string& family) {
  return read_test_json(testdata("models/" + family + "/config.json"));
}

HfConfig parse(const Json& json) { return HfConfig::parse(json.dump(), "config.json"); }

/// The family's configuration with one field changed (null: absent).
DecoderConfig read_with(const std::string& family, const std::string& field, const Json& value) {
  Json json = config_json(family);
  json[field] = value;
  return read_decoder_config(parse(json));
}

std::unique_ptr<CausalLm> load(const Json& config, const TensorSource& source) {
  static ThreadPool pool(1);
  static ExecContext context{pool};
  return load_model(context, parse(config), source, {}).model;
}

EditableSource weights_of(const std::string& family) {
  return EditableSource(*open_checkpoint_weights(testdata("models/" + family)));
}

TEST(LoadErrors, UnknownFamilyIsRejectedByNameWithThoseThatAreKnown) {
  EXPECT_THAT([] { read_with("llama", "model_type", "gemma3n"); },
              ThrowsMessage<UnsupportedError>(
                  StartsWith("config.json: field 'model_type': expected one of llama, mistral, "
                             "smollm3, qwen2, qwen3, qwen3_moe, mixtral, gemma2, gemma3_text, "
                             "phi3, opt, olmo2, olmo3, olmoe, granite, granitemoe, glm, glm4, "
                             "gemma3, mistral3, qwen2_vl, qwen2_5_vl, qwen3_vl, "
                             "got \"gemma3n\".")));
}

struct RejectedOption {
  std::string family, field;
  Json value;
  std::string text;
};

TEST(LoadErrors, UnsupportedOptionsAreRejectedByName) {
  const std::vector<RejectedOption> options = {
      {"llama", "hidden_act", "laplace", "'hidden_act': expected one of silu, swish"},
      {"llama",
       "rope_parameters",
       {{"rope_type", "spiral"}, {"rope_theta", 1e4}},
       "rope_type: expected one of default, linear, dynamic, yarn, longrope, llama3, got "
       "\"spiral\""},
      {"llama", "dtype", "float8", "field 'dtype': expected float16, bfloat16 or float32"},
      {"phi3",
       "rope_parameters",
       {{"rope_type", "linear"}, {"factor", 2.0}},
       "expected type default or longrope, got \"linear\""},
      {"opt", "do_layer_norm_before", false, "'do_layer_norm_before': expected true, got false"},
      {"opt", "word_embed_proj_dim", 64, "'word_embed_proj_dim': expected hidden_size 128, got 64"},
      {"opt", "_remove_final_layer_norm", true, "'_remove_final_layer_norm': expected false"},
      {"opt", "layer_norm_elementwise_affine", false, "expected true, got false"},
      {"gemma2", "use_bidirectional_attention", true, "expected false, got true"},
      {"qwen2",
       "layer_types",
       {"full_attention", "chunked_attention"},
       "expected sliding_attention or full_attention, got \"chunked_attention\""},
      {"olmoe", "clip_qkv", 8.0, "'clip_qkv': expected null, got 8"},
      {"glm4", "hidden_act", "laplace", "'hidden_act': expected one of silu, swish"},
      {"mistral",
       "layer_types",
       {"full_attention", "sliding_attention"},
       "expected the same type for all layers, got sliding_attention without sliding_window"},
  };
  for (const RejectedOption& option : options) {
    EXPECT_THAT(
        [&] { read_with(option.family, option.field, option.value); },
        ThrowsMessage<UnsupportedError>(AllOf(StartsWith("config.json: "), HasSubstr(option.text))))
        << option.family << " " << option.field;
  }
}

TEST(LoadErrors, WrongFieldsAreRejectedByName) {
  const std::vector<RejectedOption> options = {
      {"llama", "hidden_size", 0, "field 'hidden_size'"},
      {"llama", "hidden_size", nullptr, "field 'hidden_size'"},
      {"llama", "num_hidden_layers", 100000, "field 'num_hidden_layers'"},
      {"llama", "num_key_value_heads", 3,
       "'num_key_value_heads': expected a divisor of num_attention_heads 4, got 3"},
      {"llama", "rms_norm_eps", -1.0, "'rms_norm_eps': expected a number >= 0, got -1"},
      {"phi3", "num_attention_heads", 6, "expected a divisor of hidden_size 128, got 6"},
      {"llama", "head_dim", 31, "expected an even number of rotary columns, 2 to head_dim 31"},
      {"llama",
       "rope_parameters",
       {{"rope_type", "linear"}, {"rope_theta", 1e4}},
       "rotary field 'factor': expected a number for type linear, got none"},
      {"qwen2", "layer_types", {"full_attention"}, "expected one entry for each of the 2 layers"},
      {"qwen2",
       "layer_types",
       {"full_attention", "sliding_attention"},
       "'layer_types': expected full_attention while use_sliding_window is false"},
      {"gemma2", "sliding_window", nullptr, "'sliding_window': expected a number"},
      {"gemma2", "query_pre_attn_scalar", 0, "'query_pre_attn_scalar': expected a positive"},
      {"gemma2", "attn_logit_softcapping", -1, "'attn_logit_softcapping': expected a positive"},
      {"mixtral", "num_experts_per_tok", 5, "field 'num_experts_per_tok'"},
      {"granitemoe", "num_experts_per_tok", 5, "field 'num_experts_per_tok'"},
      {"granite", "residual_multiplier", 0, "expected a positive number, got 0"},
      {"granite", "residual_multiplier", 1e-30,
       "'residual_multiplier': expected a number of 1e-06 to 1e+06, got 1e-30"},
      {"granite", "embedding_multiplier", -1, "expected a positive number, got -1"},
      {"granite", "attention_multiplier", "x", "field 'attention_multiplier': expected a number"},
      {"granite", "logits_scaling", 0, "'logits_scaling': expected a positive number, got 0"},
      {"olmo3", "sliding_window", nullptr, "'sliding_window': expected a number"},
      {"olmo3",
       "rope_parameters",
       {{"sliding_attention", Json::object()}},
       "'rope_parameters': expected an entry for layer type \"full_attention\""},
      {"smollm3", "no_rope_layers", {1, 0}, "expected an entry for each of the 4 layers, got 2"},
      {"smollm3", "no_rope_layers", {1, 0, 2, 1}, "element 2: expected 0 or 1, got 2"},
      {"smollm3", "no_rope_layer_interval", 0, "field 'no_rope_layer_interval'"},
      {"smollm3",
       "layer_types",
       {"full_attention", "full_attention", "full_attention", "sliding_attention"},
       "'layer_types': expected full_attention while use_sliding_window is false"},
      {"glm4",
       "rope_parameters",
       {{"rope_type", "default"}, {"partial_rotary_factor", 0.3}},
       "expected an even number of rotary columns"},
      {"phi3",
       "rope_parameters",
       {{"rope_type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}},
       "rotary field 'short_factor': expected 16 numbers (half the rotary columns), got 1"},
  };
  for (const RejectedOption& option : options) {
    EXPECT_THAT(
        [&] { read_with(option.family, option.field, option.value); },
        ThrowsMessage<InputError>(AllOf(StartsWith("config.json: "), HasSubstr(option.text))))
        << option.family << " " << option.field;
  }
}

TEST(LoadErrors, ManyExpertsInManyLayersAreRejected) {
  Json json = config_json("qwen3_moe");
  json["num_hidden_layers"] = 1000;
  json["num_local_experts"] = 1000;
  EXPECT_THAT(
      [&] { read_decoder_config(parse(json)); },
      ThrowsMessage<InputError>(HasSubstr("expected at most 100000 experts in all layers")));
}

TEST(LoadErrors, MissingTensorIsNamed) {
  EditableSource source = weights_of("llama");
  source.remove("model.layers.1.self_attn.k_proj.weight");
  EXPECT_THAT([&] { load(config_json("llama"), source); },
              ThrowsMessage<CheckpointError>(
                  StartsWith("edited: tensor \"model.layers.1.self_attn.k_proj.weight\": expected "
                             "a tensor of shape [64, 128], got none.")));
}

TEST(LoadErrors, TensorThatTheModelDoesNotUseIsNamed) {
  EditableSource source = weights_of("llama");
  source.set({.name = "model.layers.0.self_attn.q_proj.bias", .dtype = DType::kF16, .shape = {128}},
             std::vector<std::byte>(256));
  EXPECT_THAT([&] { load(config_json("llama"), source); },
              ThrowsMessage<CheckpointError>(
                  AllOf(StartsWith("edited: expected only tensors that the model \"llama\""),
                        HasSubstr("got 1 more, such as "
                                  "[\"model.layers.0.self_attn.q_proj.bias\"]"))));
}

TEST(LoadErrors, ComputedFrequenciesOfOldCheckpointsAreIgnored) {
  EditableSource source = weights_of("llama");
  source.set(
      {.name = "model.layers.0.self_attn.rotary_emb.inv_freq", .dtype = DType::kF32, .shape = {16}},
      std::vector<std::byte>(64));
  EXPECT_NE(load(config_json("llama"), source), nullptr);
}

TEST(LoadErrors, WrongShapeIsNamedWithBothShapes) {
  EditableSource source = weights_of("llama");
  source.set({.name = "model.norm.weight", .dtype = DType::kF16, .shape = {127}},
             std::vector<std::byte>(254));
  EXPECT_THAT([&] { load(config_json("llama"), source); },
              ThrowsMessage<CheckpointError>(StartsWith(
                  "edited: tensor \"model.norm.weight\": expected shape [128], got [127].")));
}

TEST(LoadErrors, WrongTypeIsNamed) {
  EditableSource source = weights_of("llama");
  source.set(
      {.name = "model.layers.0.mlp.down_proj.weight", .dtype = DType::kI8, .shape = {128, 256}},
      std::vector<std::byte>(128 * 256));
  EXPECT_THAT([&] { load(config_json("llama"), source); },
              ThrowsMessage<CheckpointError>(
                  StartsWith("edited: tensor \"model.layers.0.mlp.down_proj.weight\": expected "
                             "type f16, bf16 or f32, got i8.")));
}

TEST(LoadErrors, PartsOfOneGemmMayDifferInType) {
  EditableSource source = weights_of("llama");
  source.set(
      {.name = "model.layers.0.mlp.up_proj.weight", .dtype = DType::kBf16, .shape = {256, 128}},
      source.data("model.layers.0.mlp.up_proj.weight"));
  const ModelPlan plan = plan_model(parse(config_json("llama")), source);
  const auto is_gate_up = [](const ModelPart& part) { return part.name == "layers.0.gate_up"; };
  const auto part = std::find_if(plan.parts.begin(), plan.parts.end(), is_gate_up);
  ASSERT_EQ(part->plans.size(), size_t{2});
  EXPECT_EQ(part->plans[0].name, "model.layers.0.mlp.gate_proj");
  EXPECT_EQ(part->plans[1].weight.stored_dtype, DType::kBf16);
  EXPECT_NE(load(config_json("llama"), source), nullptr);
}

TEST(LoadErrors, SecondCopyOfATiedEmbeddingMustBeEqual) {
  EditableSource source = weights_of("llama_mha_tied");
  std::vector<std::byte> copy = source.data("model.embed_tokens.weight");
  const TensorInfo info = {.name = "lm_head.weight", .dtype = DType::kF16, .shape = {384, 128}};
  source.set(info, copy);
  EXPECT_NE(load(config_json("llama_mha_tied"), source), nullptr);
  copy[100] ^= std::byte{1};
  source.set(info, copy);
  EXPECT_THAT([&] { load(config_json("llama_mha_tied"), source); },
              ThrowsMessage<CheckpointError>(
                  StartsWith("edited: tensor \"lm_head.weight\": expected none or a copy of "
                             "\"model.embed_tokens.weight\", since tie_word_embeddings is true")));
}

TEST(LoadErrors, LongestSequenceIsWithinTheModel) {
  const EditableSource source = weights_of("llama");
  EXPECT_THAT([&] { read_decoder_config(parse(config_json("llama")), source, 513); },
              ThrowsMessage<InputError>(StartsWith("config.json: longest sequence: expected at "
                                                   "most 512 (max_position_embeddings), got 513")));
  EXPECT_EQ(read_decoder_config(parse(config_json("llama")), source, 100).max_positions, 100);
  const EditableSource opt = weights_of("opt");
  EXPECT_THAT([&] { read_decoder_config(parse(config_json("opt")), opt, 513); },
              ThrowsMessage<InputError>(HasSubstr("expected at most 512")));
}

}  // namespace
}  // namespace halley
