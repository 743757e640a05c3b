#include "halley/server/app/openai_app.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/engine_fixture.h"
#include "halley/json/json.h"
#include "halley/server/app/fake_exchange.h"

namespace halley {
namespace {

using testing::HasSubstr;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}"
    "{% if tools %}tools <tool_call>\n{% endif %}"
    "{% if add_generation_prompt %}assistant {% endif %}";

// The engine's fixture, with the letters of JSON too.
std::vector<std::string> pieces() {
  std::vector<std::string> pieces = fake_pieces();
  for (const char c : std::string("{}[]\":,<>/_.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-")) {
    pieces.emplace_back(1, c);
  }
  return pieces;
}

std::shared_ptr<const Tokenizer> tokenizer() { return std::make_shared<FakeTokenizer>(pieces()); }

struct AppSetup {
  EngineConfig engine = {};
  AppConfig app = {};
  FakeLogits logits = hashed_logits;
  std::function<void(const ForwardBatch&)> on_forward = {};
  bool has_template = true;
};

// Routes over an engine with the fake model.
class App {
 public:
  explicit App(AppSetup setup = {}) {
    auto model = std::make_unique<FakeCausalLm>(static_cast<int64_t>(pieces().size()),
                                                std::move(setup.logits));
    model->on_forward = std::move(setup.on_forward);
    auto engine = std::make_unique<Engine>(std::move(model), tokenizer(),
                                           std::vector<int32_t>{kFakeEos}, setup.engine);
    AppConfig config = std::move(setup.app);
    config.model_names = {"fake", "other"};
    config.version = "1.2.3";
    config.vocab_size = static_cast<int64_t>(pieces().size());
    ChatFormat format;
    if (setup.has_template) {
      format = ChatFormat(kTemplate, kTemplate, OrderedJson::object(), std::nullopt);
    }
    app_ = std::make_unique<OpenAiApp>(std::move(engine), tokenizer(), std::move(format),
                                       std::move(config));
    routes_ = app_->routes();
  }

  std::shared_ptr<FakeExchange> start(const std::string& method, const std::string& path,
                                      const std::string& body) {
    auto exchange = std::make_shared<FakeExchange>(body);
    for (const HttpRoute& route : routes_) {
      if (route.method == method && route.path == path) route.handler(exchange);
    }
    return exchange;
  }

  HttpResponse post(const std::string& path, const std::string& body) {
    return start("POST", path, body)->wait();
  }
  HttpResponse get(const std::string& path) { return start("GET", path, "")->wait(); }

  OrderedJson post_json(const std::string& path, const std::string& body) {
    const HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return OrderedJson::parse(response.body);
  }

  OpenAiApp& operator*() { return *app_; }
  OpenAiApp* operator->() { return app_.get(); }
  const std::vector<HttpRoute>& routes() const { return routes_; }

 private:
  std::unique_ptr<OpenAiApp> app_;
  std::vector<HttpRoute> routes_;
};

// A model that writes `text` behind a prompt of `num_prompt_tokens` and ends.
AppSetup writer_of(const std::string& text, size_t num_prompt_tokens) {
  AppSetup setup;
  setup.logits = scripted_logits(tokenizer()->encode(text, false), num_prompt_tokens);
  return setup;
}

// The chunks of a stream; the last event must be [DONE].
std::vector<OrderedJson> chunks_of(const HttpResponse& response) {
  std::vector<OrderedJson> chunks;
  size_t start = 0;
  std::string last;
  while (start < response.body.size()) {
    const size_t end = response.body.find("\n\n", start);
    EXPECT_NE(end, std::string::npos) << response.body;
    last = response.body.substr(start, end - start);
    EXPECT_TRUE(last.starts_with("data: ")) << last;
    if (last != "data: [DONE]") chunks.push_back(OrderedJson::parse(last.substr(6)));
    start = end + 2;
  }
  EXPECT_EQ(last, "data: [DONE]");
  return chunks;
}

TEST(OpenAiApp, CompletesAPrompt) {
  App app(writer_of("hello you", 2));
  const OrderedJson answer =
      app.post_json("/v1/completions", R"({"prompt": "ab", "temperature": 0})");
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "fake");
  EXPECT_EQ(answer["choices"][0]["text"], "hello you");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 10);  // with the end token
}

TEST(OpenAiApp, EndsAtTheDefaultNumberOfTokens) {
  App app(writer_of("abcdefghijklmnopqrstuvwxyz", 1));
  const OrderedJson answer =
      app.post_json("/v1/completions", R"({"prompt": "a", "temperature": 0})");
  EXPECT_EQ(answer["choices"][0]["text"], "abcdefghijklmnop");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
}

TEST(OpenAiApp, AnswersAChat) {
  // "user hi\nassistant "
  App app(writer_of("hello", 18));
  const OrderedJson answer = app.post_json(
      "/v1/chat/completions",
      R"({"model": "other", "messages": [{"role": "user", "content": "hi"}], "temperature": 0})");
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "other");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "hello");
}

