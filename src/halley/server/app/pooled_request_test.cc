// The routes of embeddings, reranking and scores over an engine with the fake model.
#include "halley/server/app/pooled_request.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/server/app/testing/app_fixture.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

using Ids = std::vector<int32_t>;
using Vector = std::vector<float>;

Ids ids_of(const std::string& text) { return tokenizer()->encode(text, true); }

Vector last_of(const std::string& text) {
  return finish_embedding(FakeCausalLm::hidden_of(ids_of(text)), {});
}

AppSetup setup_with(PoolingConfig pooling) {
  AppSetup setup;
  setup.app.pooling = std::move(pooling);
  return setup;
}

/// Error's message, with its status, param and code.
std::string error_of(App& app, const std::string& path, const std::string& body) {
  const HttpResponse response = app.post(path, body);
  const OrderedJson error = OrderedJson::parse(response.body)["error"];
  return str(response.status, " ", error["param"].dump(), " ", error["code"].dump(), " ",
             error["message"].get<std::string>());
}

TEST(Embeddings, AreTheNormalizedHiddenStates) {
  App app;
  for (const char* path : {"/v1/embeddings", "/embeddings"}) {
    const OrderedJson json =
        app.post_json(path, R"({"model": "other", "input": ["stop the", "end"]})");
    EXPECT_EQ(json["object"], "list");
    EXPECT_EQ(json["model"], "other");
    ASSERT_THAT(json["data"], SizeIs(2));
    EXPECT_EQ(json["data"][0]["embedding"].get<Vector>(), last_of("stop the"));
    EXPECT_EQ(json["data"][1]["embedding"].get<Vector>(), last_of("end"));
    EXPECT_EQ(json["data"][1]["index"], 1);
    const size_t num_tokens = ids_of("stop the").size() + ids_of("end").size();
    EXPECT_EQ(json["usage"],
              OrderedJson({{"prompt_tokens", num_tokens}, {"total_tokens", num_tokens}}));
  }
}

TEST(Embeddings, TakeTokenIds) {
  App app;
  OrderedJson json = app.post_json("/v1/embeddings", R"({"input": [20, 21, 22]})");
  ASSERT_THAT(json["data"], SizeIs(1));
  const Vector expected = finish_embedding(FakeCausalLm::hidden_of(Ids{20, 21, 22}), {});
  EXPECT_EQ(json["data"][0]["embedding"].get<Vector>(), expected);
  json = app.post_json("/v1/embeddings", R"({"input": [[20, 21, 22], [5]]})");
  ASSERT_THAT(json["data"], SizeIs(2));
  EXPECT_EQ(json["data"][0]["embedding"].get<Vector>(), expected);
}

TEST(Embeddings, HaveTheFormThatIsAskedFor) {
  App app;
  const Vector raw = FakeCausalLm::hidden_of(ids_of("end"));
  OrderedJson json = app.post_json(
      "/v1/embeddings", R"({"input": "end", "encoding_format": "base64", "normalize": false})");
  EXPECT_EQ(json["data"][0]["embedding"], base64_of(raw));
  json = app.post_json("/v1/embeddings", R"({"input": "end", "dimensions": 2})");
  EXPECT_EQ(json["data"][0]["embedding"].get<Vector>(), finish_embedding({raw[0], raw[1]}, {}));
  json = app.post_json("/v1/embeddings", R"({"input": "stop end", "truncate_prompt_tokens": 1})");
  EXPECT_EQ(json["data"][0]["embedding"].get<Vector>(), last_of("end"));
  EXPECT_EQ(json["usage"]["prompt_tokens"], 1);
}

TEST(Embeddings, ArePooledAsTheServerSays) {
  App app(setup_with({.kind = Pooling::Kind::kMean, .normalizes = false}));
  const OrderedJson json = app.post_json("/v1/embeddings", R"({"input": [20, 21]})");
  const Vector a = FakeCausalLm::hidden_of(Ids{20}), b = FakeCausalLm::hidden_of(Ids{20, 21});
  Vector mean;
  for (size_t i = 0; i < a.size(); ++i) {
    mean.push_back(static_cast<float>((double{a[i]} + double{b[i]}) / 2));
  }
  EXPECT_EQ(json["data"][0]["embedding"].get<Vector>(), mean);
}

