// For tests: the routes over an engine with the fake model.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/engine/testing/engine_fixture.h"
#include "halley/json/json.h"
#include "halley/server/app/openai_app.h"
#include "halley/server/app/testing/fake_exchange.h"

namespace halley {

inline constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}"
    "{% if tools %}tools <tool_call>\n{% endif %}"
    "{% if add_generation_prompt %}assistant {% endif %}";

// The engine's fake tokenizer with the characters of JSON.
inline std::vector<std::string> pieces() {
  std::vector<std::string> pieces = fake_pieces();
  for (const char c : std::string("{}[]\":,<>/_.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-")) {
    pieces.emplace_back(1, c);
  }
  return pieces;
}

inline std::shared_ptr<const Tokenizer> tokenizer() {
  return std::make_shared<FakeTokenizer>(pieces());
}

struct AppSetup {
  EngineConfig engine = {};
  AppConfig app = {};
  FakeLogits logits = hashed_logits;
  std::function<void(const ForwardBatch&)> on_forward = {};
  std::vector<PrecisionLevel> levels = {};
  bool has_template = true;
  std::string chat_template = kTemplate;
  AnswerParsers parsers = {};
  bool has_hidden_states = true;
};

// Routes over an engine with the fake model.
class App {
 public:
  explicit App(AppSetup setup = {}) {
    auto model = std::make_unique<FakeCausalLm>(static_cast<int64_t>(pieces().size()),
                                                std::move(setup.logits));
    model->on_forward = std::move(setup.on_forward);
    model->levels = std::move(setup.levels);
    if (!setup.has_hidden_states) model->give_no_hidden_states();
    auto engine = std::make_unique<Engine>(std::move(model), tokenizer(),
                                           std::vector<int32_t>{kFakeEos}, setup.engine);
    AppConfig config = std::move(setup.app);
    config.model_names = {"fake", "other"};
    config.version = "1.2.3";
    config.vocab_size = static_cast<int64_t>(pieces().size());
    config.eos_token_ids = {kFakeEos};
    ChatFormat format;
    if (setup.has_template) {
      format = ChatFormat(setup.chat_template, setup.chat_template, OrderedJson::object(),
                          setup.parsers);
    }
    app_ = std::make_unique<OpenAiApp>(std::move(engine), tokenizer(), std::move(format),
                                       std::move(config));
    routes_ = app_->routes();
  }

  /// `sent_path`: of the request, where the route's goes on with a name.
  std::shared_ptr<FakeExchange> start(const std::string& method, const std::string& path,
                                      const std::string& body, const std::string& sent_path = {}) {
    auto exchange = std::make_shared<FakeExchange>(body, sent_path);
    start(method, path, exchange);
    return exchange;
  }
  void start(const std::string& method, const std::string& path,
             const std::shared_ptr<FakeExchange>& exchange) {
    for (const HttpRoute& route : routes_) {
      if (route.method == method && route.path == path) route.handler(exchange);
    }
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

// A model that writes `text` after a prompt of `num_prompt_tokens` tokens, then EOS.
inline AppSetup writer_of(const std::string& text, size_t num_prompt_tokens) {
  AppSetup setup;
  setup.logits = scripted_logits(tokenizer()->encode(text, false), num_prompt_tokens);
  return setup;
}

// The chunks of a stream; the last event must be [DONE].
inline std::vector<OrderedJson> chunks_of(const HttpResponse& response) {
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

}  // namespace halley