TEST(OpenAiApp, StreamsWhatItWouldAnswerAtOnce) {
  for (const std::string path : {"/v1/completions", "/v1/chat/completions"}) {
    const bool is_chat = path == "/v1/chat/completions";
    App app;
    const std::string fields = std::string(is_chat ? R"("messages": [{"role": "user",
        "content": "hi"}])"
                                                   : R"("prompt": ["ab", "c"])") +
                               R"(, "n": 2, "seed": 5, "max_tokens": 20)";
    const OrderedJson whole = app.post_json(path, "{" + fields + "}");
    const HttpResponse response = app.post(
        path, "{" + fields + R"(, "stream": true, "stream_options": {"include_usage": true}})");
    EXPECT_EQ(response.content_type, "text/event-stream; charset=utf-8");
    std::vector<std::string> texts(whole["choices"].size());
    std::vector<std::string> reasons(texts.size());
    std::vector<bool> has_role(texts.size());
    const std::vector<OrderedJson> chunks = chunks_of(response);
    for (size_t i = 0; i + 1 < chunks.size(); ++i) {
      EXPECT_TRUE(chunks[i]["usage"].is_null());
      const OrderedJson& choice = chunks[i]["choices"][0];
      const auto index = choice["index"].get<size_t>();
      if (is_chat && choice["delta"].contains("role")) {
        EXPECT_EQ(texts[index], "") << "the role comes first";
        has_role[index] = true;
      }
      texts[index] +=
          is_chat ? choice["delta"].value("content", "") : choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) reasons[index] = choice["finish_reason"];
    }
    EXPECT_EQ(chunks.back()["usage"], whole["usage"]);
    EXPECT_TRUE(chunks.back()["choices"].empty());
    for (size_t i = 0; i < texts.size(); ++i) {
      const OrderedJson& choice = whole["choices"][i];
      EXPECT_EQ(texts[i], is_chat ? choice["message"]["content"] : choice["text"]);
      EXPECT_EQ(reasons[i], choice["finish_reason"]);
      EXPECT_EQ(has_role[i], is_chat);
    }
    EXPECT_NE(texts[0], texts[1]) << "choices have seeds of their own";
  }
}

TEST(OpenAiApp, ContinuousUsageIsInEveryChunk) {
  App app(writer_of("abc", 1));
  const auto chunks =
      chunks_of(app.post("/v1/completions", R"({"prompt": "a", "temperature": 0, "stream": true,
                             "stream_options": {"continuous_usage_stats": true}})"));
  ASSERT_FALSE(chunks.empty());
  for (const OrderedJson& chunk : chunks) EXPECT_EQ(chunk["usage"]["prompt_tokens"], 1);
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 4);
}

TEST(OpenAiApp, GivesLogprobs) {
  App app(writer_of("ab", 1));
  const OrderedJson answer =
      app.post_json("/v1/completions", R"({"prompt": "a", "temperature": 0, "logprobs": 2})");
  const OrderedJson& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"].dump(), R"(["a","b","<|eos|>"])");
  EXPECT_EQ(logprobs["text_offset"].dump(), "[0,1,2]");
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2u);
  EXPECT_EQ(logprobs["top_logprobs"][0]["a"], logprobs["token_logprobs"][0]);
}

TEST(OpenAiApp, EchoesThePrompt) {
  App app(writer_of("cd", 2));
  const OrderedJson text =
      app.post_json("/v1/completions", R"({"prompt": "ab", "temperature": 0, "echo": true})");
  EXPECT_EQ(text["choices"][0]["text"], "abcd");
  const std::string ids = str(tokenizer()->encode("ab", false));
  const OrderedJson of_ids = app.post_json(
      "/v1/completions", "{\"prompt\": " + ids + R"(, "temperature": 0, "echo": true})");
  EXPECT_EQ(of_ids["choices"][0]["text"], "abcd");
}

TEST(OpenAiApp, EchoScoresThePrompt) {
  App app(writer_of("bc", 1));
  const OrderedJson answer = app.post_json("/v1/completions", R"({"prompt": "abc", "echo": true,
      "logprobs": 1, "max_tokens": 0})");
  const OrderedJson& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(answer["choices"][0]["text"], "abc");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  EXPECT_EQ(logprobs["tokens"].dump(), R"(["a","b","c"])");
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  // The model is scripted: its most likely token is the one that stands there.
  EXPECT_EQ(logprobs["token_logprobs"][1], logprobs["top_logprobs"][1]["b"]);
  EXPECT_GT(logprobs["token_logprobs"][2].get<double>(), -0.1);
}

