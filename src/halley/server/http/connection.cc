#include "halley/server/http/connection.h"

#include <algorithm>
#include <exception>

#include <boost/asio/buffer.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "halley/base/str.h"
#include "halley/server/http/answer.h"
#include "halley/server/http/http_error.h"

namespace halley {

namespace asio = boost::asio;
using SocketError = boost::system::error_code;

namespace {

constexpr size_t kScratchBytes = size_t{64} << 10;
// The bytes that a client may send ahead while an answer is on its way. Beyond them the connection
// is not read, and only a failing write shows that the client is gone.
constexpr size_t kAheadBytesMax = size_t{64} << 10;
// Long enough for a client to read an answer that came before it had sent all of its request.
constexpr std::chrono::milliseconds kLingerTime{3'000};
constexpr size_t kKeptBytesMax = size_t{64} << 10;

std::string name_of_client(const Connection::Socket& socket) {
  SocketError error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return "unknown";
  const std::string address = endpoint.address().to_string();
  return str(endpoint.address().is_v6() ? "[" + address + "]" : address, ":", endpoint.port());
}

void release_if_large(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kKeptBytesMax) std::string().swap(buffer);
}

}  // namespace

ServerState::ServerState(HttpServerConfig server_config, std::vector<HttpRoute> routes,
                         std::optional<HttpResponse> otherwise)
    : config(std::move(server_config)),
      access{.keys = ApiKeys(config.api_keys),
             .browsers = BrowserRules({.host = config.host,
                                       .allowed_hosts = config.allowed_hosts,
                                       .allowed_origins = config.allowed_origins,
                                       .has_keys = !config.api_keys.empty()})},
      gates(std::make_unique<RequestGate>(std::move(routes), access, std::move(otherwise))),
      bodies(std::make_shared<ByteBudget>(config.limits.all_bodies_bytes_max)) {
  config.api_keys.clear();
}

void ServerState::add_connection() {
  const std::lock_guard lock(mutex_);
  ++num_connections_;
}

void ServerState::remove_connection() {
  const std::lock_guard lock(mutex_);
  if (--num_connections_ == 0) is_empty_.notify_all();
}

size_t ServerState::num_connections() const {
  const std::lock_guard lock(mutex_);
  return num_connections_;
}

bool ServerState::wait_for_no_connection(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return is_empty_.wait_for(lock, limit, [this] { return num_connections_ == 0; });
}

WorkerState::WorkerState(ServerState& server_state)
    : server(server_state), scratch(kScratchBytes), random(std::random_device{}()) {}

std::string WorkerState::make_request_id() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id = "req_";
  for (int word = 0; word < 2; ++word) {
    uint64_t bits = random();
    for (int i = 0; i < 16; ++i, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

Connection::Connection(Socket socket, WorkerState& worker)
    : worker_(worker),
      limits_(worker.server.config.limits),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      client_(name_of_client(socket_)),
      intake_(limits_, worker.server.gates, worker.server.bodies) {
  worker_.server.add_connection();
}

Connection::~Connection() {
  if (phase_ != Phase::kClosed) worker_.server.remove_connection();
}

template <typename F>
void Connection::guarded(const F& step) {
  try {
    step();
  } catch (const std::exception& error) {
    access_.error = error.what();
    cut();
  }
}

void Connection::set_options() {
  SocketError ignored;  // a socket without an option works too
  socket_.non_blocking(true);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  // A client whose machine or network failed does not close its connection: keep-alive detects it.
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  const auto set = [this](int option, int64_t value) {
    const int number = static_cast<int>(std::clamp<int64_t>(value, 1, 1'000'000'000));
    static_cast<void>(
        setsockopt(socket_.native_handle(), IPPROTO_TCP, option, &number, sizeof number));
  };
  set(TCP_KEEPIDLE, 30);
  set(TCP_KEEPINTVL, 10);
  set(TCP_KEEPCNT, 3);
  set(TCP_USER_TIMEOUT, limits_.write_timeout.count());
}

void Connection::start(bool is_rejected) {
  worker_.connections.emplace(this, shared_from_this());
  guarded([&] {
    set_options();
    request_start_ = Clock::now();
    if (is_rejected) {
      HttpResponse busy =
          http_error(503, "The server has as many connections as it can. Try again.", "overloaded");
      busy.headers.emplace_back("retry-after", "1");
      answer(std::move(busy), true);
      pump();
    } else {
      set_deadline(limits_.header_timeout);
    }
    wait_readable();
  });
}

// ---- reading

void Connection::wait_readable() {
  if (is_waiting_readable_ || is_end_of_input_ || phase_ == Phase::kClosed) return;
  const size_t num_ahead_bytes = inbox_.size() - num_parsed_bytes_;
  if (phase_ == Phase::kAnswering && num_ahead_bytes > kAheadBytesMax) return;
  is_waiting_readable_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const SocketError& error) {
    self->is_waiting_readable_ = false;
    if (self->phase_ == Phase::kClosed) return;
    if (error) {
      self->cut();
      return;
    }
    self->guarded([&] { self->on_readable(); });
  });
}

void Connection::on_readable() {
  SocketError error;
  const size_t num_bytes = socket_.read_some(asio::buffer(worker_.scratch), error);
  if (error == asio::error::eof) {
    on_end_of_input();
  } else if (error && error != asio::error::would_block && error != asio::error::try_again) {
    cut();
  } else if (!error) {
    take_input(num_bytes);
  }
  wait_readable();
}

void Connection::take_input(size_t num_bytes) {
  if (phase_ == Phase::kLingering) return;  // read over
  inbox_.append(worker_.scratch.data(), num_bytes);
  if (phase_ == Phase::kReading) pump();
}

void Connection::on_end_of_input() {
  is_end_of_input_ = true;
  // A complete answer is still sent to a client that closed only its own direction. Without one, a
  // client that waits looks like one that is gone; nearly all are gone.
  if (phase_ != Phase::kAnswering || !outbox_->progress().is_complete) cut();
}

// ---- from requests to answers

void Connection::pump() {
  while (phase_ != Phase::kClosed && phase_ != Phase::kLingering) {
    if (outbox_ != nullptr) {
      if (!flush()) return;
      if (!end_answer()) return;
    }
    if (!take_step()) return;
  }
}

// Returns false if the bytes that have arrived allow no further step.
bool Connection::take_step() {
  const bool had_begun = intake_.has_begun();
  const bool was_in_body = intake_.is_in_body();
  size_t num_used = 0;
  const std::string_view bytes = std::string_view(inbox_).substr(num_parsed_bytes_);
  const RequestIntake::Step step = intake_.step(bytes, num_used);
  num_parsed_bytes_ += num_used;
  if (!had_begun && intake_.has_begun()) {
    request_start_ = Clock::now();
    set_deadline(limits_.header_timeout);
  }
  if (!was_in_body && intake_.is_in_body()) set_deadline(limits_.body_timeout);
  switch (step) {
    case RequestIntake::Step::kNeedMore:
      wait_for_input();
      return false;
    case RequestIntake::Step::kContinue:
      send_continue();
      return phase_ == Phase::kReading;
    case RequestIntake::Step::kRequest:
      dispatch();
      return phase_ == Phase::kAnswering;
    case RequestIntake::Step::kAnswer:
      answer(intake_.take_answer(), intake_.must_close());
      return phase_ == Phase::kAnswering;
  }
  return false;
}

void Connection::wait_for_input() {
  inbox_.erase(0, num_parsed_bytes_);
  num_parsed_bytes_ = 0;
  if (inbox_.empty()) release_if_large(inbox_);
  if (is_end_of_input_ || (worker_.server.is_draining && !intake_.has_begun())) cut();
}

void Connection::send_continue() {
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  SocketError error;
  const size_t num_sent = socket_.write_some(asio::buffer(kContinue), error);
  // All earlier answers have been sent, so a full buffer means that the client reads nothing.
  if (error || num_sent != kContinue.size()) cut();
}

void Connection::note_request() {
  access_ = HttpAccess();
  access_.client = client_;
  if (intake_.has_begun()) {
    const HttpRequest& request = intake_.request();
    access_.method = request.method;
    access_.path = request.path;
    access_.request_id = request.id;
  }
  if (access_.request_id.empty()) access_.request_id = worker_.make_request_id();
  has_request_ = true;
}

AnswerContext Connection::make_context() {
  AnswerContext context;
  context.request_id = access_.request_id;
  if (!intake_.has_begun()) return context;
  const HttpRequest& request = intake_.request();
  context.is_http_1_0 = intake_.framing().is_http_1_0;
  context.is_head = request.method == "HEAD";
  context.keep_alive = intake_.framing().keep_alive && !worker_.server.is_draining;
  context.headers = worker_.server.access.browsers.cors_headers(request);
  return context;
}

void Connection::dispatch() {
  note_request();
  outbox_ = std::make_shared<Outbox>(worker_.mailbox, limits_.unsent_bytes_max);
  outbox_->connection = this;
  outbox_->hold_mail();
  phase_ = Phase::kAnswering;
  set_keep_alive_deadline();  // the route has no deadline
  HttpRequest& request = intake_.request();
  request.id = access_.request_id;
  request.client = client_;
  const AnswerContext context = make_context();
  auto exchange =
      std::make_shared<Answer>(outbox_, std::move(request), context, intake_.take_reservation());
  const HttpHandler& handler = intake_.route()->handler;
  intake_.reset();
  try {
    handler(std::move(exchange));
  } catch (const std::exception& error) {
    access_.error = error.what();  // the exchange answers with 500 when it is destroyed
  }
  if (is_end_of_input_ && !outbox_->progress().is_complete) cut();
}

void Connection::answer(HttpResponse response, bool must_close) {
  note_request();
  AnswerContext context = make_context();
  if (must_close) context.keep_alive = false;
  must_linger_ = must_close;
  outbox_ = std::make_shared<Outbox>(worker_.mailbox, limits_.unsent_bytes_max);
  outbox_->connection = this;
  outbox_->hold_mail();
  phase_ = Phase::kAnswering;
  deadline_ = Clock::time_point::max();
  intake_.reset();
  put_response(*outbox_, std::move(response), std::move(context));
}

// ---- sending

void Connection::on_mail() {
  guarded([&] {
    if (phase_ != Phase::kAnswering) return;
    if (is_waiting_writable_) {
      if (outbox_->progress().is_broken) cut();
      return;
    }
    pump();
    wait_readable();
  });
}

// Sends the available bytes. Returns true if the answer is complete and sent.
bool Connection::flush() {
  if (is_waiting_writable_) return false;
  for (;;) {
    if (num_sent_bytes_ == sending_.size()) {
      sending_.clear();
      num_sent_bytes_ = 0;
      const Outbox::Progress progress = outbox_->take(sending_);
      if (progress.is_broken) {
        cut();
        return false;
      }
      if (sending_.empty()) return progress.is_complete;
    }
    SocketError error;
    const size_t num_bytes = socket_.write_some(
        asio::buffer(sending_.data() + num_sent_bytes_, sending_.size() - num_sent_bytes_), error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      wait_writable();
      return false;
    }
    if (error) {
      cut();
      return false;
    }
    num_sent_bytes_ += num_bytes;
    access_.sent_bytes += num_bytes;
    set_keep_alive_deadline();
    outbox_->note_sent(num_bytes);
  }
}

void Connection::wait_writable() {
  is_waiting_writable_ = true;
  set_deadline(limits_.write_timeout);
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const SocketError& error) {
    self->is_waiting_writable_ = false;
    if (self->phase_ == Phase::kClosed) return;
    if (error) {
      self->cut();
      return;
    }
    self->set_keep_alive_deadline();
    self->guarded([&] {
      self->pump();
      self->wait_readable();
    });
  });
}

// Returns false if the connection is not used for another request.
bool Connection::end_answer() {
  log_access(true);
  const bool must_close = outbox_->close_after() || worker_.server.is_draining;
  outbox_->connection = nullptr;
  outbox_.reset();
  release_if_large(sending_);
  num_sent_bytes_ = 0;
  phase_ = Phase::kReading;
  if (must_close) {
    // Unread bytes would make the system drop the answer that is still on its way.
    if (must_linger_ || num_parsed_bytes_ < inbox_.size()) {
      linger();
    } else {
      cut();
    }
    return false;
  }
  set_deadline(limits_.idle_timeout);
  return true;
}

void Connection::linger() {
  phase_ = Phase::kLingering;
  inbox_ = std::string();
  num_parsed_bytes_ = 0;
  SocketError error;
  socket_.shutdown(Socket::shutdown_send, error);
  if (error || is_end_of_input_) {
    cut();
    return;
  }
  set_deadline(kLingerTime);
  wait_readable();
}

void Connection::log_access(bool is_complete) {
  if (!has_request_) return;
  has_request_ = false;
  if (!worker_.server.config.on_access) return;
  access_.status = outbox_->status();
  access_.is_complete = is_complete;
  access_.duration =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - request_start_);
  worker_.server.config.on_access(access_);
}

