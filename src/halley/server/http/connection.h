// One client's connection: reads requests, calls their routes and sends answers, within timeouts.
// It runs on the thread of the connection's worker.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "halley/base/byte_budget.h"
#include "halley/server/http/answer_format.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/http/http_limits.h"
#include "halley/server/http/http_server.h"
#include "halley/server/http/outbox.h"
#include "halley/server/http/request_gate.h"
#include "halley/server/http/request_intake.h"

namespace halley {

/// The state that all connections of a server share. Thread-safe.
struct ServerState {
  ServerState(HttpServerConfig server_config, std::vector<HttpRoute> routes,
              std::optional<HttpResponse> otherwise);

  HttpServerConfig config;
  AccessRules access;
  GateSlot gates;
  std::shared_ptr<ByteBudget> bodies;
  std::atomic<bool> is_draining{false};

  void add_connection();
  void remove_connection();
  size_t num_connections() const;
  /// Returns false if some were left after `limit`.
  bool wait_for_no_connection(std::chrono::milliseconds limit);

 private:
  mutable std::mutex mutex_;
  std::condition_variable is_empty_;
  size_t num_connections_ = 0;
};

/// The state that the connections of one thread share. Only that thread uses it, except for the
/// mailbox.
struct WorkerState {
  explicit WorkerState(ServerState& server_state);

  std::string make_request_id();

  ServerState& server;
  std::shared_ptr<Mailbox> mailbox;
  std::vector<char> scratch;
  std::mt19937_64 random;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  Connection(Socket socket, WorkerState& worker);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Adds itself to the worker's connections. `is_rejected`: there are too many; answers 503.
  void start(bool is_rejected);
  /// Called when the outbox of its answer has bytes.
  void on_mail();
  /// For draining: closes unless a request has begun or an answer is on its way.
  void close_if_idle();
  /// Closes at once; on_gone runs if an answer was not complete.
  void cut();

 private:
  enum class Phase { kReading, kAnswering, kLingering, kClosed };
  using Clock = std::chrono::steady_clock;

  // Runs one step of an asynchronous operation; an exception (out of memory) ends the connection.
  template <typename F>
  void guarded(const F& step);

  void set_options();
  void wait_readable();
  void on_readable();
  void take_input(size_t num_bytes);
  void on_end_of_input();
  void wait_writable();

  void pump();
  bool take_step();
  void wait_for_input();
  void send_continue();
  void dispatch();
  void answer(HttpResponse response, bool must_close);
  bool flush();
  bool end_answer();
  void linger();
  void note_request();
  AnswerContext make_context();
  void log_access(bool is_complete);

  void set_deadline(std::chrono::milliseconds from_now);
  void set_keep_alive_deadline();
  void arm_timer();
  void on_deadline();

  WorkerState& worker_;
  const HttpLimits& limits_;
  Socket socket_;
  boost::asio::steady_timer timer_;
  std::string client_;
  RequestIntake intake_;
  Phase phase_ = Phase::kReading;

  std::string inbox_;  // read, not parsed yet
  size_t num_parsed_bytes_ = 0;
  bool is_waiting_readable_ = false;
  bool is_end_of_input_ = false;

  std::shared_ptr<Outbox> outbox_;  // the answer on its way
  std::string sending_;
  size_t num_sent_bytes_ = 0;  // of sending_
  bool is_waiting_writable_ = false;
  bool must_linger_ = false;

  // The timer is not reset with each deadline; it checks the deadline when it fires.
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point timer_at_ = Clock::time_point::max();

  HttpAccess access_;
  Clock::time_point request_start_;
  bool has_request_ = false;  // access_ describes one that is not logged yet
};

}  // namespace halley
