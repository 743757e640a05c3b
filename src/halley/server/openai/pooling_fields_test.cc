#include "halley/server/openai/pooling_fields.h"

#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const RequestRules kRules = {.vocab_size = 100};

ApiRequest parse(ApiEndpoint endpoint, const std::string& body) {
  return parse_pooling_request(body, endpoint, kRules);
}

TEST(PoolingFields, OfEmbeddings) {
  ApiRequest request = parse(ApiEndpoint::kEmbeddings, R"({"input": "a"})");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(request.prompts[0]), "a");
  EXPECT_FALSE(request.pooling.is_base64 || request.pooling.normalizes);
  request = parse(ApiEndpoint::kEmbeddings,
                  R"({"input": [[1, 2], [3]], "encoding_format": "base64", "dimensions": 8,
                      "normalize": false, "user": "me", "model": "m", "truncate_prompt_tokens": 4,
                      "add_special_tokens": false, "priority": 3, "timeout": 1.5})");
  EXPECT_THAT(std::get<std::vector<int32_t>>(request.prompts.at(0)), ElementsAre(1, 2));
  EXPECT_TRUE(request.pooling.is_base64);
  EXPECT_EQ(request.pooling.dimensions, 8);
  EXPECT_EQ(request.pooling.normalizes, false);
  EXPECT_EQ(request.truncates_prompt_to, 4);
  EXPECT_EQ(request.adds_special_tokens, false);
  EXPECT_EQ(request.priority, 3);
}

TEST(PoolingFields, OfRerankAndScore) {
  ApiRequest request =
      parse(ApiEndpoint::kRerank, R"({"query": "q", "documents": ["a", {"text": "b", "id": 3}],
                                      "top_n": 1, "return_documents": false, "instruction": "i"})");
  EXPECT_THAT(request.pooling.queries, ElementsAre("q"));
  EXPECT_THAT(request.pooling.documents, ElementsAre("a", "b"));
  EXPECT_EQ(request.pooling.top_n, 1);
  EXPECT_FALSE(request.pooling.returns_documents);
  EXPECT_EQ(request.pooling.instruction, "i");
  request = parse(ApiEndpoint::kScore, R"({"text_1": ["a", "b"], "text_2": ["c", "d"]})");
  EXPECT_THAT(request.pooling.queries, ElementsAre("a", "b"));
  request = parse(ApiEndpoint::kScore, R"({"text_1": "a", "text_2": "c"})");
  EXPECT_THAT(request.pooling.documents, ElementsAre("c"));
}

struct BadBody {
  ApiEndpoint endpoint;
  const char* body;
  const char* message;
};
const BadBody kBadBodies[] = {
    {ApiEndpoint::kEmbeddings, "{}", "input: expected a value, got nothing"},
    {ApiEndpoint::kEmbeddings, R"({"input": []})", "input: expected at least one token id"},
    {ApiEndpoint::kEmbeddings, R"({"input": [1, 100]})",
     "input[1]: expected a token id of 0 to 99"},
    {ApiEndpoint::kEmbeddings, R"({"input": ["a", 1]})", "input[1]: expected a string or a list"},
    {ApiEndpoint::kEmbeddings, R"({"input": 3})", "input: expected a string or a list"},
    {ApiEndpoint::kEmbeddings, R"({"input": "a", "encoding_format": "hex"})",
     "encoding_format: expected float or base64, got \"hex\""},
    {ApiEndpoint::kEmbeddings, R"({"input": "a", "dimensions": 0})", "dimensions: expected"},
    {ApiEndpoint::kEmbeddings, R"({"input": "a", "temperature": 0})", "body: expected the fields"},
    {ApiEndpoint::kEmbeddings, R"({"input": "a", "query": "b"})", "It is a field of rerank."},
    {ApiEndpoint::kRerank, R"({"query": "q", "documents": []})",
     "documents: expected a list of 1 to 1024 texts, got 0"},
    {ApiEndpoint::kRerank, R"({"query": "q", "documents": "a"})",
     "documents: expected a list of 1 to 1024 texts, got a string"},
    {ApiEndpoint::kRerank, R"({"query": "q", "documents": [{"title": "b"}]})",
     "documents[0].text: expected a string, got nothing"},
    {ApiEndpoint::kRerank, R"({"query": "q", "documents": [3]})",
     "documents[0]: expected a string, or an object with the member text, got an integer"},
    {ApiEndpoint::kRerank, R"({"documents": ["a"]})", "query: expected a value, got nothing"},
    {ApiEndpoint::kRerank, R"({"query": "q", "documents": ["a"], "top_n": 0})", "top_n: expected"},
    {ApiEndpoint::kScore, R"({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]})",
     "text_1: expected one text, or as many as text_2 (3), got 2"},
    {ApiEndpoint::kScore, R"({"text_1": [{"text": "a"}], "text_2": ["a"]})",
     "text_1[0]: expected a string, got an object"},
};

TEST(PoolingFields, SayWhatIsWrong) {
  for (const BadBody& bad : kBadBodies) {
    try {
      parse(bad.endpoint, bad.body);
      ADD_FAILURE() << "accepted " << bad.body;
    } catch (const ApiError& error) {
      EXPECT_THAT(error.what(), HasSubstr(bad.message)) << bad.body;
      EXPECT_EQ(error.details().status, 400);
    }
  }
}

TEST(PoolingFields, HaveSchemasOfTheirOwn) {
  const OrderedJson openapi = make_openapi("1.2.3", pooling_descriptions());
  const OrderedJson& schemas = openapi["components"]["schemas"];
  EXPECT_TRUE(schemas["EmbeddingRequest"]["properties"].contains("dimensions"));
  EXPECT_FALSE(schemas["RerankRequest"]["properties"].contains("dimensions"));
  EXPECT_EQ(schemas["ScoreRequest"]["required"], OrderedJson({"text_1", "text_2"}));
  EXPECT_TRUE(openapi["paths"].contains("/v1/embeddings"));
  EXPECT_TRUE(openapi["paths"].contains("/score"));
}

TEST(PoolingFields, StandInTheManual) {
  const std::string manual = read_text_file(str(HALLEY_SOURCE_DIR, "/docs/apis.md"), 1 << 20);
  const std::string table = fields_in_markdown(pooling_tables(), /*has_endpoints=*/true);
  EXPECT_NE(manual.find(table), std::string::npos)
      << "docs/apis.md: expected this table between its marks:\n"
      << table;
}

}  // namespace
}  // namespace halley
