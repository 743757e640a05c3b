// Tests of API keys and attempts to get around them.
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/http/api_keys.h"
#include "halley/server/http/http_server.h"
#include "halley/server/http/testing/raw_client.h"
#include "halley/server/http/testing/test_routes.h"

namespace halley {
namespace {

using testing::HasSubstr;

HttpServerConfig config_with_keys() {
  HttpServerConfig config;
  config.api_keys = {"secret-1", "secret-2"};
  return config;
}

std::string get(std::string_view target, std::string_view headers) {
  return str("GET ", target, " HTTP/1.1\r\nHost: x\r\n", headers, "\r\n");
}

TEST(ApiKeys, AcceptsWholeKeysAlone) {
  const ApiKeys keys({"secret", std::string(512, 'k')});
  EXPECT_TRUE(keys.accepts("secret"));
  EXPECT_TRUE(keys.accepts(std::string(512, 'k')));
  for (const std::string& wrong :
       {std::string(), std::string("secre"), std::string("secret "), std::string("secretx"),
        std::string("Secret"), std::string("secret\0", 7), std::string(511, 'k'),
        std::string(513, 'k'), std::string(512, '\0'), std::string("\0", 1)}) {
    EXPECT_FALSE(keys.accepts(wrong)) << quote(wrong);
  }
  EXPECT_FALSE(ApiKeys({}).accepts(""));
}

TEST(ApiKeys, RejectsKeysThatNoHeaderCanCarry) {
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a\n"),
                                 std::string("\xc3\xa9"), std::string(513, 'k')}) {
    try {
      ApiKeys({"good", bad});
      FAIL() << quote(bad);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("API key 2: expected 1 to 512 printable ASCII"));
      EXPECT_EQ(bad.size() > 1 && std::string(error.what()).find(bad) != std::string::npos, false);
    }
  }
}

TEST(HttpKeys, RoutesNeedOneUnlessTheyAreOpen) {
  TestServer test(config_with_keys());
  EXPECT_EQ(ask(test.port(), get("/health", "")).status, 200);
  const RawAnswer rejected = ask(test.port(), get("/sized?1", ""));
  EXPECT_EQ(rejected.status, 401);
  EXPECT_EQ(rejected.headers.at("www-authenticate"), "Bearer realm=\"halley\"");
  EXPECT_THAT(rejected.body, HasSubstr("\"code\":\"invalid_api_key\""));
  for (const char* header :
       {"Authorization: Bearer secret-1\r\n", "authorization: bearer secret-2\r\n",
        "Authorization:   Bearer   secret-1  \r\n", "X-Api-Key: secret-1\r\n",
        "Authorization: Basic x\r\nx-api-key: secret-2\r\n"}) {
    EXPECT_EQ(ask(test.port(), get("/sized?1", header)).status, 200) << header;
  }
}

TEST(HttpKeys, AreTakenFromTheirHeadersAlone) {
  TestServer test(config_with_keys());
  for (const char* header :
       {"Authorization: secret-1\r\n", "Authorization: Basic secret-1\r\n",
        "Authorization: Bearer\r\n", "Authorization: Bearer \r\n",
        "Authorization: Bearersecret-1\r\n", "Authorization: Bearer secret-1x\r\n",
        "Authorization: Bearer secret-1, secret-2\r\n", "Authorization: Bearer Bearer secret-1\r\n",
        "X-Api-Key: secret\r\n", "X-Api-Key: Bearer secret-1\r\n", "X-Api-Key:\r\n",
        "Authorization: Bearer no\r\nX-Api-Key: secret-1\r\n", "Api-Key: secret-1\r\n",
        "Cookie: key=secret-1\r\n", "Proxy-Authorization: Bearer secret-1\r\n"}) {
    EXPECT_EQ(ask(test.port(), get("/sized?1", header)).status, 401) << header;
    EXPECT_EQ(ask(test.port(), get("/sized?api_key=secret-1", header)).status, 401) << header;
  }
}

