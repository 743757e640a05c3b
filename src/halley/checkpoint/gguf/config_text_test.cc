// The configuration that metadata give, over headers made in memory.
#include "halley/checkpoint/gguf/config_text.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/gguf/architecture.h"
#include "halley/checkpoint/gguf/testing/metadata_in_memory.h"
#include "halley/json/json.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A header of one layer with changeable metadata and tensors; its bytes live as long as it.
class Header {
 public:
  explicit Header(const std::string& architecture) : prefix_(architecture + ".") {
    set_string("general.architecture", architecture);
    for (const char* name : {"block_count", "context_length", "embedding_length",
                             "feed_forward_length", "attention.head_count"}) {
      set(prefix_ + name, 4);
    }
    set_number(prefix_ + "attention.layer_norm_rms_epsilon", 0.5f);
    add_tensor("token_embd.weight", GgmlType::kF16, {8, 4});
  }

  void set(const std::string& key, int64_t value) { metadata_.integer(key, value); }
  void set_number(const std::string& key, float value) { metadata_.number(key, value); }
  void set_string(const std::string& key, const std::string& text) { metadata_.string(key, text); }
  MetadataInMemory& metadata() { return metadata_; }
  void add_tensor(const std::string& name, GgmlType type, Shape shape) {
    tensors_.push_back({.name = name,
                        .type = find_ggml_type(static_cast<uint32_t>(type)),
                        .shape = std::move(shape)});
  }
  /// F32 values, in the file's bytes.
  void add_values(const std::string& name, const std::vector<float>& values) {
    add_tensor(name, GgmlType::kF32, {static_cast<int64_t>(values.size())});
    tensors_.back().begin = file_.size();
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    file_.insert(file_.end(), begin, begin + values.size() * sizeof(float));
  }

