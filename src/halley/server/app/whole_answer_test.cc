// Tests of what answers hold in memory: bytes and pieces of those that are not streamed, the
// budget, events of streams that wait.
#include <atomic>
#include <future>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/server/app/testing/app_fixture.h"

namespace halley {
namespace {

// The body without what differs each time: ids and the time.
std::string masked(const std::string& body) {
  static const std::regex kId(R"re("id":"(cmpl|chatcmpl|call)[-_][0-9A-Za-z]+")re");
  static const std::regex kTime(R"re("created":[0-9]+)re");
  return std::regex_replace(std::regex_replace(body, kId, R"("id":"$1")"), kTime, R"("created":0)");
}

// `script` is what the model writes; empty: text that depends on the seed alone.
AppSetup setup_of(const OrderedJson& recorded) {
  const auto script = recorded["script"].get<std::string>();
  const auto num_prompt_tokens = recorded["num_prompt_tokens"].get<size_t>();
  return num_prompt_tokens == 0 ? AppSetup() : writer_of(script, num_prompt_tokens);
}

// Recorded from a server that made every answer as one JSON value.
TEST(WholeAnswer, HasTheBytesOfRecordedOnes) {
  const std::string path = str(HALLEY_SOURCE_DIR, "/testdata/whole_answers/recorded.json");
  const OrderedJson list = OrderedJson::parse(read_text_file(path, size_t{1} << 20));
  ASSERT_GT(list.size(), 0u);
  for (const OrderedJson& recorded : list) {
    App app(setup_of(recorded));
    const HttpResponse response = app.post(recorded["path"], recorded["request"].dump());
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(masked(response.body), recorded["answer"]) << recorded["request"];
  }
}

constexpr const char* kPath = "/v1/completions";
// Some 700 kB of JSON.
constexpr const char* kLong = R"({"prompt": "ab", "seed": 3, "n": 4, "max_tokens": 300,
                                  "ignore_eos": true, "logprobs": 20})";
constexpr const char* kShort = R"({"prompt": "ab", "seed": 3, "max_tokens": 20, "logprobs": 1})";

TEST(WholeAnswer, AShortOneIsOnePieceAndALongOneIsAStream) {
  App app;
  const auto brief = app.start("POST", kPath, kShort);
  EXPECT_EQ(brief->wait().status, 200);
  EXPECT_FALSE(brief->is_streamed());
  const auto longer = app.start("POST", kPath, kLong);
  const HttpResponse response = longer->wait();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_TRUE(longer->is_streamed());
  const OrderedJson answer = OrderedJson::parse(response.body);
  ASSERT_EQ(answer["choices"].size(), 4u);
  for (const OrderedJson& choice : answer["choices"]) {
    EXPECT_EQ(choice["logprobs"]["top_logprobs"].size(), 300u);
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], 1200);
}

// Some 3 MB of text and log probabilities: more than is freed at once.
constexpr const char* kHuge = R"({"prompt": "ab", "n": 32, "max_tokens": 500, "logprobs": 20,
                                  "ignore_eos": true})";

// An answer whose client reads when the test says so.
std::shared_ptr<FakeExchange> start_held(App& app, const std::string& body) {
  const auto exchange = std::make_shared<FakeExchange>(body);
  exchange->hold_reading();
  app.start("POST", kPath, exchange);
  return exchange;
}

TEST(WholeAnswer, WaitsForItsClientAndHoldsNobodyUp) {
  App app;
  const std::string expected = masked(app.post(kPath, kLong).body);
  const auto slow = start_held(app, kLong);
  const auto slower = start_held(app, kLong);
  size_t num_bytes = 0, num_pieces = 0;
  std::string body;
  while (body.size() < expected.size()) {
    body = slow->read_piece();
    EXPECT_LE(body.size() - num_bytes, size_t{96} << 10);
    num_bytes = body.size();
    ++num_pieces;
    EXPECT_EQ(app.post(kPath, kShort).status, 200);
  }
  EXPECT_GT(num_pieces, 5u);
  EXPECT_EQ(masked(slow->wait().body).substr(0, 1000), expected.substr(0, 1000));
  EXPECT_EQ(slow->wait().body.size(), app.post(kPath, kLong).body.size());
  EXPECT_LE(slower->read_piece().size(), size_t{96} << 10);
  slower->disconnect();
}

