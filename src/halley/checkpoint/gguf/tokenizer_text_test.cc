// Tokenizer files out of metadata: what is rejected, and the members of each file.
#include "halley/checkpoint/gguf/tokenizer_text.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/gguf/model_files.h"
#include "halley/checkpoint/gguf/testing/metadata_in_memory.h"
#include "halley/json/json.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Two tokens, the second a control token.
MetadataInMemory two_tokens(const std::string& model) {
  MetadataInMemory metadata;
  metadata.string("tokenizer.ggml.model", model).strings("tokenizer.ggml.tokens", {"a", "<e>\n"});
  metadata.values<int32_t>("tokenizer.ggml.token_type", GgufValueType::kI32, {1, 3});
  metadata.strings("tokenizer.ggml.merges", {"a b"}).string("tokenizer.ggml.pre", "llama-bpe");
  metadata.integer("tokenizer.ggml.bos_token_id", 1).integer("tokenizer.ggml.eos_token_id", 1);
  return metadata;
}

TEST(GgufTokenizerText, HasControlTokensApartFromTheVocabulary) {
  const MetadataInMemory memory = two_tokens("gpt2");
  const GgufMetadata metadata = memory.get();
  EXPECT_EQ(gguf_tokenizer_of(metadata), GgufTokenizer::kByteLevelBpe);
  const Json json = parse_json(make_tokenizer_json(metadata), "tokenizer.json");
  EXPECT_EQ(json.at("model").at("vocab"), (Json{{"a", 0}}));
  EXPECT_EQ(json.at("model").at("ignore_merges"), true);
  EXPECT_EQ(json.at("added_tokens")[0].at("content"), "<e>\n");
  EXPECT_EQ(json.at("added_tokens")[0].at("special"), true);
  EXPECT_EQ(json.at("post_processor").at("single").size(), 2u);  // BOS and the text
}

TEST(GgufTokenizerText, AddsWhatTheMetadataAskFor) {
  MetadataInMemory both = two_tokens("gpt2");
  both.flag("tokenizer.ggml.add_eos_token", true);
  const Json json = parse_json(make_tokenizer_json(both.get()), "tokenizer.json");
  EXPECT_EQ(json.at("post_processor").at("single").size(), 3u);
  MetadataInMemory none = two_tokens("gpt2");
  none.flag("tokenizer.ggml.add_bos_token", false);
  EXPECT_TRUE(
      parse_json(make_tokenizer_json(none.get()), "tokenizer.json").at("post_processor").is_null());
}

TEST(GgufTokenizerText, ConfigurationHasTemplatesAndSpecialTokens) {
  MetadataInMemory metadata = two_tokens("llama");
  metadata.string("tokenizer.chat_template", "plain");
  Json json = parse_json(make_tokenizer_config(metadata.get()), "tokenizer_config.json");
  EXPECT_EQ(json.at("chat_template"), "plain");
  EXPECT_EQ(json.at("bos_token"), "<e>\n");
  EXPECT_EQ(json.at("add_bos_token"), true);
  EXPECT_EQ(json.at("added_tokens_decoder").at("1").at("special"), true);
  metadata.strings("tokenizer.chat_templates", {"tool_use"})
      .string("tokenizer.chat_template.tool_use", "tools");
  json = parse_json(make_tokenizer_config(metadata.get()), "tokenizer_config.json");
  EXPECT_EQ(json.at("chat_template")[0].at("name"), "default");
  EXPECT_EQ(json.at("chat_template")[1].at("template"), "tools");
  EXPECT_EQ(make_tokenizer_config(GgufMetadata("f.gguf")), R"({"chat_template":null})");
}

