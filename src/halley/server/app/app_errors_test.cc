// Tests of errors: wrong requests, a full queue, clients that disconnect.
#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/server/app/testing/app_fixture.h"

namespace halley {
namespace {

using testing::HasSubstr;

struct ErrorCase {
  std::string path, body;
  int status;
  std::string param, code, message;
};

TEST(OpenAiApp, AnswersErrorsOfRequests) {
  AppSetup setup;
  setup.engine.max_model_len = 32;
  setup.engine.max_num_queued = 4;
  App app(std::move(setup));
  const std::string long_text(33, 'a');
  const std::vector<ErrorCase> cases = {
      {"/v1/completions", "{", 400, "", "", "not valid JSON"},
      {"/v1/completions", R"({"prompt": "a", "model": "x"})", 404, "model", "model_not_found",
       "got \"x\""},
      {"/v1/completions", R"({"prompt": ""})", 400, "prompt", "", "at least one token"},
      {"/v1/completions", R"({"prompt": ")" + long_text + "\"}", 400, "prompt",
       "context_length_exceeded", "context has 32 tokens"},
      {"/v1/completions", R"({"prompt": "aa", "max_tokens": 31})", 400, "prompt",
       "context_length_exceeded", "31 to generate"},
      {"/v1/completions", R"({"prompt": ")" + std::string(10000, 'a') + "\"}", 400, "prompt",
       "context_length_exceeded", "bytes of text"},
      {"/v1/completions", R"({"prompt": "#"})", 400, "", "", "no piece for"},
      {"/v1/completions", R"({"prompt": "a", "precision": "low"})", 400, "precision", "",
       "expected full or auto, since the model has one precision"},
      {"/v1/completions", R"({"prompt": "a", "n": 5})", 400, "n", "", "the length of the queue"},
      {"/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": ")" + long_text + "\"}]}", 400, "messages",
       "context_length_exceeded", "context has 32"},
      {"/tokenize", R"({"prompt": "a", "model": "x"})", 404, "model", "model_not_found", "\"x\""},
      {"/tokenize", R"({"prompt": [1]})", 400, "prompt", "", "expected a string, got token ids"},
      {"/detokenize", R"({"tokens": [-1]})", 400, "tokens[0]", "", "got -1"},
  };
  for (const ErrorCase& test : cases) {
    const HttpResponse response = app.post(test.path, test.body);
    EXPECT_EQ(response.status, test.status) << test.body;
    const OrderedJson error = OrderedJson::parse(response.body)["error"];
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(test.message)) << test.body;
    EXPECT_EQ(error["param"], test.param.empty() ? OrderedJson() : OrderedJson(test.param));
    EXPECT_EQ(error["code"], test.code.empty() ? OrderedJson() : OrderedJson(test.code));
    EXPECT_EQ(error["type"], "invalid_request_error");
  }
}

TEST(OpenAiApp, RejectsChatsWithoutATemplate) {
  AppSetup setup;
  setup.has_template = false;
  App app(std::move(setup));
  const HttpResponse response =
      app.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("expected a model with a chat template"));
}

TEST(OpenAiApp, HidesWhatTheEngineSays) {
  AppSetup setup;
  setup.on_forward = [](const ForwardBatch&) { throw DeviceError("secret address 0x1234"); };
  std::string logged;
  setup.app.on_error = [&](const std::string& id, const std::string& what) {
    logged = id + ": " + what;
  };
  App app(std::move(setup));
  const HttpResponse response = app.post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.body.find("secret"), std::string::npos);
  EXPECT_THAT(logged, HasSubstr("test: "));
  EXPECT_THAT(logged, HasSubstr("secret address"));
}

TEST(OpenAiApp, AnErrorInAStreamIsAnEvent) {
  AppSetup setup = writer_of("one two three", 1);  // tokens with text, so the stream has begun
  int num_steps = 0;
  setup.on_forward = [&](const ForwardBatch&) {
    if (++num_steps == 3) throw DeviceError("broken");
  };
  App app(std::move(setup));
  const auto chunks = chunks_of(app.post("/v1/completions", R"({"prompt": "a", "stream": true,
                                                "temperature": 0})"));
  EXPECT_EQ(chunks.back()["error"]["code"], "internal_error");
}

// A model that blocks in its first step until the test releases it.
struct Gate {
  Signal is_running, may_go_on;
  AppSetup setup(int64_t max_num_seqs, int64_t max_num_queued) {
    AppSetup setup;
    setup.engine.max_num_seqs = max_num_seqs;
    setup.engine.max_num_queued = max_num_queued;
    setup.on_forward = [this](const ForwardBatch&) {
      is_running.set();
      may_go_on.wait();
    };
    return setup;
  }
};

constexpr const char* kLong = R"({"prompt": "a", "max_tokens": 400, "ignore_eos": true})";

// Starts a request that gets a slot in the queue. The slot of the one before may be released a
// moment after it has left the queue.
std::shared_ptr<FakeExchange> start_admitted(App& app) {
  for (;;) {
    auto exchange = app.start("POST", "/v1/completions", kLong);
    if (!exchange->has_answer()) return exchange;
  }
}