// Shows the budget of answers as /metrics.
AppSetup budget_of(int64_t num_bytes) {
  AppSetup setup;
  setup.app.answer_bytes_max = num_bytes;
  setup.app.metrics = [](const ByteBudgetStats& answers) {
    return str(answers.num_taken_bytes, " of ", answers.num_bytes_max, ", rejected ",
               answers.num_rejected);
  };
  return setup;
}

// An answer is gone a moment after its client has it.
void wait_for_budget(App& app, const std::string& expected) {
  while (app.get("/metrics").body != expected) std::this_thread::yield();
}

void wait_until_idle(App& app) {
  EngineStats stats = app->engine().stats();
  while (stats.num_running + stats.num_waiting > 0) stats = app->engine().stats();
}

TEST(WholeAnswer, GivesItsMemoryBackAtItsEndAndWhenItsClientGoes) {
  App app(budget_of(1'000'000'000));
  app.post(kPath, kLong);
  wait_for_budget(app, "0 of 1000000000, rejected 0");
  // The second has more than is freed at once.
  for (const char* body : {kLong, kHuge}) {
    const auto exchange = start_held(app, body);
    exchange->read_piece();
    EXPECT_NE(app.get("/metrics").body, "0 of 1000000000, rejected 0");
    exchange->disconnect();
    wait_for_budget(app, "0 of 1000000000, rejected 0");
  }
  EXPECT_EQ(app.post(kPath, R"({"prompt": "ab", "stream": true, "max_tokens": 5})").status, 200);
  EXPECT_EQ(app.post(kPath, R"({"prompt": "ab", "stop": 5})").status, 400);
  wait_for_budget(app, "0 of 1000000000, rejected 0");
}

std::thread::id answer_thread_of(App& app) {
  const auto exchange = std::make_shared<FakeExchange>(kLong);
  std::thread::id writer;
  exchange->on_piece = [&] { writer = std::this_thread::get_id(); };
  app.start("POST", kPath, exchange);
  exchange->wait();
  return writer;
}

// The exchange for the app. Its answer has it to the end, and so it goes on the thread that frees
// the answer.
std::shared_ptr<FakeExchange> lend(const std::shared_ptr<FakeExchange>& exchange,
                                   std::promise<std::thread::id>& freed_by) {
  return {exchange.get(),
          [exchange, &freed_by](FakeExchange*) { freed_by.set_value(std::this_thread::get_id()); }};
}

TEST(WholeAnswer, ALargeOneIsNotFreedByTheThreadThatSeesItsClientGo) {
  App app;
  std::promise<std::thread::id> freed_by;
  const auto exchange = std::make_shared<FakeExchange>(kHuge);
  exchange->hold_reading();
  app.start("POST", kPath, lend(exchange, freed_by));
  exchange->wait_for_piece();
  // Another answer's turns are behind the one in which this piece was made: that is over.
  const std::thread::id answer_thread = answer_thread_of(app);
  exchange->disconnect();  // on this thread, as if it were the HTTP server's
  EXPECT_EQ(freed_by.get_future().get(), answer_thread);
}

TEST(WholeAnswer, ALargeOneIsNotFreedByTheThreadOfTheEngine) {
  // Tokens, not steps: the first ones may have few of the choices.
  std::atomic<int64_t> num_tokens_left{0};
  Signal is_large, may_go_on;
  AppSetup setup;
  setup.on_forward = [&](const ForwardBatch& batch) {
    if (num_tokens_left <= 0) return;
    num_tokens_left -= static_cast<int64_t>(batch.logit_rows.size());
    if (num_tokens_left > 0) return;
    is_large.set();
    may_go_on.wait();
  };
  App app(std::move(setup));
  const std::thread::id answer_thread = answer_thread_of(app);
  num_tokens_left = 12'000;  // of 16,000: some 2 MB
  std::promise<std::thread::id> freed_by;
  const auto exchange = std::make_shared<FakeExchange>(kHuge);
  app.start("POST", kPath, lend(exchange, freed_by));
  is_large.wait();
  exchange->disconnect();
  may_go_on.set();  // the engine finds that the client has gone
  EXPECT_EQ(freed_by.get_future().get(), answer_thread);
}

TEST(WholeAnswer, OneThatTheServerHasNoMemoryForIsRejectedBeforeItRuns) {
  App app(budget_of(600'000));
  const HttpResponse large = app.post(kPath, R"({"prompt": "ab", "n": 100, "max_tokens": 500,
                                                "logprobs": 20})");
  EXPECT_EQ(large.status, 400);
  EXPECT_THAT(large.body, testing::HasSubstr("Ask for fewer choices"));
  EXPECT_EQ(OrderedJson::parse(large.body)["error"]["param"], "max_tokens");
  const auto taken = start_held(app, kLong);
  taken->read_piece();
  const HttpResponse second = app.post(kPath, kLong);
  EXPECT_EQ(second.status, 503);
  EXPECT_EQ(second.headers.front().first, "retry-after");
  EXPECT_EQ(app->engine().stats().num_output_tokens, 1200);
  taken->disconnect();
  wait_for_budget(app, "0 of 600000, rejected 1");
  EXPECT_EQ(app.post(kPath, kLong).status, 200);
}

TEST(WholeAnswer, TheirMemoryIsNotNegative) {
  AppSetup setup;
  setup.app.answer_bytes_max = -1;
  try {
    const App app(std::move(setup));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "memory of answers: expected at least 0 bytes, got -1.");
  }
}

// A stream in whose first piece the response thread stays until `may_go_on`.
std::shared_ptr<FakeExchange> start_stuck(App& app, const std::string& body, Signal& is_stuck,
                                          Signal& may_go_on) {
  const auto exchange = std::make_shared<FakeExchange>(body);
  exchange->on_piece = [&] {
    is_stuck.set();
    may_go_on.wait();
  };
  app.start("POST", kPath, exchange);
  return exchange;
}

constexpr const char* kWide =
    R"({"prompt": "ab", "n": 8, "seed": 3, "max_tokens": 200, "stream": true,
                                  "ignore_eos": true})";