  std::string key(const char* name) const { return prefix_ + name; }
  GgufHeader get() const {
    GgufHeader header{.metadata = metadata_.get(), .tensors = tensors_};
    std::sort(header.tensors.begin(), header.tensors.end(),
              [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
    for (GgufTensor& tensor : header.tensors) tensor.data = file_.data() + tensor.begin;
    return header;
  }
  Json config() const { return parse_json(make_config_text(get()), "config.json"); }

 private:
  std::string prefix_;
  MetadataInMemory metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::byte> file_;
};

TEST(GgufConfig, GivesSizesAndTheTypeOfMostMatrices) {
  Header header("llama");
  header.add_tensor("output.weight", GgmlType::kF16, {8, 4});
  const Json config = header.config();
  EXPECT_EQ(config.at("model_type"), "llama");
  EXPECT_EQ(config.at("vocab_size"), 8);
  EXPECT_EQ(config.at("num_key_value_heads"), 4);
  EXPECT_EQ(config.at("head_dim"), 1);
  EXPECT_EQ(config.at("rms_norm_eps"), 0.5);
  EXPECT_EQ(config.at("rope_theta"), 10000.0);
  EXPECT_EQ(config.at("tie_word_embeddings"), false);
  EXPECT_EQ(config.at("dtype"), "float16");
  EXPECT_FALSE(config.contains("quantization_config"));
}

TEST(GgufConfig, DeclaresQuantizedTensors) {
  Header llama("llama"), gemma("gemma2");
  for (Header* header : {&llama, &gemma}) {
    header->add_tensor("blk.0.ffn_up.weight", GgmlType::kQ4K, {4, 256});
    EXPECT_EQ(header->config().at("quantization_config").at("quant_method"), "gguf");
    EXPECT_EQ(header->config().at("tie_word_embeddings"), true);
  }
  EXPECT_EQ(llama.config().at("dtype"), "float16");
  EXPECT_EQ(gemma.config().at("dtype"), "bfloat16");
}

TEST(GgufConfig, ALlamaWithAWindowIsAMistral) {
  Header header("llama");
  header.set(header.key("attention.sliding_window"), 16);
  EXPECT_EQ(header.config().at("model_type"), "mistral");
  EXPECT_EQ(header.config().at("sliding_window"), 16);
}

TEST(GgufConfig, ScalesRotaryEmbeddings) {
  Header linear("qwen2");
  linear.set_string("qwen2.rope.scaling.type", "linear");
  linear.set_number("qwen2.rope.scaling.factor", 8);
  EXPECT_EQ(linear.config().at("rope_scaling"), (Json{{"rope_type", "linear"}, {"factor", 8.0}}));
  Header yarn("qwen2");
  yarn.set_string("qwen2.rope.scaling.type", "yarn");
  yarn.set_number("qwen2.rope.scaling.factor", 4);
  yarn.set("qwen2.rope.scaling.original_context_length", 2);
  EXPECT_EQ(
      yarn.config().at("rope_scaling"),
      (Json{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2}}));
  Header old("llama");
  old.set_number("llama.rope.scale_linear", 2);
  EXPECT_EQ(old.config().at("rope_scaling").at("factor"), 2.0);
  Header none("llama");
  none.set_string("llama.rope.scaling.type", "none");
  EXPECT_FALSE(none.config().contains("rope_scaling"));
}

TEST(GgufConfig, ReadsFactorsOfRotaryFrequenciesFromTensors) {
  Header llama("llama");
  llama.set("llama.attention.key_length", 4);
  llama.set("llama.attention.value_length", 4);
  llama.add_values("rope_freqs.weight", {1, 8});
  const Json scaling = llama.config().at("rope_scaling");
  EXPECT_EQ(scaling.at("rope_type"), "longrope");
  EXPECT_EQ(scaling.at("attention_factor"), 1.0);
  EXPECT_EQ(scaling.at("short_factor"), (Json{1.0, 8.0}));
  EXPECT_EQ(scaling.at("long_factor"), (Json{1.0, 8.0}));

  Header phi("phi3");
  phi.set("phi3.attention.key_length", 4);
  phi.set("phi3.attention.value_length", 4);
  phi.set("phi3.rope.dimension_count", 2);
  phi.set("phi3.rope.scaling.original_context_length", 3);
  phi.set_number("phi3.rope.scaling.attn_factor", 1.25);
  phi.add_values("rope_factors_short.weight", {2});
  phi.add_values("rope_factors_long.weight", {3});
  const Json config = phi.config();
  EXPECT_EQ(config.at("partial_rotary_factor"), 0.5);
  EXPECT_EQ(config.at("rope_scaling").at("short_factor"), (Json{2.0}));
  EXPECT_EQ(config.at("rope_scaling").at("long_factor"), (Json{3.0}));
  EXPECT_EQ(config.at("rope_scaling").at("attention_factor"), 1.25);
  EXPECT_EQ(config.at("rope_scaling").at("original_max_position_embeddings"), 3);
}

TEST(GgufConfig, GemmaHasItsScaleCapsAndWindows) {
  Header header("gemma3");
  header.set("gemma3.attention.key_length", 4);
  header.set("gemma3.attention.value_length", 4);
  header.set("gemma3.attention.sliding_window", 16);
  header.metadata().values<uint8_t>("gemma3.attention.sliding_window_pattern", GgufValueType::kBool,
                                    {1, 0, 1, 0});
  Json config = header.config();
  EXPECT_EQ(config.at("query_pre_attn_scalar"), 4.0);
  EXPECT_EQ(config.at("rope_theta"), 1e6);
  EXPECT_EQ(config.at("rope_local_base_freq"), 10000.0);
  EXPECT_TRUE(config.at("attn_logit_softcapping").is_null());
  EXPECT_EQ(config.at("layer_types")[0], "sliding_attention");
  EXPECT_EQ(config.at("layer_types")[1], "full_attention");
  header.set("gemma3.attention.sliding_window_pattern", 3);
  EXPECT_EQ(header.config().at("sliding_window_pattern"), 3);

  Header large("gemma2");
  large.set("gemma2.block_count", 46);
  large.set("gemma2.embedding_length", 32);
  large.set_number("gemma2.attn_logit_softcapping", 50);
  EXPECT_EQ(large.config().at("query_pre_attn_scalar"), 8.0);
  EXPECT_EQ(large.config().at("attn_logit_softcapping"), 50.0);
}

TEST(GgufConfig, GranitesFactorsHaveOtherNames) {
  Header header("granite");
  header.set_number("granite.attention.scale", 0.25f);
  header.set_number("granite.logit_scale", 8);
  header.set_number("granite.residual_scale", 0.5f);
  const Json config = header.config();
  EXPECT_EQ(config.at("attention_multiplier"), 0.25);
  EXPECT_EQ(config.at("logits_scaling"), 8.0);
  EXPECT_EQ(config.at("residual_multiplier"), 0.5);
  EXPECT_FALSE(config.contains("embedding_multiplier"));
}

TEST(GgufConfig, Olmo2WithAWindowIsOlmo3) {
  EXPECT_EQ(Header("olmo2").config().at("model_type"), "olmo2");
  Header header("olmo2");
  header.set("olmo2.attention.sliding_window", 16);
  header.metadata().values<uint8_t>("olmo2.attention.sliding_window_pattern", GgufValueType::kBool,
                                    {1, 1, 1, 0});
  const Json config = header.config();
  EXPECT_EQ(config.at("model_type"), "olmo3");
  EXPECT_EQ(config.at("layer_types")[2], "sliding_attention");
  EXPECT_EQ(config.at("layer_types")[3], "full_attention");
}

TEST(GgufConfig, GlmAlwaysSaysHowMuchOfAHeadTurns) {
  Header header("glm4");
  EXPECT_EQ(header.config().at("partial_rotary_factor"), 1.0);
  header.set("glm4.embedding_length", 16);
  header.set("glm4.rope.dimension_count", 2);
  EXPECT_EQ(header.config().at("partial_rotary_factor"), 0.5);
}

TEST(GgufConfig, ExpertsComeFromTheMetadata) {
  Header header("qwen3moe");
  header.set("qwen3moe.expert_count", 8);
  header.set("qwen3moe.expert_used_count", 2);
  header.set("qwen3moe.expert_feed_forward_length", 3);
  header.add_tensor("blk.1.ffn_gate_inp.weight", GgmlType::kF32, {8, 4});
  const Json config = header.config();
  EXPECT_EQ(config.at("num_experts"), 8);
  EXPECT_EQ(config.at("moe_intermediate_size"), 3);
  EXPECT_EQ(config.at("mlp_only_layers"), (Json{0, 2, 3}));
}

TEST(GgufConfig, NamesTheIdsThatEndAnAnswer) {
  Header header("llama");
  header.set("tokenizer.ggml.eos_token_id", 2);
  header.set("tokenizer.ggml.eot_token_id", 5);
  EXPECT_EQ(make_generation_config_text(header.get().metadata), R"({"eos_token_id":[2,5]})");
  EXPECT_EQ(make_generation_config_text(GgufMetadata("f.gguf")), "{}");
}

// ---- what is rejected ---------------------------------------------------------------------------

template <typename Exception>
void expect_rejected(const Header& header, const char* message) {
  EXPECT_THAT([&] { header.config(); },
              ThrowsMessage<Exception>(AllOf(HasSubstr("f.gguf: "), HasSubstr(message))));
}

TEST(GgufConfig, RejectsArchitecturesThatAreNotRead) {
  expect_rejected<UnsupportedError>(Header("mamba"),
                                    "metadata \"general.architecture\": expected one of llama, "
                                    "qwen2, qwen3, qwen3moe, gemma2, gemma3, phi3, smollm3, olmo2, "
                                    "granite, glm4, qwen2vl, got \"mamba\"");
  Header nothing("llama");
  nothing.metadata().remove("general.architecture");
  expect_rejected<InputError>(nothing, "expected a name, got nothing");
}

TEST(GgufConfig, RejectsFilesWithoutWhatTheFamilyNeeds) {
  expect_rejected<InputError>(Header("granite"),
                              "\"granite.attention.scale\": expected a number, got nothing");
  Header olmo("olmo2");
  olmo.set("olmo2.attention.sliding_window", 16);
  expect_rejected<InputError>(olmo,
                              "\"olmo2.attention.sliding_window_pattern\": expected one "
                              "entry for each block, got nothing");
}

TEST(GgufConfig, RejectsVariantsThatAreNotRead) {
  Header experts("llama");
  experts.set("llama.expert_count", 8);
  expect_rejected<UnsupportedError>(experts, "expected none for llama, got 8");
  Header blocks("llama");
  blocks.metadata().values<int64_t>("llama.feed_forward_length", GgufValueType::kI64, {4, 4, 8, 4});
  expect_rejected<UnsupportedError>(blocks, "expected the same for all blocks, got 4 and 8");
  Header heads("llama");
  heads.set("llama.attention.value_length", 2);
  expect_rejected<UnsupportedError>(heads, "expected 1 as for keys, got 2");
  Header partial("llama");
  partial.set("llama.rope.dimension_count", 2);
  expect_rejected<UnsupportedError>(partial, "expected 1, the size of a head, got 2");
  Header scaling("llama");
  scaling.set_string("llama.rope.scaling.type", "other");
  expect_rejected<UnsupportedError>(scaling, "tensors of factors, got \"other\"");
  Header window("qwen2");
  window.set("qwen2.attention.sliding_window", 16);
  expect_rejected<UnsupportedError>(window, "expected none for qwen2, got 16");
}

TEST(GgufConfig, RejectsMetadataThatAreMissingOrWrong) {
  for (const char* name : {"block_count", "context_length", "embedding_length",
                           "feed_forward_length", "attention.head_count"}) {
    Header header("llama");
    header.metadata().remove(header.key(name));
    expect_rejected<InputError>(header, "expected an integer, got nothing");
  }
  Header epsilon("llama");
  epsilon.metadata().remove("llama.attention.layer_norm_rms_epsilon");
  expect_rejected<InputError>(epsilon, "expected a number, got nothing");
  Header zero("llama");
  zero.set("llama.embedding_length", 0);
  expect_rejected<InputError>(zero, "expected an integer in [1, 2147483647], got 0");
  Header heads("llama");
  heads.set("llama.attention.head_count", 3);
  expect_rejected<InputError>(heads, "expected the size of a head");
}

TEST(GgufConfig, RejectsTensorsThatContradictTheMetadata) {
  Header table("llama");
  GgufHeader header = table.get();
  header.tensors.clear();
  EXPECT_THAT([&] { make_config_text(header); },
              ThrowsMessage<CheckpointError>(HasSubstr("tensor \"token_embd.weight\": expected")));
  Header factors("llama");
  factors.set("llama.attention.key_length", 4);
  factors.set("llama.attention.value_length", 4);
  factors.add_values("rope_freqs.weight", {1, 2, 3});
  expect_rejected<CheckpointError>(factors, "expected 2 values of type F32, got F32 [3]");
  Header infinite("llama");
  infinite.set("llama.attention.key_length", 4);
  infinite.set("llama.attention.value_length", 4);
  infinite.add_values("rope_freqs.weight", {1, std::numeric_limits<float>::infinity()});
  expect_rejected<CheckpointError>(infinite, "expected finite values, got inf at 1");
}

// ---- names of tensors ---------------------------------------------------------------------------

std::vector<std::string> names_of(const Header& header) {
  const GgufHeader own = header.get();
  std::vector<std::string> names;
  for (const GgufNamedTensor& named : name_gguf_tensors(own)) names.push_back(named.name);
  return names;
}

TEST(GgufNames, AreThoseOfHuggingFace) {
  Header header("llama");
  header.add_tensor("blk.3.attn_q.weight", GgmlType::kQ4K, {8, 256});
  header.add_tensor("blk.3.ffn_norm.weight", GgmlType::kF32, {4});
  header.add_tensor("rope_freqs.weight", GgmlType::kF32, {4});
  EXPECT_THAT(names_of(header), ElementsAre("model.layers.3.self_attn.q_proj.weight.q4_k",
                                            "model.layers.3.post_attention_layernorm.weight",
                                            "model.embed_tokens.weight"));
}

TEST(GgufNames, OfTensorsThatAreNotKnownStay) {
  Header header("llama");
  for (const char* name : {"blk.0.ssm_in.weight", "blk.00.attn_q.weight", "blk.x.attn_q.weight",
                           "blk.0", "other.weight", "output.scale"}) {
    header.add_tensor(name, GgmlType::kF32, {4});
  }
  EXPECT_THAT(names_of(header), ElementsAre("blk.0", "blk.0.ssm_in.weight", "blk.00.attn_q.weight",
                                            "blk.x.attn_q.weight", "other.weight", "output.scale",
                                            "model.embed_tokens.weight"));
}

TEST(GgufNames, StacksOfExpertsBecomeATensorEach) {
  Header header("qwen3moe");
  header.add_tensor("blk.0.ffn_up_exps.weight", GgmlType::kQ8_0, {2, 3, 32});
  EXPECT_THAT(names_of(header), ElementsAre("model.layers.0.mlp.experts.0.up_proj.weight.q8_0",
                                            "model.layers.0.mlp.experts.1.up_proj.weight.q8_0",
                                            "model.embed_tokens.weight"));
}

TEST(GgufNames, AreLimited) {
  Header header("qwen3moe");
  for (int i = 0; i < 200; ++i) {
    const std::string name = "blk." + std::to_string(i) + ".ffn_up_exps.weight";
    header.add_tensor(name, GgmlType::kF32, {1024, 1, 1});
  }
  EXPECT_THAT([&] { names_of(header); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("expected at most 200000 tensors and experts in the file")));
}

TEST(GgufNames, RejectShapesThatTheMetadataContradict) {
  const auto expect = [](const Header& header, const char* message) {
    EXPECT_THAT([&] { names_of(header); }, ThrowsMessage<CheckpointError>(HasSubstr(message)));
  };
  Header odd("llama");
  odd.add_tensor("blk.0.attn_q.weight", GgmlType::kF32, {12, 4});
  expect(odd,
         "tensor \"blk.0.attn_q.weight\": expected an even number of rows for each of 4 heads");
  Header flat("llama");
  flat.add_tensor("blk.0.attn_k.weight", GgmlType::kF32, {8});
  expect(flat, "expected an even number of rows");
  Header experts("qwen3moe");
  experts.add_tensor("blk.0.ffn_up_exps.weight", GgmlType::kF32, {8, 4});
  expect(experts, "expected a shape of at most 1024 experts, rows and columns, got F32 [8, 4]");
  Header norm("gemma2");
  norm.add_tensor("output_norm.weight", GgmlType::kF16, {4});
  expect(norm, "expected a norm of type F32, got F16");
}

}  // namespace
}  // namespace halley
