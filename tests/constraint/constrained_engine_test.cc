// Schemas through the engine with the shipped model: every output is a value of its schema.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/env.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/constraint/grammar_constraint.h"
#include "halley/constraint/json_schema.h"
#include "halley/core/thread_pool.h"
#include "halley/engine/generate.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"

namespace halley {
namespace {

using testing::AnyOf;
using testing::Eq;

constexpr int32_t kEos = 8188;  // generation_config.json of the model

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "language": {"enum": ["Python", "Rust", "C++"]},
    "version": {"type": "integer", "minimum": 1, "maximum": 40},
    "note": {"type": "string", "maxLength": 12},
    "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}
  },
  "required": ["language", "version", "tags"],
  "additionalProperties": false
})";

void check_value(const std::string& text) {
  SCOPED_TRACE(text);
  const Json value = parse_json(text, "output");
  ASSERT_TRUE(value.is_object());
  EXPECT_THAT(value.at("language").get<std::string>(), AnyOf(Eq("Python"), Eq("Rust"), Eq("C++")));
  ASSERT_TRUE(value.at("version").is_number_integer());
  EXPECT_GE(value.at("version").get<int64_t>(), 1);
  EXPECT_LE(value.at("version").get<int64_t>(), 40);
  EXPECT_LE(value.at("tags").size(), 2u);
  for (const Json& tag : value.at("tags")) EXPECT_TRUE(tag.is_boolean());
  size_t num_members = 3;
  if (value.contains("note")) {
    ++num_members;
    EXPECT_LE(value.at("note").get<std::string>().size(), 12u * 4);
  }
  EXPECT_EQ(value.size(), num_members);
}

TEST(ConstrainedEngine, WritesValuesOfTheSchemaGreedilyAndSampled) {
  const std::filesystem::path dir = std::filesystem::path(HALLEY_SOURCE_DIR) / "models/demo-21m";
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(dir);
  ThreadPool pool(num_usable_cores());
  ExecContext context{pool};
  const auto source = open_checkpoint_weights(dir);
  EngineConfig config;
  config.max_model_len = 160;
  config.max_num_seqs = 8;
  Engine engine(load_model(context, HfConfig::load(dir), *source, {}).model, tokenizer, {kEos},
                config);
  const auto constraint =
      compile_constraint(TokenTrie::from_tokenizer(*tokenizer, std::vector<int32_t>{kEos}),
                         json_schema_grammar(parse_ordered_json(kSchema, "schema"), "schema"));
  std::vector<GenerateRequest> requests;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    GenerateRequest request;
    request.prompt_ids = tokenizer->encode("The programming language as JSON:\n", true);
    request.sampling.temperature = seed == 0 ? 0 : 1;
    request.sampling.seed = seed;
    request.sampling.max_tokens = 120;
    request.constraint = constraint;
    requests.push_back(request);
  }
  for (const GenerateResult& result : generate_all(engine, requests)) {
    ASSERT_EQ(result.submit.status, Submit::kQueued) << result.submit.message;
    EXPECT_EQ(result.finish_reason, FinishReason::kStop) << result.error << result.text;
    check_value(result.text);
  }
}

}  // namespace
}  // namespace halley