TEST(OpenAiApp, ARequestWhoseTimeHasPassedIsATimeout) {
  AppSetup setup;
  setup.app.request_timeout_s = 1e-9;
  App app(std::move(setup));
  const HttpResponse response = app.post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(response.status, 504);
  EXPECT_THAT(response.body, HasSubstr("\"code\":\"timeout\""));
  // A request's own time goes before the server's.
  EXPECT_EQ(app.post("/v1/completions", R"({"prompt": "a", "timeout": 60})").status, 200);
}

TEST(OpenAiApp, ObserversSeeEveryEvent) {
  std::atomic<int> num_sequences{0}, num_tokens{0}, num_ends{0};
  AppSetup setup = writer_of("abc", 1);
  setup.app.make_observer = [&] {
    ++num_sequences;
    return [&](const TokenEvent& event) {
      num_tokens += event.token_id ? 1 : 0;
      num_ends += event.finish_reason ? 1 : 0;
    };
  };
  App app(std::move(setup));
  app.post_json("/v1/completions", R"({"prompt": "a", "temperature": 0, "n": 2})");
  EXPECT_EQ(num_sequences, 2);
  EXPECT_EQ(num_tokens, 8);
  EXPECT_EQ(num_ends, 2);
}

constexpr const char* kToolChat = R"({"messages": [{"role": "user", "content": "hi"}],
    "temperature": 0, "tools": [{"type": "function", "function": {"name": "add"}}])";

TEST(OpenAiApp, FindsToolCalls) {
  // "user hi\ntools <tool_call>\nassistant ": the template shows the dialect.
  const size_t num_prompt_tokens =
      tokenizer()->encode("user hi\ntools <tool_call>\nassistant ", false).size();
  App app(writer_of(R"(ok <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>)",
                    num_prompt_tokens));
  const OrderedJson answer = app.post_json("/v1/chat/completions", std::string(kToolChat) + "}");
  const OrderedJson& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "ok");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"a":1})");
  const auto chunks =
      chunks_of(app.post("/v1/chat/completions", std::string(kToolChat) + R"(, "stream": true})"));
  int num_calls = 0;
  for (const OrderedJson& chunk : chunks) {
    num_calls += chunk["choices"][0]["delta"].contains("tool_calls") ? 1 : 0;
  }
  EXPECT_EQ(num_calls, 1);
}

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

TEST(OpenAiApp, RefusesChatsWithoutATemplate) {
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
  AppSetup setup;
  int num_steps = 0;
  setup.on_forward = [&](const ForwardBatch&) {
    if (++num_steps == 3) throw DeviceError("broken");
  };
  App app(std::move(setup));
  const auto chunks = chunks_of(app.post("/v1/completions", R"({"prompt": "a", "stream": true,
                                                "ignore_eos": true})"));
  EXPECT_EQ(chunks.back()["error"]["code"], "internal_error");
}

// A model that waits in its first step until the test lets it go on.
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

TEST(OpenAiApp, RefusesBeforeItReadsWhenTheQueueIsFull) {
  Gate gate;
  App app(gate.setup(1, 2));
  std::vector<std::shared_ptr<FakeExchange>> taken;
  taken.push_back(app.start("POST", "/v1/completions", kLong));
  gate.is_running.wait();
  for (int i = 0; i < 2; ++i) taken.push_back(app.start("POST", "/v1/completions", kLong));
  // Not even JSON: what is refused is not looked at.
  const auto refused = app.start("POST", "/v1/completions", "{");
  ASSERT_TRUE(refused->has_answer());
  const HttpResponse response = refused->wait();
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("\"code\":\"overloaded\""));
  ASSERT_EQ(response.headers.size(), 1u);
  EXPECT_EQ(response.headers[0].first, "retry-after");
  gate.may_go_on.set();
  for (const auto& exchange : taken) EXPECT_EQ(exchange->wait().status, 200);
  // And there is room again.
  EXPECT_EQ(app.post("/v1/completions", R"({"prompt": "a"})").status, 200);
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
  std::shared_ptr<FakeExchange> exchange;
  {
    App app;
    exchange = app.start("POST", "/v1/completions", kLong);
    while (app->engine().stats().num_running == 0) {
    }
  }
  // Its end depends on who is first, but the exchange is never left without a rule broken.
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
  setup.app.metrics = [] { return std::string("up 1\n"); };
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
  setup.app.metrics = [] { return std::string(); };
  App app(std::move(setup));
  const OrderedJson paths = OrderedJson::parse(app.get("/openapi.json").body)["paths"];
  size_t num_described = 0;
  for (const HttpRoute& route : app.routes()) {
    if (route.path.starts_with("/v1/models/")) continue;
    ++num_described;
    const char* method = route.method == "GET" ? "get" : "post";
    EXPECT_TRUE(paths.contains(route.path) && paths[route.path].contains(method)) << route.path;
  }
  EXPECT_EQ(paths.size(), num_described);
}

}  // namespace
}  // namespace halley
