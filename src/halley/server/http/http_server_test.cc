// Tests of requests and answers, with a client that shares no code with the server.
#include "halley/server/http/http_server.h"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"
#include "halley/server/http/testing/raw_client.h"
#include "halley/server/http/testing/test_routes.h"

namespace halley {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

std::string post(std::string_view headers, std::string_view body) {
  return str("POST /echo HTTP/1.1\r\nHost: x\r\n", headers, "\r\n", body);
}

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  TestServer test;
  RawClient client(test.port());
  for (int i = 0; i < 3; ++i) {
    client.send(post("Content-Length: 5\r\n", "hello"));
    const RawAnswer answer = client.receive();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "hello");
    EXPECT_EQ(answer.headers.at("content-type"), "text/plain");
    EXPECT_EQ(answer.headers.at("x-request-id").size(), 36u);
    EXPECT_EQ(answer.headers.count("connection"), 0u);
  }
}

TEST(HttpServer, TakesBytesOneAtATime) {
  TestServer test;
  RawClient client(test.port());
  const std::string chunked =
      post("Transfer-Encoding: chunked\r\n",
           "1;a=b\r\nh\r\n1\r\ne\r\n1\r\nl\r\n2\r\nlo\r\n0\r\nTrailer: t\r\n\r\n");
  for (const char c : chunked) ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.receive().body, "hello");
  const std::string empty = post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n");
  for (const char c : empty) ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.receive().body, "");
  const std::string sized = "\r\n" + post("Content-Length: 5\r\n", "again");
  for (const char c : sized) ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.receive().body, "again");
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  TestServer test;
  RawClient client(test.port());
  std::string all;
  for (int i = 0; i < 500; ++i) {
    const std::string body = std::to_string(i);
    all += post(str("Content-Length: ", body.size(), "\r\n"), body);
    all += "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n";
  }
  ASSERT_TRUE(client.send(all));
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(client.receive().body, std::to_string(i));
    EXPECT_EQ(client.receive().status, 404);
  }
}

TEST(HttpServer, AnswersAllThatWasPipelinedBeforeTheClientStoppedSending) {
  TestServer test;
  RawClient client(test.port());
  client.send(post("Content-Length: 1\r\n", "a") + post("Content-Length: 1\r\n", "b"));
  client.close_sending();
  EXPECT_EQ(client.receive().body, "a");
  EXPECT_EQ(client.receive().body, "b");
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpServer, ClosesWhereTheClientAsksForIt) {
  TestServer test;
  RawClient client(test.port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n");
  EXPECT_EQ(client.receive().headers.at("connection"), "close");
  EXPECT_TRUE(client.is_closed_by_server());
  RawClient old_client(test.port());
  old_client.send("GET /health HTTP/1.0\r\n\r\n");
  const RawAnswer answer = old_client.receive();
  EXPECT_EQ(answer.body, "ok");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(old_client.is_closed_by_server());
}

TEST(HttpServer, AnswersHeadAndOptions) {
  TestServer test;
  RawClient client(test.port());
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const RawAnswer head = client.receive(/*is_head=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "2");
  client.send("OPTIONS /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const RawAnswer options = client.receive();
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(options.headers.count("access-control-allow-origin"), 0u);
  client.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.receive().headers.at("allow"), "GET, POST, HEAD, OPTIONS");
  client.send("HEAD /throw HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.receive(/*is_head=*/true).status, 500);
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.receive().body, "ok");
}