TEST(Stream, EndsWhereMoreEventsWaitThanItHasMemoryFor) {
  AppSetup setup;
  setup.app.stream_events_bytes_max = 2000;
  Signal is_stuck, may_go_on;
  int num_steps = 0;
  setup.on_forward = [&](const ForwardBatch&) {
    if (++num_steps == 4) is_stuck.wait();  // so that the stream begins before it is behind
  };
  App app(std::move(setup));
  const auto exchange = start_stuck(app, kWide, is_stuck, may_go_on);
  is_stuck.wait();
  wait_until_idle(app);
  may_go_on.set();
  const HttpResponse response = exchange->wait();
  EXPECT_EQ(chunks_of(response).back()["error"]["code"], "overloaded");
}

TEST(Stream, WithManyEventsLetsOthersHaveTheirTurn) {
  App app;
  Signal is_stuck, may_go_on;
  const auto wide = start_stuck(app, kWide, is_stuck, may_go_on);
  is_stuck.wait();
  const auto narrow = std::make_shared<FakeExchange>(
      R"({"prompt": "ab", "max_tokens": 4, "stream": true, "ignore_eos": true})");
  std::atomic<bool> was_first{false};
  narrow->on_piece = [&] { was_first = !wide->is_done(); };
  app.start("POST", kPath, narrow);
  while (app->engine().stats().num_output_tokens < 8 * 200 + 4) std::this_thread::yield();
  wait_until_idle(app);
  may_go_on.set();
  EXPECT_EQ(narrow->wait().status, 200);
  EXPECT_TRUE(was_first);
  EXPECT_EQ(chunks_of(wide->wait()).back()["choices"][0]["finish_reason"], "length");
}

TEST(Stream, GivesTheLogprobsOfALongPromptInParts) {
  App app;
  const std::string fields = R"({"prompt": ")" + std::string(100, 'a') +
                             R"(", "echo": true, "logprobs": 2, "max_tokens": 3, "seed": 1)";
  const OrderedJson whole = app.post_json(kPath, fields + "}")["choices"][0];
  OrderedJson logprobs = OrderedJson::object();
  std::string text;
  const auto chunks = chunks_of(app.post(kPath, fields + R"(, "stream": true})"));
  EXPECT_GE(chunks.size(), 5u);
  for (const OrderedJson& chunk : chunks) {
    const OrderedJson& choice = chunk["choices"][0];
    text += choice["text"].get<std::string>();
    EXPECT_LE(choice["logprobs"]["tokens"].size(), 32u);
    for (const auto& [name, values] : choice["logprobs"].items()) {
      for (const OrderedJson& value : values) logprobs[name].push_back(value);
    }
  }
  EXPECT_EQ(text, whole["text"]);
  EXPECT_EQ(logprobs, whole["logprobs"]);
}

}  // namespace
}  // namespace halley
