#include "halley/server/page/page_routes.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::HasSubstr;
using testing::Not;

class RecordedExchange : public HttpExchange {
 public:
  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override { answer = std::move(response); }
  void start_stream(HttpResponse) override { ADD_FAILURE() << "no stream expected"; }
  bool write(std::string) override { return false; }
  void finish() override {}
  void when_sent(std::function<void()>) override {}
  void on_disconnect(std::function<void()>) override {}

  HttpResponse answer;

 private:
  HttpRequest request_;
};

std::map<std::string, HttpResponse> answers() {
  std::map<std::string, HttpResponse> answers;
  for (const HttpRoute& route : page_routes()) {
    EXPECT_EQ(route.method, "GET");
    EXPECT_TRUE(route.is_open) << route.path;
    const auto exchange = std::make_shared<RecordedExchange>();
    route.handler(exchange);
    answers[route.path] = exchange->answer;
  }
  return answers;
}

TEST(PageRoutes, GiveTheFilesOfTheSource) {
  const auto routes = answers();
  for (const char* name : {"index.html", "page.css", "page.js", "sse.js", "docs.html", "docs.css",
                           "docs.js", "icon.svg"}) {
    std::ifstream file(std::string(HALLEY_SOURCE_DIR) + "/src/halley/server/page/" + name,
                       std::ios::binary);
    const std::string expected{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(expected.empty()) << name;
    std::string path = "/" + std::string(name);
    if (path == "/index.html") path = "/";
    if (path == "/docs.html") path = "/docs";
    ASSERT_TRUE(routes.contains(path)) << path;
    EXPECT_EQ(routes.at(path).body, expected) << path;
  }
  EXPECT_EQ(routes.size(), 8U);
}

TEST(PageRoutes, SayWhatTheyAreAndForbidTheRest) {
  const auto routes = answers();
  EXPECT_EQ(routes.at("/").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(routes.at("/docs").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(routes.at("/page.css").content_type, "text/css; charset=utf-8");
  EXPECT_EQ(routes.at("/page.js").content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(routes.at("/icon.svg").content_type, "image/svg+xml");
  for (const auto& [path, answer] : routes) {
    std::map<std::string, std::string> headers(answer.headers.begin(), answer.headers.end());
    EXPECT_THAT(headers["content-security-policy"], HasSubstr("default-src 'none'")) << path;
    EXPECT_THAT(headers["content-security-policy"], Not(HasSubstr("unsafe"))) << path;
    EXPECT_EQ(headers["x-content-type-options"], "nosniff") << path;
  }
}

// The page must not use what its policy forbids, or it would be broken.
TEST(PageRoutes, HaveNothingInlineAndNothingFromElsewhere) {
  const auto routes = answers();
  const std::string html = routes.at("/").body + routes.at("/docs").body;
  EXPECT_FALSE(
      std::regex_search(html, std::regex("<script(?![^>]*\\bsrc=)|<style|\\sstyle=|\\son\\w+=")));
  for (const auto& [path, answer] : routes) {
    EXPECT_FALSE(std::regex_search(answer.body,
                                   std::regex("https?://(?!www\\.w3\\.org/2000/svg)|innerHTML")))
        << path;
  }
  std::smatch match;
  for (std::string rest = html;
       std::regex_search(rest, match, std::regex("(src|href)=\"(/[^\"]*)\""));
       rest = match.suffix()) {
    EXPECT_TRUE(routes.contains(match[2]) || match[2] == "/openapi.json") << match[2];
  }
}

}  // namespace
}  // namespace halley
