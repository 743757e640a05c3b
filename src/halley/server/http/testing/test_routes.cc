#include "halley/server/http/testing/test_routes.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace halley {
namespace {

constexpr std::chrono::seconds kWait{20};

HttpResponse text(std::string body) {
  HttpResponse response;
  response.content_type = "text/plain";
  response.body = std::move(body);
  return response;
}

}  // namespace

TestServer::TestServer(HttpServerConfig config, bool has_any_name) {
  if (has_any_name) config.allowed_hosts = {"*"};
  config.on_access = [this](const HttpAccess& access) {
    const std::lock_guard lock(mutex_);
    logged_.push_back(access);
    changed_.notify_all();
  };
  std::vector<HttpRoute> routes;
  routes.push_back(
      {"GET", "/health",
       [](const std::shared_ptr<HttpExchange>& exchange) { exchange->respond(text("ok")); }, true});
  routes.push_back({"POST", "/echo", [](const std::shared_ptr<HttpExchange>& exchange) {
                      exchange->respond(text(exchange->request().body));
                    }});
  routes.push_back({"GET", "/throw", [](const std::shared_ptr<HttpExchange>&) {
                      throw std::runtime_error("the inside of the server");
                    }});
  routes.push_back({"GET", "/drop", [](const std::shared_ptr<HttpExchange>&) {}});
  routes.push_back({"GET", "/keep", [this](std::shared_ptr<HttpExchange> exchange) {
                      const std::lock_guard lock(mutex_);
                      kept_.push_back(std::move(exchange));
                      changed_.notify_all();
                    }});
  routes.push_back({"GET", "/sized", [](const std::shared_ptr<HttpExchange>& exchange) {
                      const auto num =
                          std::strtoull(exchange->request().query.c_str(), nullptr, 10);
                      exchange->respond(text(std::string(num, 'x')));
                    }});
  server = std::make_unique<HttpServer>(std::move(config), std::move(routes));
  server->start();
}

std::shared_ptr<HttpExchange> TestServer::kept() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kWait, [this] { return !kept_.empty(); })) return nullptr;
  auto exchange = std::move(kept_.front());
  kept_.erase(kept_.begin());
  return exchange;
}

std::vector<HttpAccess> TestServer::logged(size_t num) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kWait, [&] { return logged_.size() >= num; });
  return logged_;
}

void Flag::set() {
  const std::lock_guard lock(mutex_);
  ++count_;
  changed_.notify_all();
}

bool Flag::wait() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kWait, [this] { return count_ > 0; });
}

int Flag::count() {
  const std::lock_guard lock(mutex_);
  return count_;
}

}  // namespace halley