TEST(Embeddings, OfManyTextsComeInPieces) {
  AppSetup setup;
  setup.engine.max_num_queued = 2000;
  App app(std::move(setup));
  OrderedJson inputs = OrderedJson::array();
  for (int i = 0; i < 1024; ++i) inputs.push_back({20 + i % 20, 20 + i / 20 % 20, 20 + i % 7});
  const auto exchange = std::make_shared<FakeExchange>(OrderedJson({{"input", inputs}}).dump());
  int num_pieces = 0;
  exchange->on_piece = [&] { ++num_pieces; };
  app.start("POST", "/v1/embeddings", exchange);
  const OrderedJson json = OrderedJson::parse(exchange->wait().body);
  ASSERT_THAT(json["data"], SizeIs(1024));
  for (const size_t i : {size_t{0}, size_t{500}, size_t{1023}}) {
    EXPECT_EQ(json["data"][i]["embedding"].get<Vector>(),
              finish_embedding(FakeCausalLm::hidden_of(inputs[i].get<Ids>()), {}));
  }
  EXPECT_GT(num_pieces, 1);
}

TEST(Embeddings, SayWhatIsWrong) {
  AppSetup setup;
  setup.engine.max_model_len = 8;
  setup.engine.max_num_queued = 2;
  App app(std::move(setup));
  const auto error = [&](const std::string& body) { return error_of(app, "/v1/embeddings", body); };
  EXPECT_THAT(error(R"({"input": "end", "dimensions": 4})"),
              HasSubstr("400 \"dimensions\" null dimensions: expected 1 to 3"));
  EXPECT_THAT(error(R"({"input": ["end", [1, 2, 3, 4, 5, 6, 7, 8]]})"), HasSubstr("400"));
  EXPECT_THAT(error(R"({"input": [1, 2, 3, 4, 5, 6, 7, 8]})"),
              HasSubstr("400 \"input\" \"context_length_exceeded\" This model's context has 8"));
  EXPECT_THAT(error(R"({"input": [[1], [1, 2, 3, 4, 5, 6, 7, 8]]})"), HasSubstr("\"input[1]\""));
  EXPECT_THAT(error(R"({"input": ""})"), HasSubstr("400 \"input\" null input: expected at least"));
  EXPECT_THAT(error(R"({"input": ["a", "b", "c"]})"),
              HasSubstr("input: expected at most 2 texts, the length of the queue, got 3"));
  EXPECT_THAT(error(R"({"input": "a", "model": "none"})"), HasSubstr("404"));
  EXPECT_THAT(error(R"({"inputs": "a"})"), HasSubstr("Did you mean 'input'?"));
  EXPECT_THAT(error_of(app, "/v1/score", R"({"text_1": "a", "text_2": ["b", "c"]})"),
              HasSubstr("400 \"text_2\" null text_2: expected at most 2 texts"));
  EXPECT_THAT(error_of(app, "/v1/rerank", R"({"query": "a", "documents": ["b", "aaaaaaaaa"]})"),
              HasSubstr("400 \"documents[1]\" \"context_length_exceeded\""));
  app->start_draining();
  EXPECT_THAT(error(R"({"input": "a"})"), HasSubstr("503"));
}

TEST(Embeddings, NeedAModelThatGivesHiddenStates) {
  AppSetup setup = setup_with(
      {.yes_no = YesNoScoring{.prompt = ScoreTemplate::parse("{query}/{document}", "test"),
                              .yes_id = 20,
                              .no_id = 21}});
  setup.has_hidden_states = false;
  App app(std::move(setup));
  EXPECT_THAT(error_of(app, "/v1/embeddings", R"({"input": "a"})"),
              HasSubstr("400 null \"embeddings_unsupported\""));
  EXPECT_EQ(app.post("/v1/rerank", R"({"query": "a", "documents": ["b"]})").status, 200);
}

TEST(Embeddings, OfAClientThatHasGoneAreCancelled) {
  App* running = nullptr;
  std::shared_ptr<FakeExchange> exchange;
  AppSetup setup;
  setup.on_forward = [&](const ForwardBatch&) { exchange->disconnect(); };
  App app(std::move(setup));
  running = &app;
  exchange = std::make_shared<FakeExchange>(R"({"input": ["stop the end", "end", "st"]})");
  app.start("POST", "/v1/embeddings", exchange);
  (*running)->engine().wait_until_idle();
  EXPECT_EQ(app->engine().stats().num_running, 0);
}

