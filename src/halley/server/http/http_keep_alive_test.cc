// Tests of the bytes that keep a silent stream alive.
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/server/http/answer.h"
#include "halley/server/http/outbox.h"
#include "halley/server/http/testing/raw_client.h"
#include "halley/server/http/testing/test_routes.h"

namespace halley {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kComment = ": keep-alive\n\n";
constexpr const char* kCommentChunk = "e\r\n: keep-alive\n\n\r\n";

HttpResponse events(std::string first = {}) {
  return {.content_type = "text/event-stream", .body = std::move(first)};
}

// An answer without a connection. silence() is what its timer does.
struct Silent {
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>([] {});
  std::shared_ptr<Outbox> outbox = std::make_shared<Outbox>(mailbox, 1 << 20);
  std::unique_ptr<Answer> answer;

  explicit Silent(bool is_http_1_0 = false) {
    AnswerContext context;
    context.is_http_1_0 = is_http_1_0;
    context.keep_alive = true;
    answer = std::make_unique<Answer>(outbox, HttpRequest(), std::move(context),
                                      ByteReservation(std::make_shared<ByteBudget>(1)));
  }
  // A mailbox and an outbox with mail in it hold each other until it is closed.
  ~Silent() { mailbox->close(); }
  std::string taken() {
    std::string bytes;
    outbox->take(bytes);
    outbox->note_sent(bytes.size());
    return bytes;
  }
  std::string silence() {
    outbox->keep_alive();
    return taken();
  }
};

TEST(KeepAlive, BeginsTheStreamBeforeTheRouteDoes) {
  Silent test;
  test.answer->keep_alive(events(), kComment);
  const std::string first = test.silence();
  EXPECT_THAT(first, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(first, HasSubstr("content-type: text/event-stream\r\n"));
  EXPECT_THAT(first, EndsWith(std::string("\r\n\r\n") + kCommentChunk));
  EXPECT_EQ(test.silence(), kCommentChunk);
  EXPECT_EQ(test.outbox->status(), 200);
  EXPECT_FALSE(test.outbox->close_after());
  // The head was sent: the route's beginning is its first piece alone.
  test.answer->start_stream(events("data: 1\n\n"));
  EXPECT_EQ(test.taken(), "9\r\ndata: 1\n\n\r\n");
  EXPECT_EQ(test.silence(), kCommentChunk);
  test.answer->write("x");
  test.answer->finish();
  EXPECT_EQ(test.taken(), "1\r\nx\r\n0\r\n\r\n");
  EXPECT_EQ(test.silence(), "");
}

TEST(KeepAlive, IsSilentWhereNobodyAskedForIt) {
  Silent whole;
  EXPECT_EQ(whole.silence(), "");
  whole.answer->respond(events("a"));
  EXPECT_THAT(whole.taken(), EndsWith("\r\n\r\na"));
  EXPECT_EQ(whole.silence(), "");
  Silent stream;
  stream.answer->start_stream(events("a"));
  stream.taken();
  EXPECT_EQ(stream.silence(), "");
  stream.answer->finish();
}

TEST(KeepAlive, AddsNothingToBytesThatWait) {
  Silent test;
  test.answer->keep_alive(events(), kComment);
  test.answer->start_stream(events("data: 1\n\n"));
  EXPECT_THAT(test.silence(), Not(HasSubstr(": keep-alive")));
  test.answer->finish();
}

TEST(KeepAlive, LeavesTheAnswerToARouteThatClaimsIt) {
  Silent test;
  test.answer->keep_alive(events(), kComment);
  ASSERT_TRUE(test.answer->claim_answer());
  EXPECT_EQ(test.silence(), "");
  test.answer->respond({.status = 503, .body = "full"});
  EXPECT_THAT(test.taken(), StartsWith("HTTP/1.1 503 "));
}

TEST(KeepAlive, TellsTheRouteThatTheStreamHasBegun) {
  Silent test;
  test.answer->keep_alive(events(), kComment);
  test.silence();
  ASSERT_FALSE(test.answer->claim_answer());
  EXPECT_FALSE(test.answer->claim_answer());
  EXPECT_TRUE(test.answer->write("data: error\n\n"));
  test.answer->finish();
  EXPECT_EQ(test.taken(), "d\r\ndata: error\n\n\r\n0\r\n\r\n");
}

TEST(KeepAlive, AStreamThatIsDroppedIsNotWhole) {
  Silent test;
  test.answer->keep_alive(events(), kComment);
  test.silence();
  test.answer.reset();
  EXPECT_TRUE(test.outbox->progress().is_broken);
  Silent unbegun;
  unbegun.answer->keep_alive(events(), kComment);
  unbegun.answer.reset();
  EXPECT_THAT(unbegun.taken(), StartsWith("HTTP/1.1 500 "));
}

TEST(KeepAlive, OfAnOldClientHasNoChunks) {
  Silent test(/*is_http_1_0=*/true);
  test.answer->keep_alive(events(), kComment);
  EXPECT_THAT(test.silence(), EndsWith("connection: close\r\n\r\n: keep-alive\n\n"));
  EXPECT_TRUE(test.outbox->close_after());
}

TEST(KeepAlive, OfAServerComesAgainAndAgain) {
  HttpServerConfig config;
  config.keep_alive = std::chrono::milliseconds(1);
  TestServer test(std::move(config));
  RawClient client(test.port());
  client.send("GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = test.kept();
  exchange->keep_alive(events(), kComment);
  EXPECT_THAT(client.receive_until(kCommentChunk), StartsWith("HTTP/1.1 200 OK\r\n"));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client.receive_until(kCommentChunk), kCommentChunk);
  exchange->start_stream(events("data: 1\n\n"));
  EXPECT_THAT(client.receive_until("data: 1\n\n\r\n"), EndsWith("9\r\ndata: 1\n\n\r\n"));
  EXPECT_EQ(client.receive_until(kCommentChunk), kCommentChunk);
  exchange->finish();
  EXPECT_THAT(client.receive_until("0\r\n\r\n"), EndsWith("0\r\n\r\n"));
  // The connection goes on with the next request, and without the comments of the last one.
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.receive().body, "ok");
  EXPECT_EQ(test.logged(2)[0].status, 200);
}

}  // namespace
}  // namespace halley
