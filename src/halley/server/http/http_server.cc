#include "halley/server/http/http_server.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <future>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/http/connection.h"

namespace halley {

namespace asio = boost::asio;
using asio::ip::tcp;
using SocketError = boost::system::error_code;

namespace {

constexpr int kBacklog = 1024;
// Without file descriptors or memory, accepting again at once would only spin.
constexpr std::chrono::milliseconds kAcceptPause{100};
// Connections above num_connections_max that get a 503. Further ones are closed.
constexpr size_t kNumRejectedMax = 64;

void check_config(const HttpServerConfig& config) {
  const HttpLimits& limits = config.limits;
  const std::pair<const char*, int64_t> positive[] = {
      {"num_threads", config.num_threads},
      {"header_bytes_max", static_cast<int64_t>(limits.header_bytes_max)},
      {"num_headers_max", static_cast<int64_t>(limits.num_headers_max)},
      {"target_bytes_max", static_cast<int64_t>(limits.target_bytes_max)},
      {"body_bytes_max", static_cast<int64_t>(limits.body_bytes_max)},
      {"all_bodies_bytes_max", static_cast<int64_t>(limits.all_bodies_bytes_max)},
      {"unsent_bytes_max", static_cast<int64_t>(limits.unsent_bytes_max)},
      {"num_connections_max", static_cast<int64_t>(limits.num_connections_max)},
      {"header_timeout", limits.header_timeout.count()},
      {"body_timeout", limits.body_timeout.count()},
      {"idle_timeout", limits.idle_timeout.count()},
      {"write_timeout", limits.write_timeout.count()},
  };
  for (const auto& [name, value] : positive) {
    if (value < 1) {
      throw InputError(str("HTTP server: ", name, ": expected at least 1, got ", value, "."));
    }
  }
  // An empty host would mean all addresses of the machine.
  if (config.host.empty()) {
    throw InputError("HTTP server: host: expected an address or a name, got \"\". Use 127.0.0.1.");
  }
  if (config.num_threads > 256) {
    throw InputError(
        str("HTTP server: num_threads: expected at most 256, got ", config.num_threads, "."));
  }
}

struct Worker {
  explicit Worker(ServerState& server) : state(server), work(context.get_executor()) {
    state.mailbox =
        std::make_shared<Mailbox>([this] { asio::post(context, [this] { deliver_mail(); }); });
  }

  void deliver_mail() {
    std::vector<std::shared_ptr<Outbox>> delivered;
    delivered.swap(mail);  // keeps its memory from one delivery to the next
    state.mailbox->take_all(delivered);
    for (const auto& outbox : delivered) {
      if (outbox->connection != nullptr) outbox->connection->on_mail();
    }
    delivered.clear();
    mail.swap(delivered);
  }

  void run() {
    // Signals go to the program's own threads.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    for (;;) {
      try {
        context.run();
        return;
      } catch (const std::exception&) {
        // Out of memory outside of a connection's steps, which handle it themselves: continue.
      }
    }
  }

  template <typename F>
  void for_each_connection(const F& action) {
    std::vector<std::shared_ptr<Connection>> all;
    for (const auto& [key, connection] : state.connections) all.push_back(connection);
    for (const auto& connection : all) action(*connection);
  }

  WorkerState state;  // outlives the context, whose handlers own connections
  std::vector<std::shared_ptr<Outbox>> mail;
  bool is_stopping = false;  // used by its own thread only
  asio::io_context context{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::thread thread;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpServerConfig config, std::vector<HttpRoute> routes,
       std::optional<HttpResponse> otherwise)
      : state_(std::move(config), std::move(routes), std::move(otherwise)) {
    check_config(state_.config);
  }
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void start();
  void stop_accepting();
  bool drain(std::chrono::milliseconds limit);
  void set_routes(std::vector<HttpRoute> routes) {
    state_.gates.replace(std::make_unique<RequestGate>(std::move(routes), state_.access));
  }
  uint16_t port() const { return port_; }
  bool is_loopback() const { return is_loopback_; }
  size_t num_connections() const { return state_.num_connections(); }

 private:
  tcp::endpoint resolve(asio::io_context& context) const;
  void listen();
  void accept();
  void on_accept(const SocketError& error, Worker& worker, tcp::socket socket);
  void adopt(Worker& worker, tcp::socket socket);
  void stop();