TEST(GgufTokenizerText, RejectsWhatItDoesNotKnow) {
  EXPECT_THAT(
      [] { gguf_tokenizer_of(two_tokens("bert").get()); },
      ThrowsMessage<UnsupportedError>(HasSubstr(
          "f.gguf: metadata \"tokenizer.ggml.model\": expected gpt2 or llama, got \"bert\"")));
  MetadataInMemory rule = two_tokens("gpt2");
  rule.string("tokenizer.ggml.pre", "other");
  EXPECT_THAT([&] { make_tokenizer_json(rule.get()); },
              ThrowsMessage<UnsupportedError>(HasSubstr("expected one of gpt-2, olmo, smollm")));
}

TEST(GgufTokenizerText, RejectsMetadataThatAreMissingOrContradictThemselves) {
  const auto expect = [](const MetadataInMemory& metadata, const char* message) {
    EXPECT_THAT([&] { make_tokenizer_json(metadata.get()); },
                ThrowsMessage<InputError>(HasSubstr(message)));
  };
  MetadataInMemory metadata = two_tokens("gpt2");
  expect(metadata.values<int32_t>("tokenizer.ggml.token_type", GgufValueType::kI32, {1}),
         "expected as many as there are tokens, 2, got 1");
  metadata = two_tokens("gpt2");
  expect(metadata.values<int32_t>("tokenizer.ggml.token_type", GgufValueType::kI32, {1, 7}),
         "expected types from 1 to 6, got 7 at 1");
  metadata = two_tokens("gpt2");
  expect(metadata.values<float>("tokenizer.ggml.scores", GgufValueType::kF32, {1}),
         "expected as many as there are tokens, 2, got 1");
  metadata = two_tokens("gpt2");
  expect(metadata.integer("tokenizer.ggml.bos_token_id", 2),
         "expected an integer in [0, 1], got 2");
  metadata = two_tokens("gpt2");
  expect(metadata.strings("tokenizer.ggml.tokens", {}), "expected tokens, got nothing");
  MetadataInMemory without;
  without.string("tokenizer.ggml.pre", "gpt-2").strings("tokenizer.ggml.tokens", {"a"});
  expect(without, "metadata \"tokenizer.ggml.merges\": expected merges, got nothing");
  EXPECT_THAT([] { make_tokenizer_model(two_tokens("llama").get()); },
              ThrowsMessage<InputError>(HasSubstr("expected scores, got nothing")));
}

TEST(ModelFiles, OfAGgufFileAreMadeOfItsMetadata) {
  const std::filesystem::path folder = std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata/gguf";
  const std::filesystem::path model = folder / "llama.gguf", bpe = folder / "tokenizer_qwen2.gguf";
  EXPECT_TRUE(has_model_file(model, "config.json"));
  EXPECT_FALSE(has_model_file(model, "tokenizer.json"));
  EXPECT_FALSE(has_model_file(model, "quant_config.json"));
  EXPECT_TRUE(has_model_file(bpe, "tokenizer.json"));
  EXPECT_FALSE(has_model_file(bpe, "tokenizer.model"));
  EXPECT_TRUE(has_model_file(folder / "tokenizer_spm.gguf", "tokenizer.model"));
  EXPECT_THAT([&] { read_model_file(model, "tokenizer.json", 100); },
              ThrowsMessage<InputError>(HasSubstr("expected metadata that give a tokenizer.json")));
  EXPECT_THAT([&] { read_model_file(bpe, "tokenizer.json", 100); },
              ThrowsMessage<InputError>(HasSubstr("a tokenizer.json of at most 100 bytes, got")));
}

TEST(ModelFiles, OfADirectoryAreItsFiles) {
  const std::filesystem::path model =
      std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata/models/llama";
  EXPECT_TRUE(has_model_file(model, "config.json"));
  EXPECT_FALSE(has_model_file(model, "tokenizer.json"));
  EXPECT_THAT(read_model_file(model, "config.json", 1 << 20), HasSubstr("\"hidden_size\""));
  EXPECT_THROW(read_model_file(model, "tokenizer.json", 1 << 20), InputError);
}

}  // namespace
}  // namespace halley
