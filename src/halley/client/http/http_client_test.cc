#include "halley/client/http/http_client.h"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// A server of plain sockets: answers connection i with pieces[i], byte for byte, and closes.
class ScriptedServer {
 public:
  struct Answer {
    std::vector<std::string> pieces;
    bool stays_silent = false;  // after the pieces, until the client closes
    bool has_reset = false;     // closes with RST
  };

  explicit ScriptedServer(std::vector<Answer> answers) : answers_(std::move(answers)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    HALLEY_CHECK(::bind(listener_, raw, size) == 0);
    HALLEY_CHECK(::listen(listener_, 64) == 0);
    HALLEY_CHECK(::getsockname(listener_, raw, &size) == 0);
    url_ = str("http://127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] {
      for (const Answer& answer : answers_) serve(answer);
    });
  }
  ~ScriptedServer() {
    thread_.join();
    ::close(listener_);
  }

  const std::string& url() const { return url_; }
  /// Valid after the end of all exchanges.
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  void serve(const Answer& answer) {
    const int socket = ::accept(listener_, nullptr, nullptr);
    HALLEY_CHECK(socket >= 0);
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    requests_.push_back(read_request(socket));
    for (const std::string& piece : answer.pieces) {
      ::send(socket, piece.data(), piece.size(), MSG_NOSIGNAL);
    }
    if (answer.stays_silent) {
      char byte = 0;
      while (::recv(socket, &byte, 1, 0) > 0) {
      }
    }
    if (answer.has_reset) {
      const linger now{1, 0};
      ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    ::close(socket);
  }

  // A head, and the body that Content-Length tells.
  static std::string read_request(int socket) {
    std::string text;
    size_t size = std::string::npos;
    while (text.size() < size) {
      char byte = 0;
      if (::recv(socket, &byte, 1, 0) <= 0) return text;
      text += byte;
      const size_t length = text.find("Content-Length: ");
      if (text.ends_with("\r\n\r\n") && size == std::string::npos) {
        size = text.size();
        if (length != std::string::npos) size += std::stoul(text.substr(length + 16));
      }
    }
    return text;
  }

  std::vector<Answer> answers_;
  int listener_ = -1;
  std::string url_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

struct Outcome {
  std::vector<std::string> data;  // of events
  HttpClientResult result;
  int num_ends = 0;
};

void start(HttpClient& client, const HttpClientRequest& request, Outcome& outcome) {
  client.start(request, {[&outcome](const SseEvent& event) { outcome.data.push_back(event.data); },
                         [&outcome](const HttpClientResult& result) {
                           outcome.result = result;
                           ++outcome.num_ends;
                         }});
}

Outcome fetch(const ScriptedServer::Answer& answer, const HttpClientLimits& limits = {}) {
  ScriptedServer server({answer});
  HttpClient client(parse_http_url(server.url()), limits);
  Outcome outcome;
  start(client, {.target = "/x"}, outcome);
  client.run();
  EXPECT_EQ(outcome.num_ends, 1);
  return outcome;
}

std::string chunk(const std::string& text) {
  return str(std::hex, text.size(), "\r\n", text, "\r\n");
}

const std::string kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";

TEST(HttpClient, SendsTheRequestAndGivesTheBody) {
  ScriptedServer server({{{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"}}});
  HttpClient client(parse_http_url(server.url() + "/base/"));
  Outcome outcome;
  start(client,
        {.method = "POST", .target = "/v1", .headers = {{"X-Key", "7"}}, .body = "{\"a\": 1}"},
        outcome);
  client.run();
  EXPECT_EQ(outcome.result.error, "");
  EXPECT_EQ(outcome.result.status, 200);
  EXPECT_EQ(outcome.result.body, "hello");
  EXPECT_FALSE(outcome.result.is_event_stream);
  ASSERT_EQ(server.requests().size(), 1U);
  const std::string& request = server.requests()[0];
  EXPECT_THAT(request, StartsWith("POST /base/v1 HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\nHost: " + server.url().substr(7) + "\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\nX-Key: 7\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\nContent-Length: 8\r\n"));
  EXPECT_THAT(request, EndsWith("\r\n\r\n{\"a\": 1}"));
}

TEST(HttpClient, GivesTheEventsOfAStreamThatComesByteForByte) {
  const std::string stream = kStreamHead + chunk("data: one\n\nda") + chunk("ta: two\n") +
                             chunk("\ndata: [DONE]\n\n") + "0\r\n\r\n";
  ScriptedServer::Answer answer;
  for (const char c : stream) answer.pieces.emplace_back(1, c);
  const Outcome outcome = fetch(answer);
  EXPECT_EQ(outcome.result.error, "");
  EXPECT_TRUE(outcome.result.is_event_stream);
  EXPECT_THAT(outcome.data, ElementsAre("one", "two", "[DONE]"));
}

TEST(HttpClient, ReadsAStreamThatEndsWithTheConnection) {
  const Outcome outcome =
      fetch({{"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"}});
  EXPECT_EQ(outcome.result.error, "");
  EXPECT_THAT(outcome.data, ElementsAre("1"));
}

TEST(HttpClient, SaysThatAChunkedStreamBrokeOff) {
  const std::string stream = kStreamHead + chunk("data: 1\n\n") + "9\r\ndata";
  const Outcome outcome = fetch({{stream}});
  EXPECT_THAT(outcome.result.error, HasSubstr("the answer broke off"));
  EXPECT_THAT(outcome.data, ElementsAre("1"));
}

TEST(HttpClient, SaysThatABodyIsShorterThanItsLength) {
  const Outcome outcome = fetch({{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"}});
  EXPECT_THAT(outcome.result.error, HasSubstr("the answer broke off"));
  EXPECT_EQ(outcome.result.body, "hello");
}

TEST(HttpClient, IgnoresBytesAfterTheLength) {
  const Outcome outcome = fetch({{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello"}});
  EXPECT_EQ(outcome.result.error, "");
  EXPECT_EQ(outcome.result.body, "he");
}

TEST(HttpClient, RejectsWrongLengthsAndAnswersThatAreNoHttp) {
  for (const char* text :
       {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "SSH-2.0-x\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nBad Name: 1\r\n\r\n", "HTTP/1.1 200"}) {
    const Outcome outcome = fetch({{text}});
    EXPECT_THAT(outcome.result.error, HasSubstr("no answer")) << text;
    EXPECT_EQ(outcome.result.status, 0) << text;
  }
  const Outcome outcome = fetch({{kStreamHead + "zz\r\n"}});
  EXPECT_THAT(outcome.result.error, HasSubstr("the answer broke off"));
}

TEST(HttpClient, GivesStatusAndBodyOfErrors) {
  for (const int status : {400, 404, 429, 500, 503}) {
    const Outcome outcome = fetch({{str("HTTP/1.1 ", status,
                                        " Reason\r\nContent-Type: text/event-stream\r\n"
                                        "Content-Length: 4\r\n\r\nwhy?")}});
    EXPECT_EQ(outcome.result.status, status);
    EXPECT_EQ(outcome.result.body, "why?");
    EXPECT_FALSE(outcome.result.is_event_stream);
    EXPECT_EQ(outcome.result.error, "");
  }
}

TEST(HttpClient, SaysWhenTheServerClosesAtOnce) {
  EXPECT_THAT(fetch({}).result.error, HasSubstr("no answer"));
  EXPECT_THAT(fetch({.pieces = {}, .has_reset = true}).result.error, HasSubstr("no answer"));
}

TEST(HttpClient, SaysThatNobodyListens) {
  std::string url;
  { url = ScriptedServer({}).url(); }
  HttpClient client(parse_http_url(url));
  Outcome outcome;
  start(client, {}, outcome);
  client.run();
  EXPECT_THAT(outcome.result.error, HasSubstr("cannot connect: Connection refused"));
}

TEST(HttpClient, SaysThatTheHostIsUnknown) {
  try {
    // Too long for a name: no look-up leaves the machine.
    HttpClient client(parse_http_url("http://" + std::string(300, 'a')));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected a host that can be found"));
  }
}

TEST(HttpClient, GivesUpOnASilentServer) {
  HttpClientLimits limits;
  limits.idle_timeout = std::chrono::milliseconds(20);
  const Outcome outcome = fetch({{kStreamHead + chunk("data: 1\n\n")}, true}, limits);
  EXPECT_EQ(outcome.result.error, "the answer broke off: timed out");
  EXPECT_THAT(outcome.data, ElementsAre("1"));
}

TEST(HttpClient, LimitsHeaderBodyAndEvents) {
  HttpClientLimits limits;
  limits.header_bytes_max = 100;
  limits.body_bytes_max = 64;
  limits.events.line_bytes_max = 32;
  const std::string long_header = "HTTP/1.1 200 OK\r\nX: " + std::string(200, 'x') + "\r\n\r\n";
  EXPECT_THAT(fetch({{long_header}}, limits).result.error, HasSubstr("header limit"));
  const std::string body =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(std::string(65, 'x'));
  EXPECT_THAT(fetch({{body}}, limits).result.error, HasSubstr("body limit"));
  HttpClientLimits event_limits;
  event_limits.events.line_bytes_max = 32;
  const std::string line = kStreamHead + chunk("data: " + std::string(40, 'x'));
  EXPECT_THAT(fetch({{line}}, event_limits).result.error, HasSubstr("lines of at most 32 bytes"));
}

TEST(HttpClient, RunsManyStreamsAndStartsMoreFromCallbacks) {
  constexpr size_t kStreams = 24;
  const std::string stream =
      kStreamHead + chunk("data: 1\n\n") + chunk("data: 2\n\n") + "0\r\n\r\n";
  ScriptedServer server(std::vector<ScriptedServer::Answer>(kStreams, {{stream}}));
  HttpClient client(parse_http_url(server.url()));
  std::vector<Outcome> outcomes(kStreams);
  // Half of them start at once, each of these starts one more when it ends.
  for (size_t i = 0; i < kStreams / 2; ++i) {
    client.start({}, {[&, i](const SseEvent& event) { outcomes[i].data.push_back(event.data); },
                      [&, i](const HttpClientResult& result) {
                        outcomes[i].result = result;
                        start(client, {}, outcomes[kStreams / 2 + i]);
                      }});
  }
  client.run();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result.error, "");
    EXPECT_THAT(outcome.data, ElementsAre("1", "2"));
  }
}

TEST(HttpClient, RunsActionsInTheOrderOfTheirTimesAndStops) {
  HttpClient client(parse_http_url("http://127.0.0.1:1"));
  const auto now = HttpClient::Clock::now();
  std::vector<int> order;
  client.schedule(now + std::chrono::milliseconds(2), [&] { order.push_back(2); });
  client.schedule(now + std::chrono::milliseconds(1), [&] { order.push_back(1); });
  client.schedule(now + std::chrono::milliseconds(3), [&] { client.stop(); });
  client.schedule(now + std::chrono::hours(1), [&] { order.push_back(3); });
  client.run();
  EXPECT_THAT(order, ElementsAre(1, 2));
}

}  // namespace
}  // namespace halley