TEST(OpenAiApp, RejectsBeforeItReadsWhenTheTokensOfTheQueueAreTooMany) {
  Gate gate;
  AppSetup setup = gate.setup(1, 100);
  setup.engine.max_num_queued_tokens = 3;
  App app(std::move(setup));
  auto running = start_admitted(app);
  gate.is_running.wait();
  // Takes all tokens that may wait; the test cannot see when it is in the queue.
  auto waiting = app.start("POST", "/v1/completions",
                           R"({"prompt": "abc", "max_tokens": 4, "ignore_eos": true})");
  while ((*app).engine().stats().num_queued_tokens < 3) std::this_thread::yield();
  const auto rejected =
      app.start("POST", "/v1/completions", "{");  // the status would be 400 if it were parsed
  EXPECT_TRUE(rejected->has_answer());
  const HttpResponse response = rejected->wait();
  EXPECT_EQ(response.status, 503);
  gate.may_go_on.set();
  EXPECT_EQ(running->wait().status, 200);
  EXPECT_EQ(waiting->wait().status, 200);
}

TEST(OpenAiApp, RejectsBeforeItReadsWhenTheQueueIsFull) {
  Gate gate;
  App app(gate.setup(1, 2));
  std::vector<std::shared_ptr<FakeExchange>> taken;
  taken.push_back(start_admitted(app));
  gate.is_running.wait();
  for (int i = 0; i < 2; ++i) taken.push_back(start_admitted(app));
  // Not even JSON: a rejected request is not parsed.
  const auto rejected = app.start("POST", "/v1/completions", "{");
  ASSERT_TRUE(rejected->has_answer());
  const HttpResponse response = rejected->wait();
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("\"code\":\"overloaded\""));
  ASSERT_EQ(response.headers.size(), 1u);
  EXPECT_EQ(response.headers[0].first, "retry-after");
  gate.may_go_on.set();
  for (const auto& exchange : taken) EXPECT_EQ(exchange->wait().status, 200);
  // Now the queue has a free slot again.
  EXPECT_EQ(app.post("/v1/completions", R"({"prompt": "a"})").status, 200);
}

TEST(OpenAiApp, TokenizesWhileTheQueueIsFull) {
  Gate gate;
  App app(gate.setup(1, 2));
  std::vector<std::shared_ptr<FakeExchange>> taken;
  taken.push_back(start_admitted(app));
  gate.is_running.wait();
  for (int i = 0; i < 2; ++i) taken.push_back(start_admitted(app));
  EXPECT_EQ(app.post("/v1/completions", "{").status, 503);
  const HttpResponse tokens = app.post("/tokenize", R"({"prompt": "ab"})");
  EXPECT_EQ(tokens.status, 200) << tokens.body;
  EXPECT_EQ(app.post("/detokenize", R"({"tokens": [1]})").status, 200);
  gate.may_go_on.set();
  for (const auto& exchange : taken) EXPECT_EQ(exchange->wait().status, 200);
}

constexpr const char* kStream = R"({"prompt": "a", "stream": true, "max_tokens": 4,
                                    "ignore_eos": true})";

TEST(OpenAiApp, AStreamThatWaitsIsKeptAlive) {
  Gate gate;
  App app(gate.setup(1, 10));
  const auto exchange = app.start("POST", "/v1/completions", kStream);
  exchange->pass_silence();
  gate.may_go_on.set();
  const HttpResponse response = exchange->wait();
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.content_type, HasSubstr("text/event-stream"));
  EXPECT_THAT(response.body, testing::StartsWith(": keep-alive\n\ndata: {"));
  EXPECT_THAT(response.body, testing::EndsWith("data: [DONE]\n\n"));
}

TEST(OpenAiApp, AnErrorOfAStreamThatIsKeptAliveIsAnEvent) {
  Gate gate;
  AppSetup setup = gate.setup(1, 10);
  setup.on_forward = [&](const ForwardBatch&) {
    gate.may_go_on.wait();
    throw DeviceError("broken");
  };
  App app(std::move(setup));
  const auto kept = app.start("POST", "/v1/completions", kStream);
  kept->pass_silence();
  gate.may_go_on.set();
  const HttpResponse response = kept->wait();
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, testing::StartsWith(": keep-alive\n\ndata: {\"error\""));
  EXPECT_THAT(response.body, HasSubstr("internal_error"));
  EXPECT_THAT(response.body, testing::EndsWith("data: [DONE]\n\n"));
}

TEST(OpenAiApp, ADisconnectFreesAllSequences) {
  App app;
  const auto exchange = app.start("POST", "/v1/completions",
                                  R"({"prompt": ["a", "b"], "n": 3, "max_tokens": 500,
                                      "ignore_eos": true, "stream": true})");
  exchange->wait_for_stream();
  exchange->disconnect();
  EngineStats stats = app->engine().stats();
  while (stats.num_running + stats.num_waiting > 0) stats = app->engine().stats();
  EXPECT_EQ(stats.num_free_pages, stats.num_pages);
  EXPECT_LT(stats.num_output_tokens, 6 * 500);
}

