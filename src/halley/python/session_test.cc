#include "halley/python/session.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::python {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::ThrowsMessage;

SessionOptions demo_options() {
  SessionOptions options;
  options.model = HALLEY_SOURCE_DIR "/models/demo-21m";
  options.device = "cpu";
  options.threads = 1;
  options.max_model_len = 64;
  options.max_num_seqs = 4;
  return options;
}

std::shared_ptr<Session> demo_session() {
  static const auto kSession = std::make_shared<Session>(demo_options());
  return kSession;
}

/// "1,2,3"
std::string join_ids(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += str(text.empty() ? "" : ",", id);
  return text;
}

std::vector<RequestDelta> wait_for(RequestStream& stream, size_t count) {
  std::vector<RequestDelta> news;
  while (news.size() < count) {
    stream.queue().wait(100);
    for (RequestDelta& delta : stream.queue().take()) news.push_back(std::move(delta));
  }
  return news;
}

TEST(Session, TakesAModelByItsNameFromTheCache) {
  namespace fs = std::filesystem;
  const std::string commit(40, 'a');
  const fs::path cache = fs::temp_directory_path() / str("halley_session_", ::getpid());
  const fs::path repo = cache / "models--org--name";
  fs::create_directories(repo / "refs");
  fs::create_directories(repo / "snapshots");
  std::ofstream(repo / "refs/main") << commit;
  fs::create_directory_symlink(demo_options().model, repo / "snapshots" / commit);
  ::setenv("HF_HUB_CACHE", cache.c_str(), 1);
  SessionOptions options = demo_options();
  options.model = "org/name";
  EXPECT_NO_THROW(Session{options});
  options.model = "org/other";
  EXPECT_THAT([&] { Session{options}; },
              ThrowsMessage<InputError>(HasSubstr("halley pull org/other")));
  ::unsetenv("HF_HUB_CACHE");
  fs::remove_all(cache);
}

TEST(Session, RunsPromptsOfTextAndOfTokens) {
  RequestStream stream(demo_session(), true);
  const auto text =
      stream.submit(R"({"prompt": "The Python language", "max_tokens": 4, "temperature": 0})", {});
  EXPECT_EQ(text.text, "The Python language");
  ASSERT_EQ(text.num_sequences, 1);
  const auto first = wait_for(stream, 1);
  const auto ids = stream.submit(
      str(R"({"max_tokens": 4, "temperature": 0, "prompt": [)", join_ids(text.token_ids), "]}"),
      {});
  EXPECT_EQ(ids.token_ids, text.token_ids);
  EXPECT_EQ(ids.text, "");
  const auto second = wait_for(stream, 1);
  EXPECT_EQ(first[0].token_ids, second[0].token_ids);
  EXPECT_EQ(first[0].finish_reason, FinishReason::kLength);
}

TEST(Session, RunsNSequencesWithSeedsOfTheirOwn) {
  RequestStream stream(demo_session(), true);
  const auto prompt = stream.submit(
      R"({"prompt": "The", "max_tokens": 8, "temperature": 2, "seed": 3, "n": 3})", {});
  EXPECT_EQ(prompt.num_sequences, 3);
  const auto news = wait_for(stream, 3);
  EXPECT_NE(news[0].token_ids, news[1].token_ids);
}

TEST(Session, EndsOneRequestOfAStream) {
  RequestStream stream(demo_session(), true);
  for (const uint64_t number : {4, 5}) {
    stream.submit(R"({"prompt": "The", "max_tokens": 60, "ignore_eos": true, "n": 2})",
                  {.number = number});
  }
  stream.cancel(4);
  for (const RequestDelta& delta : wait_for(stream, 4)) {
    EXPECT_EQ(delta.finish_reason,
              delta.sequence.request == 4 ? FinishReason::kCancelled : FinishReason::kLength);
  }
}

TEST(Session, GivesLogProbabilitiesOfThePrompt) {
  RequestStream stream(demo_session(), true);
  const auto prompt =
      stream.submit(R"({"prompt": "The Python", "max_tokens": 1})", {.num_prompt_logprobs = 2});
  const auto news = wait_for(stream, 1);
  ASSERT_EQ(news[0].prompt_logprobs.size(), prompt.token_ids.size());
  EXPECT_FALSE(news[0].prompt_logprobs[0].logprob.has_value());
  EXPECT_THAT(news[0].prompt_logprobs[1].top, SizeIs(2));
}

TEST(Session, RejectsRequestsByTheTextsOfTheServer) {
  RequestStream stream(demo_session(), true);
  const auto submit = [&](const std::string& body) { stream.submit(body, {}); };
  EXPECT_THAT([&] { submit(R"({"prompt": "a", "temperature": 3})"); },
              ThrowsMessage<Error>(HasSubstr("temperature: expected 0 to 2")));
  EXPECT_THAT([&] { submit(R"({"prompt": ["a", "b"]})"); },
              ThrowsMessage<InputError>(HasSubstr("prompt: expected one, got 2.")));
  EXPECT_THAT([&] { submit(str(R"({"prompt": [)", join_ids(std::vector<int32_t>(100, 1)), "]}")); },
              ThrowsMessage<InputError>(HasSubstr("64")));
  EXPECT_THAT(stream.queue().take(), IsEmpty());
}

TEST(Session, CancelsTheRequestsOfAStreamThatEnds) {
  const auto session = demo_session();
  {
    RequestStream stream(session, true);
    stream.submit(R"({"prompt": "The", "max_tokens": 60, "ignore_eos": true})", {});
  }
  session->engine().wait_until_idle();
  EXPECT_EQ(session->engine().stats().num_running, 0);
}

TEST(SessionOptions, AreCheckedBeforeTheModelIsLoaded) {
  const auto rejects = [](const std::function<void(SessionOptions&)>& change,
                          const std::string& text) {
    SessionOptions options = demo_options();
    change(options);
    EXPECT_THAT([&] { Session session(options); }, ThrowsMessage<InputError>(HasSubstr(text)));
  };
  rejects([](auto& o) { o.device = "gpu"; }, "device: expected auto, cpu, cuda or cuda:N, got");
  rejects([](auto& o) { o.kv_cache_dtype = "f8"; }, "kv_cache_dtype: expected auto, f32");
  rejects([](auto& o) { o.precision = "half"; }, "precision: expected full, low or auto, got");
  rejects([](auto& o) { o.tensor_parallel_size = 0; }, "tensor_parallel_size: expected 1 to 256");
  rejects([](auto& o) { o.gpu_memory_utilization = 0; },
          "gpu_memory_utilization: expected above 0");
  rejects([](auto& o) { o.tool_call_parser = "xml"; }, "tool_call_parser: expected auto, hermes");
  rejects([](auto& o) { o.model = ""; }, "");
}

}  // namespace
}  // namespace halley::python