TEST(HttpServer, ErrorsHaveTheFormatOfOpenAi) {
  TestServer test;
  const RawAnswer answer = ask(test.port(), "GET /v1/\"<x> HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  const Json error = parse_json(answer.body, "answer").at("error");
  EXPECT_EQ(error.at("message"), "No such path: \"/v1/\\\"<x>\".");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_EQ(error.at("code"), "unknown_path");
  EXPECT_TRUE(error.at("param").is_null());
  EXPECT_EQ(error.size(), 4u);
}

TEST(HttpServer, AnswersAnotherMethodWith405) {
  TestServer test;
  const RawAnswer answer = ask(test.port(), "DELETE /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.headers.at("allow"), "POST, OPTIONS");
}

TEST(HttpServer, AnswersWith500WhereTheRouteFails) {
  TestServer test;
  RawClient client(test.port());
  for (const char* path : {"/throw", "/drop"}) {
    client.send(str("GET ", path, " HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n\r\n"));
    const RawAnswer answer = client.receive();
    EXPECT_EQ(answer.status, 500) << path;
    EXPECT_EQ(answer.body.find("inside"), std::string::npos) << answer.body;
    EXPECT_EQ(answer.headers.at("x-request-id"), "mine-1");
  }
  EXPECT_EQ(test.logged(2).at(0).error, "the inside of the server");
}

TEST(HttpServer, HeadersOfAnAnswerCannotBeSplit) {
  TestServer test;
  RawClient client(test.port());
  client.send("GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  HttpResponse response;
  response.headers.emplace_back("x-value", "a\r\nset-cookie: b");
  test.kept()->respond(response);
  const RawAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.headers.count("set-cookie"), 0u);
}

TEST(HttpServer, MakesItsOwnIdForOnesThatAreLongOrNotPlain) {
  TestServer test;
  RawClient client(test.port());
  for (const std::string& id : {std::string(65, 'a'), std::string("a b"), std::string("\"x\"")}) {
    client.send(str("GET /health HTTP/1.1\r\nHost: x\r\nx-request-id: ", id, "\r\n\r\n"));
    EXPECT_THAT(client.receive().headers.at("x-request-id"), testing::StartsWith("req_")) << id;
  }
}

struct BadRequest {
  const char* name;
  int status;
  std::string bytes;
};

std::vector<BadRequest> bad_requests() {
  const std::string get = "GET /health HTTP/1.1\r\nHost: x\r\n";
  std::string many;
  for (int i = 0; i < 101; ++i) many += str("a", i, ": b\r\n");
  const std::string long_value(40'000, 'v');
  return {
      {"no request", 400, "hello\r\n\r\n"},
      {"TLS", 400, std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)},
      {"zero bytes", 400, std::string(16, '\0')},
      {"HTTP/2", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {"HTTP/0.9", 505, "GET /health HTTP/0.9\r\n\r\n"},
      {"no version", 400, "GET /health\r\n\r\n"},
      {"bare line feeds", 400, "GET /health HTTP/1.1\nHost: x\n\n"},
      {"blank before the colon", 400, "GET /health HTTP/1.1\r\nHost : x\r\n\r\n"},
      {"header without name", 400, get + ": x\r\n\r\n"},
      {"header without colon", 400, get + "abc\r\n\r\n"},
      {"NUL in a header", 400, get + std::string("a: b\0c\r\n\r\n", 10)},
      {"CR in a header", 400, get + "a: b\rc\r\n\r\n"},
      {"no host", 400, "GET /health HTTP/1.1\r\n\r\n"},
      {"two hosts", 400, get + "Host: x\r\n\r\n"},
      {"host with a path", 400, "GET /health HTTP/1.1\r\nHost: x/y\r\n\r\n"},
      {"two keys", 400, get + "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"},
      {"absolute form", 400, "GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"authority form", 400, "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"asterisk form", 400, "GET * HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"fragment", 400, "GET /health#x HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"8-bit target", 400, "GET /health\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"both lengths", 400,
       post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")},
      {"both lengths, other order", 400,
       post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n")},
      {"length and unknown coding", 400,
       post("Content-Length: 5\r\nTransfer-Encoding: x\r\n", "hello")},
      {"unknown coding", 501, post("Transfer-Encoding: gzip\r\n", "")},
      {"coding behind chunked", 501, post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")},
      {"chunked twice", 400,
       post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")},
      {"two lengths", 400, post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello")},
      {"two equal lengths", 400, post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")},
      {"list of lengths", 400, post("Content-Length: 5, 5\r\n", "hello")},
      {"negative length", 400, post("Content-Length: -1\r\n", "hello")},
      {"signed length", 400, post("Content-Length: +5\r\n", "hello")},
      {"hexadecimal length", 400, post("Content-Length: 0x5\r\n", "hello")},
      {"no length", 400, post("Content-Length:\r\n", "hello")},
      {"length of 2^64", 400, post("Content-Length: 18446744073709551616\r\n", "hello")},
      {"length of 2^64-1", 413, post("Content-Length: 18446744073709551615\r\n", "hello")},
      {"body too large", 413, post("Content-Length: 1001\r\n", "")},
      {"chunk too large", 413, post("Transfer-Encoding: chunked\r\n", "3e9\r\n")},
      {"chunk of 2^64-1", 413, post("Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\n")},
      {"chunk of 2^64", 400, post("Transfer-Encoding: chunked\r\n", "10000000000000000\r\n")},
      {"chunk without size", 400, post("Transfer-Encoding: chunked\r\n", "\r\nhello")},
      {"negative chunk", 400, post("Transfer-Encoding: chunked\r\n", "-1\r\nh\r\n")},
      {"chunk without end", 400, post("Transfer-Encoding: chunked\r\n", "1\r\nhello\r\n")},
      {"long chunk extension", 400,
       post("Transfer-Encoding: chunked\r\n", "1;" + long_value + "\r\nh\r\n")},
      {"long trailer", 400,
       post("Transfer-Encoding: chunked\r\n", "0\r\na: " + long_value + "\r\n\r\n")},
      {"chunked HTTP/1.0", 400,
       "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"long target", 414, "GET /" + std::string(9'000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"endless target", 414, "GET /" + long_value},
      {"endless method", 414, long_value},
      {"long header", 431, get + "a: " + long_value + "\r\n\r\n"},
      {"endless header name", 431, get + long_value},
      {"too many headers", 431, get + many + "\r\n"},
      {"headers too long together", 431,
       get + "a: " + long_value.substr(0, 30'000) + "\r\nb: " + long_value.substr(0, 30'000)},
      {"expectation", 417, post("Expect: 200-ok\r\nContent-Length: 5\r\n", "hello")},
      {"compressed", 415, post("Content-Encoding: gzip\r\nContent-Length: 5\r\n", "hello")},
  };
}

TEST(HttpServer, RejectsWhatIsNoRequestAndCloses) {
  HttpServerConfig config;
  config.limits.body_bytes_max = 1000;
  TestServer test(config);
  for (const BadRequest& bad : bad_requests()) {
    RawClient client(test.port());
    // The last part would be answered with 200 if the server read on after a rejected request.
    client.send(bad.bytes + "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    const RawAnswer answer = client.receive();
    EXPECT_EQ(answer.status, bad.status) << bad.name << ": " << answer.body;
    EXPECT_EQ(answer.headers.count("x-request-id"), 1u) << bad.name;
    EXPECT_TRUE(parse_json(answer.body, bad.name).contains("error")) << bad.name;
    EXPECT_TRUE(client.is_closed_by_server()) << bad.name;
  }
}

TEST(HttpServer, HoldsBodiesOfAllRequestsWithinOneLimit) {
  HttpServerConfig config;
  config.limits.all_bodies_bytes_max = 1500;
  config.limits.free_body_bytes = 0;
  TestServer test(config);
  const std::string half = post("Content-Length: 1001\r\n", std::string(1000, 'a'));
  RawClient first(test.port());
  first.send(half);
  const std::string other = post("Content-Length: 1000\r\n", std::string(1000, 'b'));
  // The first body arrives at some time: ask until it has.
  const RawAnswer rejected = ask_until(test.port(), other, 503);
  ASSERT_EQ(rejected.status, 503);
  EXPECT_EQ(rejected.headers.at("retry-after"), "1");
  first.send("a");
  EXPECT_EQ(first.receive().status, 200);
  EXPECT_EQ(ask_until(test.port(), other, 200).status, 200);
}

TEST(HttpServer, TakesShortBodiesWhateverLongOnesHold) {
  HttpServerConfig config;
  config.limits.all_bodies_bytes_max = 900;
  config.limits.free_body_bytes = 100;
  TestServer test(config);
  RawClient first(test.port());
  first.send(post("Content-Length: 1001\r\n", std::string(1000, 'a')));
  const auto body_of = [](size_t size) {
    return post(str("Content-Length: ", size, "\r\n"), std::string(size, 'b'));
  };
  // The first body arrives at some time: ask until it has.
  ASSERT_EQ(ask_until(test.port(), body_of(101), 503).status, 503);
  EXPECT_EQ(ask(test.port(), body_of(100)).status, 200);
  EXPECT_EQ(ask(test.port(), post("Transfer-Encoding: chunked\r\n",
                                  "32\r\n" + std::string(50, 'b') + "\r\n32\r\n" +
                                      std::string(50, 'b') + "\r\n0\r\n\r\n"))
                .status,
            200);
  first.send("a");
  EXPECT_EQ(first.receive().status, 503) << "it is 901 bytes beyond those that are free";
}

TEST(HttpServer, SendsContinueOnlyToThoseWhoseBodyItTakes) {
  HttpServerConfig config;
  config.api_keys = {"secret"};
  TestServer test(config);
  const std::string key = "Authorization: Bearer secret\r\n";
  const std::string expect = "Expect: 100-continue\r\nContent-Length: 5\r\n";
  RawClient client(test.port());
  client.send(post(key + expect, ""));
  EXPECT_EQ(client.receive_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("hello");
  EXPECT_EQ(client.receive().body, "hello");
  client.send(post(key + expect, "hello"));  // sent without waiting: no "100 Continue"
  EXPECT_EQ(client.receive().body, "hello");
  client.send(post(expect, ""));
  EXPECT_EQ(client.receive().status, 401);
  EXPECT_EQ(ask(test.port(), post(key + "Expect: 100-continue\r\nContent-Length: 99999999\r\n", ""))
                .status,
            413);
}

TEST(HttpServer, AnswersSlowClientsWith408) {
  HttpServerConfig config;
  config.limits.header_timeout = milliseconds(1000);
  config.limits.body_timeout = milliseconds(100);
  TestServer test(config);
  RawClient silent(test.port());
  RawClient in_head(test.port());
  RawClient dripping(test.port());
  in_head.send("GET /health HTTP/1.1\r\nHos");
  dripping.send("GET /health HTTP/1.1\r\n");
  EXPECT_EQ(ask(test.port(), post("Content-Length: 5\r\n", "hell")).status, 408);
  EXPECT_EQ(ask(test.port(), post("Transfer-Encoding: chunked\r\n", "5\r\nhello")).status, 408);
  // A header now and then does not lengthen the time.
  for (int i = 0; i < 90 && !dripping.has_input(50); ++i) dripping.send("a: b\r\n");
  EXPECT_EQ(dripping.receive().status, 408);
  EXPECT_EQ(in_head.receive().status, 408);
  EXPECT_TRUE(silent.is_closed_by_server());
}

TEST(HttpServer, ClosesIdleConnections) {
  HttpServerConfig config;
  config.limits.idle_timeout = milliseconds(50);
  TestServer test(config);
  RawClient client(test.port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpServer, SurvivesADisconnectAfterEveryByteOfARequest) {
  TestServer test;
  const std::string request = post("Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n",
                                   "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
  for (size_t num = 0; num <= request.size(); ++num) {
    RawClient ended(test.port());
    ended.send(std::string_view(request).substr(0, num));
    ended.close();
    RawClient was_reset(test.port());
    was_reset.send(std::string_view(request).substr(0, num));
    was_reset.reset();
  }
  EXPECT_EQ(ask(test.port(), post("Content-Length: 5\r\n", "alive")).body, "alive");
}

TEST(HttpServer, LogsEachRequestOnce) {
  TestServer test;
  RawClient client(test.port());
  client.send("GET /health?token=private HTTP/1.1\r\nHost: x\r\nx-request-id: abc\r\n\r\n");
  client.receive();
  client.send("nonsense\r\n\r\n");
  client.receive();
  const auto logged = test.logged(2);
  ASSERT_EQ(logged.size(), 2u);
  EXPECT_EQ(logged[0].method, "GET");
  EXPECT_EQ(logged[0].path, "/health");
  EXPECT_EQ(logged[0].request_id, "abc");
  EXPECT_EQ(logged[0].status, 200);
  EXPECT_GT(logged[0].sent_bytes, 50u);
  EXPECT_TRUE(logged[0].is_complete);
  EXPECT_THAT(logged[0].client, testing::StartsWith("127.0.0.1:"));
  EXPECT_EQ(logged[1].status, 400);
  EXPECT_EQ(logged[1].method, "");
}

}  // namespace
}  // namespace halley