TEST(OpenAiApp, AClientThatGoesBeforeTheAnswerIsNotAnswered) {
  Gate gate;
  App app(gate.setup(1, 10));
  const auto exchange = app.start("POST", "/v1/completions", kLong);
  gate.is_running.wait();
  exchange->disconnect();
  gate.may_go_on.set();
  EngineStats stats = app->engine().stats();
  while (stats.num_running + stats.num_waiting > 0) stats = app->engine().stats();
  EXPECT_EQ(stats.num_free_pages, stats.num_pages);
  EXPECT_FALSE(exchange->has_answer());
}

TEST(OpenAiApp, TakesNothingMoreOnceItDrains) {
  Gate gate;
  App app(gate.setup(1, 10));
  const auto running = app.start("POST", "/v1/completions", kLong);
  gate.is_running.wait();
  EXPECT_EQ(app.get("/ready").status, 200);
  app->start_draining();
  EXPECT_EQ(app.get("/ready").status, 503);
  EXPECT_EQ(app.get("/health").status, 200);
  EXPECT_EQ(app.post("/v1/completions", R"({"prompt": "a"})").status, 503);
  gate.may_go_on.set();
  EXPECT_EQ(running->wait().status, 200);
}

TEST(OpenAiApp, AnswersWhatStillRunsWhenItEnds) {
  Gate gate;
  std::shared_ptr<FakeExchange> exchange;
  {
    App app(gate.setup(1, 10));
    exchange = app.start("POST", "/v1/completions", kLong);
    gate.is_running.wait();
    gate.may_go_on.set();
  }
  // Its end depends on the race, but the rules of the exchange hold in any case.
  if (exchange->has_answer()) {
    EXPECT_THAT(exchange->wait().status, testing::AnyOf(200, 503));
  }
}

TEST(OpenAiApp, TokenizesAndBack) {
  App app;
  const OrderedJson tokens =
      app.post_json("/tokenize", R"({"prompt": "stop it", "return_token_strs": true})");
  EXPECT_EQ(tokens["count"], 4);
  EXPECT_EQ(tokens["token_strs"].dump(), R"(["stop"," ","i","t"])");
  EXPECT_EQ(tokens["max_model_len"], 512);
  const OrderedJson text =
      app.post_json("/detokenize", "{\"tokens\": " + tokens["tokens"].dump() + "}");
  EXPECT_EQ(text["prompt"], "stop it");
  const OrderedJson chat =
      app.post_json("/tokenize", R"({"messages": [{"role": "user", "content": "hi"}]})");
  EXPECT_EQ(app.post_json("/detokenize", "{\"tokens\": " + chat["tokens"].dump() + "}")["prompt"],
            "user hi\nassistant ");
}

TEST(OpenAiApp, ContinuesTheFinalMessage) {
  App app;
  const OrderedJson chat =
      app.post_json("/tokenize", R"({"messages": [{"role": "user", "content": "hi"},
          {"role": "assistant", "content": "well "}], "continue_final_message": true})");
  EXPECT_EQ(app.post_json("/detokenize", "{\"tokens\": " + chat["tokens"].dump() + "}")["prompt"],
            "user hi\nassistant well ");
}

TEST(OpenAiApp, SaysWhatItIs) {
  AppSetup setup;
  setup.app.metrics = [](const ByteBudgetStats&) { return std::string("up 1\n"); };
  App app(std::move(setup));
  const OrderedJson models = OrderedJson::parse(app.get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "fake");
  EXPECT_EQ(models["data"][1]["id"], "other");
  EXPECT_EQ(OrderedJson::parse(app.get("/v1/models/other").body)["max_model_len"], 512);
  EXPECT_EQ(app.get("/version").body, R"({"version":"1.2.3"})");
  EXPECT_EQ(app.get("/metrics").body, "up 1\n");
  EXPECT_EQ(OrderedJson::parse(app.get("/openapi.json").body)["openapi"], "3.1.0");
}

TEST(OpenAiApp, OnlyHealthAndReadinessAreOpen) {
  App app;
  for (const HttpRoute& route : app.routes()) {
    EXPECT_EQ(route.is_open, route.path == "/health" || route.path == "/ready") << route.path;
  }
}

TEST(OpenAiApp, DescribesEveryRoute) {
  AppSetup setup;
  setup.app.metrics = [](const ByteBudgetStats&) { return std::string(); };
  App app(std::move(setup));
  const OrderedJson paths = OrderedJson::parse(app.get("/openapi.json").body)["paths"];
  size_t num_described = 0;
  for (const auto& [path, operations] : paths.items()) num_described += operations.size();
  size_t num_routes = 0;
  for (const HttpRoute& route : app.routes()) {
    if (route.path.starts_with("/v1/models/")) continue;
    ++num_routes;
    std::string method = route.method;
    std::transform(method.begin(), method.end(), method.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string path = route.takes_name ? route.path + "{response_id}" : route.path;
    EXPECT_TRUE(paths.contains(path) && paths[path].contains(method)) << method << " " << path;
  }
  EXPECT_EQ(num_described, num_routes);
}

}  // namespace
}  // namespace halley