// ---- the end

void Connection::close_if_idle() {
  if (phase_ == Phase::kReading && !intake_.has_begun()) cut();
}

void Connection::cut() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  const auto self = shared_from_this();  // worker_.connections may hold the last one
  SocketError ignored;
  timer_.cancel();
  socket_.close(ignored);
  if (outbox_ != nullptr) {
    log_access(false);
    outbox_->connection = nullptr;
    outbox_->close();
    outbox_.reset();
  }
  intake_.reset();
  worker_.connections.erase(this);
  worker_.server.remove_connection();
}

void Connection::set_deadline(std::chrono::milliseconds from_now) {
  deadline_ = Clock::now() + from_now;
  if (deadline_ < timer_at_) arm_timer();
}

void Connection::set_keep_alive_deadline() {
  const std::chrono::milliseconds silence = worker_.server.config.keep_alive;
  if (silence.count() > 0) {
    set_deadline(silence);
  } else {
    deadline_ = Clock::time_point::max();
  }
}

void Connection::arm_timer() {
  timer_at_ = deadline_;
  timer_.expires_at(deadline_);  // cancels a wait that is pending
  timer_.async_wait([self = shared_from_this(), armed_for = timer_at_](const SocketError& error) {
    if (error || self->phase_ == Phase::kClosed || self->timer_at_ != armed_for) return;
    self->timer_at_ = Clock::time_point::max();
    self->guarded([&] { self->on_deadline(); });
  });
}

void Connection::on_deadline() {
  if (deadline_ == Clock::time_point::max()) return;
  if (Clock::now() < deadline_) {
    arm_timer();
    return;
  }
  deadline_ = Clock::time_point::max();
  if (phase_ == Phase::kAnswering && !is_waiting_writable_) {
    outbox_->keep_alive();
    set_keep_alive_deadline();
    pump();
    wait_readable();
  } else if (phase_ == Phase::kReading && intake_.has_begun()) {
    answer(http_error(408, "The request did not arrive in time.", "request_timeout"), true);
    pump();
    wait_readable();
  } else {
    cut();
  }
}

}  // namespace halley
