#include "halley/server/openai/pooling_answer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/json/json.h"
#include "halley/server/openai/score_template.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;

TEST(FinishEmbedding, CutsThenDividesByTheLength) {
  ApiPooling pooling;
  EXPECT_THAT(finish_embedding({3, 0, 4}, pooling),
              ElementsAre(FloatNear(0.6f, 1e-7f), 0, FloatNear(0.8f, 1e-7f)));
  pooling.dimensions = 2;
  EXPECT_THAT(finish_embedding({3, 4, 12}, pooling),
              ElementsAre(FloatNear(0.6f, 1e-7f), FloatNear(0.8f, 1e-7f)));
  pooling.normalizes = false;
  EXPECT_THAT(finish_embedding({3, 4, 12}, pooling), ElementsAre(3, 4));
  pooling.normalizes = true;
  EXPECT_THAT(finish_embedding({0, 0, 5}, pooling), ElementsAre(0, 0));
  // Squares beyond f32.
  EXPECT_THAT(finish_embedding({3e30f, 4e30f, 0}, pooling),
              ElementsAre(FloatNear(0.6f, 1e-7f), FloatNear(0.8f, 1e-7f)));
}

// Python: base64.b64encode(struct.pack("<3f", 1, -2.5, 0.1)), and of the first one and two.
TEST(Base64Of, IsThatOfLittleEndianFloats) {
  EXPECT_EQ(base64_of(std::vector<float>{1, -2.5, 0.1f}), "AACAPwAAIMDNzMw9");
  EXPECT_EQ(base64_of(std::vector<float>{1}), "AACAPw==");
  EXPECT_EQ(base64_of(std::vector<float>{1, -2.5}), "AACAPwAAIMA=");
  EXPECT_EQ(base64_of({}), "");
}

EmbeddingWriter::Parts some_embeddings(bool is_base64) {
  EmbeddingWriter::Parts parts = {.head = {.id = "embd-1", .created_s = 7, .model = "m\""},
                                  .num_prompt_tokens = 11,
                                  .is_base64 = is_base64,
                                  .embeddings = {}};
  for (int i = 0; i < 50; ++i) {
    parts.embeddings.push_back({static_cast<float>(i) / 3, -1e-38f,
                                std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::denorm_min()});
  }
  return parts;
}

TEST(EmbeddingWriter, GivesTheSameTextInAnyPieces) {
  for (const bool is_base64 : {false, true}) {
    const EmbeddingWriter::Parts parts = some_embeddings(is_base64);
    std::string whole;
    EXPECT_FALSE(EmbeddingWriter(parts).write(1 << 20, whole));
    const OrderedJson json = OrderedJson::parse(whole);
    EXPECT_EQ(json["object"], "list");
    EXPECT_EQ(json["model"], "m\"");
    EXPECT_EQ(json["usage"], OrderedJson({{"prompt_tokens", 11}, {"total_tokens", 11}}));
    ASSERT_THAT(json["data"], SizeIs(50));
    for (size_t i = 0; i < 50; ++i) {
      EXPECT_EQ(json["data"][i]["index"], i);
      EXPECT_EQ(json["data"][i]["object"], "embedding");
      if (is_base64) {
        EXPECT_EQ(json["data"][i]["embedding"], base64_of(parts.embeddings[i]));
      } else {
        EXPECT_EQ(json["data"][i]["embedding"].get<std::vector<float>>(), parts.embeddings[i]);
      }
    }
    std::string joined;
    EmbeddingWriter writer(parts);
    int num_pieces = 1;
    for (std::string piece; writer.write(100, piece); piece.clear(), ++num_pieces) {
      EXPECT_LT(piece.size(), 400u);
      joined += piece;
    }
    EXPECT_GT(num_pieces, 10);
    EXPECT_TRUE(whole.starts_with(joined));
  }
}

TEST(CosineOf, IsThatOfTheAngle) {
  const std::vector<float> right = {2, 0}, up = {0, 3}, both = {1, 1}, zero = {0, 0};
  EXPECT_EQ(cosine_of(right, up), 0);
  EXPECT_NEAR(cosine_of(right, both), std::sqrt(0.5), 1e-12);
  EXPECT_EQ(cosine_of(right, right), 1);
  EXPECT_EQ(cosine_of(right, std::vector<float>{-7, 0}), -1);
  EXPECT_EQ(cosine_of(right, zero), 0);
}

TEST(RerankAnswer, HasTheBestFirst) {
  ApiRequest request;
  request.pooling.documents = {"a", "b", "c", "d"};
  const AnswerHead head = {.id = "rerank-1", .model = "m"};
  const std::vector<double> scores = {0.25, 0.5, -1, 0.5};
  OrderedJson json = OrderedJson::parse(rerank_answer(scores, request, head, 9));
  std::vector<int> order;
  for (const OrderedJson& result : json["results"]) {
    const int index = result["index"];
    order.push_back(index);
    EXPECT_EQ(result["relevance_score"], scores[static_cast<size_t>(index)]);
    EXPECT_EQ(result["document"]["text"], request.pooling.documents[static_cast<size_t>(index)]);
  }
  EXPECT_THAT(order, ElementsAre(1, 3, 0, 2));
  EXPECT_EQ(json["usage"]["total_tokens"], 9);
  request.pooling.top_n = 2;
  request.pooling.returns_documents = false;
  json = OrderedJson::parse(rerank_answer(scores, request, head, 9));
  EXPECT_EQ(json["results"], OrderedJson::parse(R"([{"index": 1, "relevance_score": 0.5},
                                                    {"index": 3, "relevance_score": 0.5}])"));
}

TEST(ScoreAnswer, KeepsTheOrder) {
  const OrderedJson json = OrderedJson::parse(score_answer(
      std::vector<double>{0.25, 1}, {.id = "score-1", .created_s = 3, .model = "m"}, 5));
  EXPECT_EQ(json, OrderedJson::parse(R"({"id": "score-1", "object": "list", "created": 3,
      "model": "m", "data": [{"index": 0, "object": "score", "score": 0.25},
      {"index": 1, "object": "score", "score": 1.0}],
      "usage": {"prompt_tokens": 5, "total_tokens": 5}})"));
}

TEST(ScoreTemplate, PutsTextsInOnce) {
  const ScoreTemplate own =
      ScoreTemplate::parse("{instruction}|{query}|{document}|{other}", "--score-template");
  EXPECT_EQ(own.render("i", "{document}", "{query}{"), "i|{document}|{query}{|{other}");
  EXPECT_THAT(own.render("", "q", "d"), HasSubstr("Given a web search query"));
  const std::string text = ScoreTemplate().render("", "What?", "That.");
  EXPECT_THAT(text,
              HasSubstr("<Query>: What?\n<Document>: That.<|im_end|>\n<|im_start|>assistant"));
}

TEST(ScoreTemplate, NeedsBothTexts) {
  const auto parse = [](const char* text) {
    return [text] { ScoreTemplate::parse(text, "t.txt"); };
  };
  EXPECT_THAT(parse("{query}"),
              ThrowsMessage<InputError>("t.txt: expected {document} once, got it 0 times."));
  EXPECT_THAT(parse("{query}{query}{document}"),
              ThrowsMessage<InputError>("t.txt: expected {query} once, got it 2 times."));
  EXPECT_THAT(
      parse("{query}{document}{instruction}{instruction}"),
      ThrowsMessage<InputError>("t.txt: expected {instruction} at most once, got it 2 times."));
}

}  // namespace
}  // namespace halley