// The route is found by the same bytes that decide about the key: another spelling of a path is
// another path, for both.
TEST(HttpKeys, NoSpellingOfAPathGetsAround) {
  TestServer test(config_with_keys());
  for (const char* target : {"//sized",
                             "/sized/",
                             "/./sized",
                             "/health/../sized",
                             "/%73ized",
                             "/sized%00",
                             "/sized;x",
                             "/SIZED",
                             "/%2fsized",
                             "/health%2f..%2fsized",
                             "/sized%3f1",
                             "/health//../sized",
                             "/sized%20",
                             "/health/%2e%2e/sized",
                             "\\sized",
                             "http://x/sized",
                             "http://x/health/../sized",
                             "x:80",
                             "/sized#",
                             "//x/sized",
                             "/health;/../sized"}) {
    for (const char* version : {"HTTP/1.1", "HTTP/1.0"}) {
      const RawAnswer answer =
          ask(test.port(), str("GET ", target, " ", version, "\r\nHost: x\r\n\r\n"));
      EXPECT_TRUE(answer.status == 404 || answer.status == 400) << target << " " << answer.status;
    }
  }
  for (const char* headers :
       {"X-Original-URL: /health\r\n", "X-Rewrite-URL: /health\r\n",
        "X-Forwarded-For: 127.0.0.1\r\n", "X-HTTP-Method-Override: OPTIONS\r\n",
        "Forwarded: for=127.0.0.1\r\n"}) {
    EXPECT_EQ(ask(test.port(), get("/sized?1", headers)).status, 401) << headers;
  }
  EXPECT_EQ(ask(test.port(), get("/sized?/health", "")).status, 401);
  EXPECT_EQ(ask(test.port(), get("/health?/../sized", "")).body, "ok");
  RawClient head(test.port());
  head.send("HEAD /sized?1 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(head.receive(/*is_head=*/true).status, 401);
}

TEST(HttpKeys, AreAskedForBeforeTheBodyIsRead) {
  TestServer test(config_with_keys());
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\n";
  EXPECT_EQ(ask(test.port(), head + "Content-Length: 5\r\n\r\n").status, 401);
  EXPECT_EQ(ask(test.port(), head + "Content-Length: 999999999999\r\n\r\n").status, 401);
  EXPECT_EQ(ask(test.port(), head + "Transfer-Encoding: chunked\r\n\r\n").status, 401);
  // The answer arrives although the server has read only a part of the request.
  RawClient client(test.port());
  client.send(head + "Content-Length: 4000000\r\n\r\n" + std::string(4'000'000, 'x'));
  EXPECT_EQ(client.receive().status, 401);
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpKeys, AKeyDoesNotStayWithTheConnection) {
  TestServer test(config_with_keys());
  RawClient client(test.port());
  client.send(get("/sized?1", "Authorization: Bearer secret-1\r\n") + get("/sized?1", ""));
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(client.receive().status, 401);
}

TEST(HttpKeys, ErrorsHaveTheFormatOfTheRoute) {
  HttpRoute route = {"POST", "/own", [](const std::shared_ptr<HttpExchange>& exchange) {
                       exchange->respond({.body = "ok"});
                     }};
  route.error_body = [](int status, std::string_view openai_body) {
    return str(status, openai_body.starts_with(R"({"error":)") ? " of OpenAI" : "");
  };
  HttpServerConfig config = config_with_keys();
  config.limits.body_bytes_max = 4;
  HttpServer server(std::move(config), {route});
  server.start();
  const auto post = [&](std::string_view headers, std::string_view body) {
    return ask(server.port(), str("POST /own HTTP/1.1\r\nHost: 127.0.0.1\r\n", headers,
                                  "Content-Length: ", body.size(), "\r\n\r\n", body));
  };
  EXPECT_EQ(post("", "1234").body, "401 of OpenAI");
  EXPECT_EQ(post("x-api-key: secret-1\r\n", "12345").body, "413 of OpenAI");
  EXPECT_EQ(post("x-api-key: secret-1\r\n", "1234").body, "ok");
}

}  // namespace
}  // namespace halley
