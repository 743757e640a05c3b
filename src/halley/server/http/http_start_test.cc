// Tests of a server that starts before its routes can be used, and of names in paths.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/server/http/http_error.h"
#include "halley/server/http/http_server.h"
#include "halley/server/http/testing/raw_client.h"

namespace halley {
namespace {

HttpRoute route_of(std::string method, std::string path, std::string body, bool is_open = false) {
  return {.method = std::move(method),
          .path = std::move(path),
          .handler =
              [body = std::move(body)](const std::shared_ptr<HttpExchange>& exchange) {
                exchange->respond({.body = body});
              },
          .is_open = is_open};
}

HttpServerConfig any_name() {
  HttpServerConfig config;
  config.allowed_hosts = {"*"};
  return config;
}

std::string request(const std::string& method, const std::string& path) {
  return str(method, " ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
}

TEST(HttpStart, AnswersAllRequestsUntilThereAreRoutes) {
  HttpServer server(any_name(), {route_of("GET", "/", "page", /*is_open=*/true)},
                    http_error(503, "Wait.", "loading"));
  server.start();
  for (const char* path : {"/health", "/v1/models", "/none"}) {
    for (const char* method : {"GET", "POST", "OPTIONS"}) {
      const RawAnswer answer = ask(server.port(), request(method, path));
      EXPECT_EQ(answer.status, 503) << method << path;
      EXPECT_THAT(answer.body, testing::HasSubstr("\"code\":\"loading\"")) << method << path;
    }
  }
  EXPECT_EQ(ask(server.port(), request("GET", "/")).body, "page");
  // A connection that is open already gets the new routes too.
  RawClient client(server.port());
  client.send(request("GET", "/health"));
  EXPECT_EQ(client.receive().status, 503);
  server.set_routes({route_of("GET", "/health", "ok", /*is_open=*/true)});
  client.send(request("GET", "/health"));
  EXPECT_EQ(client.receive().body, "ok");
  EXPECT_EQ(ask(server.port(), request("GET", "/none")).status, 404);
}

TEST(HttpStart, RoutesChangeWhileRequestsCome) {
  HttpServer server(any_name(), {}, http_error(503, "Wait.", "loading"));
  server.start();
  std::thread changes([&] {
    for (int i = 0; i < 50; ++i) server.set_routes({route_of("GET", "/health", str(i))});
  });
  int last = -1;
  RawClient client(server.port());
  while (last < 49) {
    client.send(request("GET", "/health"));
    const RawAnswer answer = client.receive();
    ASSERT_TRUE(answer.status == 200 || (answer.status == 503 && last < 0)) << answer.status;
    if (answer.status == 503) continue;
    ASSERT_GE(std::stoi(answer.body), last);  // never an older one again
    last = std::stoi(answer.body);
  }
  changes.join();
}

TEST(HttpNames, MayBePercentEncodedWhereARouteSaysSo) {
  HttpRoute named = route_of("GET", "/models/org/a name:1", "found");
  named.encoded_from = std::string("/models/").size();
  HttpServer server(any_name(), {named, route_of("GET", "/exact/org/name", "exact")});
  server.start();
  for (const char* path : {"/models/org%2Fa%20name:1", "/models/org/a%20name:1",
                           "/models/org%2fa%20name%3A1", "/models/%6f%72g/%61%20name:1"}) {
    EXPECT_EQ(ask(server.port(), request("GET", path)).body, "found") << path;
  }
  for (const char* path :
       {"/%6dodels/org%2Fa%20name:1", "/models%2Forg%2Fa%20name:1", "/models/org%252Fa%20name:1",
        "/models/org%2Fa%20name:1%00", "/models/org%2", "/models/org%2Ga%20name:1", "/models/%",
        "/models/x/..%2Forg%2Fa%20name:1", "/models/org%+2fa%20name:1", "/exact/org%2Fname",
        "/models/org%2Fa%20name:1/", "/models/org%2Fa+name:1"}) {
    EXPECT_EQ(ask(server.port(), request("GET", path)).status, 404) << path;
  }
  EXPECT_EQ(ask(server.port(), request("POST", "/models/org%2Fa%20name:1")).status, 405);
}

TEST(HttpNames, FollowThePathOfARouteThatTakesOne) {
  HttpRoute named = {"GET", "/named/", [](const std::shared_ptr<HttpExchange>& exchange) {
                       exchange->respond({.body = exchange->request().path});
                     }};
  named.takes_name = true;
  HttpServer server(any_name(), {named});
  server.start();
  for (const std::string& path :
       {std::string("/named/resp_0-Az"), "/named/" + std::string(128, 'x')}) {
    const RawAnswer answer = ask(server.port(), request("GET", path));
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_EQ(answer.body, path);
  }
  for (const std::string& path :
       {std::string("/named/"), std::string("/named"), std::string("/named/a/b"),
        std::string("/named/a%2Fb"), std::string("/named/.."), std::string("/named/a.b"),
        "/named/" + std::string(129, 'x')}) {
    EXPECT_EQ(ask(server.port(), request("GET", path)).status, 404) << path;
  }
  EXPECT_EQ(ask(server.port(), request("PUT", "/named/a")).status, 405);
}

}  // namespace
}  // namespace halley