  ServerState state_;
  std::vector<std::unique_ptr<Worker>> workers_;
  // Only the thread of the first worker uses these two.
  std::optional<tcp::acceptor> acceptor_;
  std::optional<asio::steady_timer> accept_timer_;
  size_t next_worker_ = 0;
  uint16_t port_ = 0;
  bool is_loopback_ = false;
};

tcp::endpoint HttpServer::Impl::resolve(asio::io_context& context) const {
  const HttpServerConfig& config = state_.config;
  SocketError error;
  const auto address = asio::ip::make_address(config.host, error);
  if (!error) return {address, config.port};
  tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(config.host, std::to_string(config.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    throw InputError(str("HTTP server: host ", quote(config.host),
                         ": expected an address or a name of this machine, got one that is not "
                         "known (",
                         error.message(), "). Use 127.0.0.1 or 0.0.0.0."));
  }
  return found.begin()->endpoint();
}

void HttpServer::Impl::listen() {
  asio::io_context& context = workers_.front()->context;
  const tcp::endpoint endpoint = resolve(context);
  acceptor_.emplace(context);
  SocketError error;
  acceptor_->open(endpoint.protocol(), error);
  if (!error) acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_->bind(endpoint, error);
  if (!error) acceptor_->listen(kBacklog, error);
  if (error) {
    throw InputError(str("HTTP server: cannot listen on ", state_.config.host, " port ",
                         state_.config.port, ": ", error.message(),
                         ". Choose another port or host, or end the program that has it."));
  }
  port_ = acceptor_->local_endpoint().port();
  is_loopback_ = endpoint.address().is_loopback();
  state_.access.browsers.set_is_loopback(is_loopback_);
  accept_timer_.emplace(context);
}

void HttpServer::Impl::start() {
  HALLEY_CHECK(workers_.empty());
  for (int i = 0; i < state_.config.num_threads; ++i) {
    workers_.push_back(std::make_unique<Worker>(state_));
  }
  listen();
  accept();
  for (const auto& worker : workers_) worker->thread = std::thread([&worker] { worker->run(); });
}

void HttpServer::Impl::accept() {
  Worker& worker = *workers_[next_worker_++ % workers_.size()];
  acceptor_->async_accept(worker.context,
                          [this, &worker](const SocketError& error, tcp::socket socket) {
                            on_accept(error, worker, std::move(socket));
                          });
}

void HttpServer::Impl::on_accept(const SocketError& error, Worker& worker, tcp::socket socket) {
  if (!acceptor_->is_open()) return;
  if (error && error != asio::error::connection_aborted) {
    accept_timer_->expires_after(kAcceptPause);
    accept_timer_->async_wait([this](const SocketError&) {
      if (acceptor_->is_open()) accept();
    });
    return;
  }
  if (!error) {
    try {
      asio::post(worker.context, [this, &worker, accepted = std::move(socket)]() mutable {
        adopt(worker, std::move(accepted));
      });
    } catch (const std::bad_alloc&) {
      // This client's connection is closed, and the next one is accepted.
    }
  }
  accept();
}

void HttpServer::Impl::adopt(Worker& worker, tcp::socket socket) {
  const size_t num_connections = state_.num_connections();
  const size_t num_max = state_.config.limits.num_connections_max;
  if (worker.is_stopping || state_.is_draining || num_connections >= num_max + kNumRejectedMax) {
    return;  // closed here
  }
  const auto connection = std::make_shared<Connection>(std::move(socket), worker.state);
  connection->start(num_connections >= num_max);
}

void HttpServer::Impl::stop_accepting() {
  if (!acceptor_.has_value() || !workers_.front()->thread.joinable()) return;
  std::promise<void> closed;
  asio::dispatch(workers_.front()->context, [&] {
    SocketError ignored;
    acceptor_->close(ignored);
    accept_timer_->cancel();
    closed.set_value();
  });
  closed.get_future().wait();
}

bool HttpServer::Impl::drain(std::chrono::milliseconds limit) {
  stop_accepting();
  state_.is_draining = true;
  for (const auto& worker : workers_) {
    asio::post(worker->context, [&worker = *worker] {
      worker.for_each_connection([](Connection& connection) { connection.close_if_idle(); });
    });
  }
  if (state_.wait_for_no_connection(limit)) return true;
  for (const auto& worker : workers_) {
    asio::post(worker->context, [&worker = *worker] {
      worker.for_each_connection([](Connection& connection) { connection.cut(); });
    });
  }
  state_.wait_for_no_connection(std::chrono::hours(1));
  return false;
}

void HttpServer::Impl::stop() {
  if (workers_.empty() || !workers_.front()->thread.joinable()) return;
  stop_accepting();
  for (const auto& worker : workers_) {
    asio::post(worker->context, [&worker = *worker] {
      worker.is_stopping = true;
      worker.for_each_connection([](Connection& connection) { connection.cut(); });
      worker.work.reset();
    });
  }
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
  // Exchanges that routes still hold have no mailbox any more.
  for (const auto& worker : workers_) worker->state.mailbox->close();
}

HttpServer::HttpServer(HttpServerConfig config, std::vector<HttpRoute> routes)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(routes), std::nullopt)) {}
HttpServer::HttpServer(HttpServerConfig config, std::vector<HttpRoute> routes,
                       HttpResponse otherwise)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(routes), std::move(otherwise))) {}
HttpServer::~HttpServer() = default;

void HttpServer::start() { impl_->start(); }
void HttpServer::set_routes(std::vector<HttpRoute> routes) { impl_->set_routes(std::move(routes)); }
uint16_t HttpServer::port() const { return impl_->port(); }
bool HttpServer::is_loopback() const { return impl_->is_loopback(); }
size_t HttpServer::num_connections() const { return impl_->num_connections(); }
void HttpServer::stop_accepting() { impl_->stop_accepting(); }
bool HttpServer::drain(std::chrono::milliseconds limit) { return impl_->drain(limit); }

}  // namespace halley