TEST(Rerank, OrdersByTheCosineOfEmbeddings) {
  App app;
  const std::vector<std::string> documents = {"stop", "the end", "open", "n"};
  std::vector<std::pair<double, size_t>> expected;
  for (size_t i = 0; i < documents.size(); ++i) {
    expected.emplace_back(-cosine_of(FakeCausalLm::hidden_of(ids_of("end")),
                                     FakeCausalLm::hidden_of(ids_of(documents[i]))),
                          i);
  }
  std::sort(expected.begin(), expected.end());
  for (const char* path : {"/v1/rerank", "/rerank"}) {
    const OrderedJson json = app.post_json(
        path, OrderedJson({{"query", "end"}, {"documents", documents}, {"top_n", 3}}).dump());
    ASSERT_THAT(json["results"], SizeIs(3));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(json["results"][i]["index"], expected[i].second);
      EXPECT_NEAR(json["results"][i]["relevance_score"].get<double>(), -expected[i].first, 1e-12);
      EXPECT_EQ(json["results"][i]["document"]["text"], documents[expected[i].second]);
    }
    EXPECT_GT(json["usage"]["total_tokens"], 4);
  }
}

double yes_share_of(const std::string& prompt, size_t yes, size_t no) {
  Vector logits(pieces().size());
  hashed_logits(tokenizer()->encode(prompt, false), logits);
  const double a = std::exp(double{logits[yes]}), b = std::exp(double{logits[no]});
  return a / (a + b);
}

TEST(Rerank, ByTheModelsAnswerIsTheShareOfYes) {
  const ScoreTemplate prompt = ScoreTemplate::parse("{instruction}:{query}/{document}", "test");
  App app(setup_with({.yes_no = YesNoScoring{.prompt = prompt, .yes_id = 20, .no_id = 33}}));
  const OrderedJson json = app.post_json(
      "/v1/rerank", R"({"query": "q", "documents": ["a", "b", "c"], "instruction": "is"})");
  ASSERT_THAT(json["results"], SizeIs(3));
  double before = 1;
  for (const OrderedJson& result : json["results"]) {
    const std::string document = result["document"]["text"];
    const double score = result["relevance_score"];
    EXPECT_NEAR(score, yes_share_of("is:q/" + document, 20, 33), 1e-6);
    EXPECT_LE(score, before);
    before = score;
  }
  EXPECT_EQ(json["usage"]["total_tokens"], 3 * tokenizer()->encode("is:q/a", false).size());
}

TEST(Score, ComparesPairs) {
  App app;
  const auto cosine = [](const std::string& a, const std::string& b) {
    return cosine_of(FakeCausalLm::hidden_of(ids_of(a)), FakeCausalLm::hidden_of(ids_of(b)));
  };
  for (const char* path : {"/v1/score", "/score"}) {
    OrderedJson json = app.post_json(path, R"({"text_1": ["a", "end"], "text_2": ["b", "st"]})");
    ASSERT_THAT(json["data"], SizeIs(2));
    EXPECT_NEAR(json["data"][0]["score"].get<double>(), cosine("a", "b"), 1e-12);
    EXPECT_NEAR(json["data"][1]["score"].get<double>(), cosine("end", "st"), 1e-12);
    json = app.post_json(path, R"({"text_1": "a", "text_2": ["b", "end", "a"]})");
    ASSERT_THAT(json["data"], SizeIs(3));
    EXPECT_NEAR(json["data"][1]["score"].get<double>(), cosine("a", "end"), 1e-12);
    EXPECT_NEAR(json["data"][2]["score"].get<double>(), 1, 1e-12);
    EXPECT_EQ(json["data"][2]["object"], "score");
  }
}

TEST(Score, HasQueriesOfTheirOwnForTheModelsAnswer) {
  const ScoreTemplate prompt = ScoreTemplate::parse("{query}/{document}", "test");
  App app(setup_with({.yes_no = YesNoScoring{.prompt = prompt, .yes_id = 20, .no_id = 33}}));
  const OrderedJson json =
      app.post_json("/v1/score", R"({"text_1": ["a", "b"], "text_2": ["c", "d"]})");
  EXPECT_NEAR(json["data"][0]["score"].get<double>(), yes_share_of("a/c", 20, 33), 1e-6);
  EXPECT_NEAR(json["data"][1]["score"].get<double>(), yes_share_of("b/d", 20, 33), 1e-6);
}

TEST(PooledRequests, AreSeenByTheObserver) {
  AppSetup setup;
  std::atomic<int> num_ends = 0;
  setup.app.make_observer = [&num_ends] {
    return [&num_ends](const TokenEvent& event) { num_ends += event.finish_reason ? 1 : 0; };
  };
  App app(std::move(setup));
  app.post_json("/v1/embeddings", R"({"input": ["a", "b", "c"]})");
  EXPECT_EQ(num_ends, 3);
}

}  // namespace
}  // namespace halley
