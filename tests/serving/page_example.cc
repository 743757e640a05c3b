// Prints the answers of the page's routes as JSON, for page_test.py: {path: {type, body, headers}}.
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "halley/server/page/page_routes.h"

namespace {

class RecordedExchange : public halley::HttpExchange {
 public:
  const halley::HttpRequest& request() const override { return request_; }
  void respond(halley::HttpResponse response) override { answer = std::move(response); }
  void start_stream(halley::HttpResponse) override {}
  bool write(std::string) override { return false; }
  void finish() override {}
  void when_sent(std::function<void()>) override {}
  void on_disconnect(std::function<void()>) override {}

  halley::HttpResponse answer;

 private:
  halley::HttpRequest request_;
};

}  // namespace

int main() {
  nlohmann::json files;
  for (const halley::HttpRoute& route : halley::page_routes()) {
    const auto exchange = std::make_shared<RecordedExchange>();
    route.handler(exchange);
    files[route.path] = {{"type", exchange->answer.content_type},
                         {"body", exchange->answer.body},
                         {"headers", exchange->answer.headers}};
  }
  std::puts(files.dump().c_str());
}
