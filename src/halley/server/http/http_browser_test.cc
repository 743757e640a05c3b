// Tests of what pages in a browser may do: names of the server, origins, CORS.
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/http/browser_rules.h"
#include "halley/server/http/http_server.h"
#include "halley/server/http/testing/raw_client.h"
#include "halley/server/http/testing/test_routes.h"

namespace halley {
namespace {

using testing::HasSubstr;

std::string get(std::string_view target, std::string_view headers) {
  return str("GET ", target, " HTTP/1.1\r\nHost: 127.0.0.1\r\n", headers, "\r\n");
}

std::string post(std::string_view headers) {
  return str("POST /echo HTTP/1.1\r\nHost: localhost:8000\r\nContent-Length: 2\r\n", headers,
             "\r\n{}");
}

int status_of_host(const TestServer& test, std::string_view host) {
  return ask(test.port(), str("GET /sized?1 HTTP/1.1\r\nHost: ", host, "\r\n\r\n")).status;
}

TEST(HttpHosts, OfALoopbackAddressAreItsOwnNames) {
  TestServer test({}, /*has_any_name=*/false);
  for (const char* own : {"localhost", "LocalHost:8000", "localhost.", "127.0.0.1", "127.0.0.1:1",
                          "127.1.2.3:80", "[::1]", "[::1]:8000", "[0:0:0:0:0:0:0:1]"}) {
    EXPECT_EQ(status_of_host(test, own), 200) << own;
  }
  for (const char* foreign :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
        "evil-localhost", "0.0.0.0", "10.0.0.1", "[::2]", "[::1].evil.example", "localhost:80.evil",
        "[::1", "::1", "127.1", "0x7f.0.0.1", "localhost:", ":80", "localhost:123456"}) {
    EXPECT_EQ(status_of_host(test, foreign), 403) << foreign;
  }
  // A client of HTTP/1.0 that sends none is no browser.
  EXPECT_EQ(ask(test.port(), "GET /sized?1 HTTP/1.0\r\n\r\n").status, 200);
  const RawAnswer rejected =
      ask(test.port(), "GET /sized?1 HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_THAT(rejected.body, HasSubstr("\"code\":\"host_not_allowed\""));
  EXPECT_THAT(rejected.body, HasSubstr("--allowed-hosts"));
  // Open routes say nothing of the model or its users.
  EXPECT_EQ(ask(test.port(), "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 200);
}

TEST(HttpHosts, AreCheckedBeforeTheBodyIsRead) {
  TestServer test({}, /*has_any_name=*/false);
  EXPECT_EQ(
      ask(test.port(), "POST /echo HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 99999\r\n\r\n")
          .status,
      403);
}

TEST(HttpHosts, NeedNotBeKnownWithAKey) {
  HttpServerConfig config;
  config.api_keys = {"secret"};
  TestServer test(std::move(config), /*has_any_name=*/false);
  const std::string request = "GET /sized?1 HTTP/1.1\r\nHost: a.example\r\n";
  EXPECT_EQ(ask(test.port(), request + "\r\n").status, 401);
  EXPECT_EQ(ask(test.port(), request + "Authorization: Bearer secret\r\n\r\n").status, 200);
}

TEST(HttpHosts, AreThoseThatAreNamed) {
  HttpServerConfig config;
  config.allowed_hosts = {"LLM.example.org", "b.example:81"};
  TestServer test(std::move(config), /*has_any_name=*/false);
  for (const char* allowed :
       {"llm.example.org", "llm.EXAMPLE.org:443", "b.example:81", "127.0.0.1"}) {
    EXPECT_EQ(status_of_host(test, allowed), 200) << allowed;
  }
  for (const char* other : {"b.example", "b.example:82", "a.llm.example.org", "example.org"}) {
    EXPECT_EQ(status_of_host(test, other), 403) << other;
  }
}

TEST(HttpHosts, AreNotCheckedAtAnAddressThatOthersReach) {
  HttpServerConfig config;
  config.host = "0.0.0.0";
  TestServer test(config, /*has_any_name=*/false);
  EXPECT_FALSE(test.server->is_loopback());
  EXPECT_EQ(status_of_host(test, "a.example"), 200);
  config.allowed_hosts = {"b.example"};
  TestServer named(std::move(config), /*has_any_name=*/false);
  EXPECT_EQ(status_of_host(named, "a.example"), 403);
  EXPECT_EQ(status_of_host(named, "b.example"), 200);
}

TEST(HttpHosts, RejectsWhatIsNoHost) {
  for (const char* host :
       {"", "https://a.example", "a.example/", "a b", "a.example:port", "[::1"}) {
    HttpServerConfig config;
    config.allowed_hosts = {host};
    EXPECT_THAT([&] { HttpServer(config, {}); },
                testing::ThrowsMessage<InputError>(HasSubstr("Change --allowed-hosts")))
        << host;
  }
}

TEST(HttpPages, OfOtherSitesReachNothing) {
  TestServer test({}, /*has_any_name=*/false);
  // A page of another site can send forms and text without a preflight.
  for (const char* headers :
       {"Origin: https://evil.example\r\nContent-Type: text/plain\r\n",
        "Origin: null\r\nContent-Type: application/x-www-form-urlencoded\r\n",
        "Origin: http://localhost:3000\r\n", "Origin: http://localhost:8000.evil.example\r\n",
        "Origin: http://127.0.0.1:8000\r\nContent-Type: application/json\r\n",
        "Origin: https://evil.example\r\nContent-Type: application/json\r\n",
        "Origin: ftp://localhost:8000\r\n", "Origin: \r\n",
        "Origin: https://evil.example\r\nSec-Fetch-Site: same-origin\r\n",
        "Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: Same-Origin\r\n", "Sec-Fetch-Site: \r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n"}) {
    const RawAnswer answer = ask(test.port(), post(headers));
    EXPECT_EQ(answer.status, 403) << headers;
    EXPECT_THAT(answer.body, HasSubstr("\"code\":\"origin_not_allowed\"")) << headers;
  }
  EXPECT_EQ(ask(test.port(), get("/sized?1", "Origin: https://evil.example\r\n")).status, 403);
  EXPECT_EQ(ask(test.port(), get("/sized?1", "Sec-Fetch-Site: cross-site\r\n")).status, 403);
  // A page at another port of this machine.
  EXPECT_EQ(ask(test.port(), get("/sized?1", "Sec-Fetch-Site: same-site\r\n")).status, 403);
  // A link that somebody follows shows its answer to nobody else.
  EXPECT_EQ(ask(test.port(), get("/sized?1",
                                 "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"
                                 "Sec-Fetch-Dest: document\r\n"))
                .status,
            200);
  EXPECT_EQ(ask(test.port(), get("/health", "Origin: https://evil.example\r\n")).status, 200);
  EXPECT_EQ(ask(test.port(), post("Origin: http://localhost:8000\r\n"
                                  "Origin: https://evil.example\r\n"))
                .status,
            400);
}

TEST(HttpPages, OfTheServerItselfAndProgramsReachAll) {
  TestServer test({}, /*has_any_name=*/false);
  for (const char* headers :
       {"", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n",
        "Sec-Fetch-Mode: cors\r\n",  // Node's fetch
        "Origin: http://localhost:8000\r\nContent-Type: application/json\r\n",
        "Origin: http://LOCALHOST:8000\r\nContent-Type: Application/JSON; charset=utf-8\r\n",
        "Origin: https://localhost:8000\r\nContent-Type: application/json\r\n",
        "Sec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\n",
        "Sec-Fetch-Site: none\r\nContent-Type: application/json\r\n"}) {
    EXPECT_EQ(ask(test.port(), post(headers)).body, "{}") << headers;
  }
  // Default ports are not written.
  EXPECT_EQ(ask(test.port(), get("/sized?1", "Origin: http://127.0.0.1\r\n")).status, 200);
  EXPECT_EQ(ask(test.port(), get("/sized?1", "Origin: http://127.0.0.1:80\r\n")).status, 200);
  EXPECT_EQ(ask(test.port(), get("/sized?1", "Origin: http://127.0.0.1:443\r\n")).status, 403);
}

TEST(HttpPages, SendJson) {
  HttpServerConfig config;
  config.allowed_origins = {"https://a.example"};
  TestServer test(std::move(config));
  for (const char* headers :
       {"Origin: https://a.example\r\n",
        "Origin: https://a.example\r\nContent-Type: text/plain\r\n",
        "Sec-Fetch-Site: same-origin\r\nContent-Type: application/json-x\r\n",
        "Origin: http://localhost:8000\r\nContent-Type: multipart/form-data; boundary=a\r\n"}) {
    const RawAnswer answer = ask(test.port(), post(headers));
    EXPECT_EQ(answer.status, 415) << headers;
    EXPECT_THAT(answer.body, HasSubstr("expected application/json from a browser")) << headers;
  }
  EXPECT_EQ(
      ask(test.port(), post("Origin: https://a.example\r\nContent-Type: application/json\r\n"))
          .status,
      200);
}

TEST(HttpPages, NeedNoOriginWithAKey) {
  HttpServerConfig config;
  config.api_keys = {"secret"};
  TestServer test(std::move(config));
  const std::string page = "Origin: https://a.example\r\nSec-Fetch-Site: cross-site\r\n";
  EXPECT_EQ(ask(test.port(), post(page)).status, 401);
  EXPECT_EQ(ask(test.port(), post(page + "Authorization: Bearer secret\r\n")).status, 200);
}

TEST(HttpOrigins, AreNotAllowedWithoutBeingNamed) {
  TestServer test;
  const RawAnswer answer = ask(test.port(), get("/health", "Origin: https://a.example\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.count("access-control-allow-origin"), 0u);
}

TEST(HttpOrigins, AreAllowedWhereTheyAreNamed) {
  HttpServerConfig config;
  config.api_keys = {"secret"};
  config.allowed_origins = {"https://a.example", "HTTP://B.example:81"};
  TestServer test(config);
  const RawAnswer preflight =
      ask(test.port(),
          "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\n"
          "Access-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-methods"), "POST, OPTIONS");
  EXPECT_EQ(preflight.headers.at("vary"), "origin");
  EXPECT_EQ(preflight.headers.count("access-control-allow-credentials"), 0u);
  // Errors too, so that a page can show them.
  const RawAnswer rejected = ask(test.port(), get("/sized?1", "Origin: http://b.example:81\r\n"));
  EXPECT_EQ(rejected.status, 401);
  EXPECT_EQ(rejected.headers.at("access-control-allow-origin"), "http://b.example:81");
  const RawAnswer other = ask(test.port(), get("/health", "Origin: https://a.example.evil\r\n"));
  EXPECT_EQ(other.headers.count("access-control-allow-origin"), 0u);
}

TEST(HttpOrigins, RejectsWhatIsNoOrigin) {
  for (const char* origin :
       {"", "a.example", "https://", "://a", "https://a/", "https://a/b", "https://a b",
        "https://a:port", "https://user@a", "https://a?b", "[\"*\"]"}) {
    HttpServerConfig config;
    config.allowed_origins = {origin};
    try {
      HttpServer server(config, {});
      FAIL() << origin;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("expected \"*\" or scheme and host")) << origin;
    }
  }
}

std::string preflight(std::string_view headers) {
  return str("OPTIONS /echo HTTP/1.1\r\nHost: x\r\nAccess-Control-Request-Method: POST\r\n",
             headers, "\r\n");
}

TEST(HttpOrigins, MaySendTheHeadersThatTheirClientsHave) {
  HttpServerConfig config;
  config.allowed_origins = {"https://a.example"};
  TestServer test(std::move(config));
  const std::string origin = "Origin: https://a.example\r\n";
  // OpenAI's client for JavaScript asks for these in a browser.
  const std::string asked =
      "authorization,content-type,openai-organization,x-stainless-arch,x-stainless-lang,"
      "x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,"
      "x-stainless-runtime-version,x-stainless-timeout";
  const auto allowed_headers = [&](const std::string& list) {
    const RawAnswer answer =
        ask(test.port(), preflight(str(origin, "Access-Control-Request-Headers: ", list, "\r\n")));
    EXPECT_EQ(answer.status, 204);
    return answer.headers.at("access-control-allow-headers");
  };
  EXPECT_EQ(allowed_headers(asked), asked);
  EXPECT_EQ(allowed_headers("anthropic-version, x-api-key"), "anthropic-version, x-api-key");
  for (const std::string& bad :
       {std::string("a\tb"), std::string("a: b"), std::string("a;b"), std::string(3000, 'a')}) {
    EXPECT_EQ(allowed_headers(bad), "authorization, content-type, x-request-id") << bad;
  }
  const RawAnswer other = ask(test.port(), preflight("Origin: https://evil.example\r\n"
                                                     "Access-Control-Request-Headers: a\r\n"));
  EXPECT_EQ(other.headers.count("access-control-allow-headers"), 0u);
  EXPECT_EQ(other.headers.count("access-control-allow-origin"), 0u);
}

TEST(HttpOrigins, OfTheInternetMayReachAPrivateAddressWhereTheyAreNamed) {
  HttpServerConfig config;
  config.allowed_origins = {"https://a.example"};
  TestServer test(std::move(config));
  const auto private_network = [&](const std::string& headers) {
    return ask(test.port(), preflight(headers))
        .headers.count("access-control-allow-private-network");
  };
  const std::string asks = "Access-Control-Request-Private-Network: true\r\n";
  EXPECT_EQ(private_network("Origin: https://a.example\r\n" + asks), 1u);
  EXPECT_EQ(private_network("Origin: https://a.example\r\n"), 0u);
  EXPECT_EQ(private_network("Origin: https://b.example\r\n" + asks), 0u);
}

TEST(HttpOrigins, MayAllBeNamedAtOnce) {
  HttpServerConfig config;
  config.allowed_origins = {"*"};
  TestServer test(std::move(config));
  const std::string json = "Content-Type: application/json\r\n";
  EXPECT_EQ(ask(test.port(), post("Origin: https://a.example\r\n" + json)).status, 200);
  EXPECT_EQ(ask(test.port(), post("Origin: null\r\n" + json)).status, 200);
  EXPECT_EQ(ask(test.port(), get("/sized?1", "Sec-Fetch-Site: cross-site\r\n")).status, 200);
}

}  // namespace
}  // namespace halley
