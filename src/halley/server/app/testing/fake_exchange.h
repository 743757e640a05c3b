// For tests: an exchange whose client is the test.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "halley/base/check.h"
#include "halley/server/http/http_exchange.h"

namespace halley {

/// Checks the rules of HttpExchange: one answer, in the right order, no calls that overlap.
class FakeExchange : public HttpExchange {
 public:
  explicit FakeExchange(std::string body, std::string path = {}) {
    request_.body = std::move(body);
    request_.path = std::move(path);
    request_.id = "test";
  }

  const HttpRequest& request() const override { return request_; }

  void respond(HttpResponse response) override {
    const std::lock_guard lock(mutex_);
    HALLEY_CHECK(state_ == State::kOpen, response.body);
    response_ = std::move(response);
    state_ = State::kDone;
    changed_.notify_all();
  }

  void start_stream(HttpResponse response) override {
    if (on_piece) on_piece();
    const std::lock_guard lock(mutex_);
    HALLEY_CHECK(state_ == State::kOpen || (state_ == State::kStreaming && !has_started_));
    has_started_ = true;
    response.body = response_.body + response.body;
    response_ = std::move(response);
    state_ = State::kStreaming;
    changed_.notify_all();
  }

  bool write(std::string piece) override {
    if (on_piece) on_piece();
    const std::lock_guard lock(mutex_);
    HALLEY_CHECK(state_ == State::kStreaming, piece);
    if (is_gone_) return false;
    response_.body += piece;
    changed_.notify_all();
    return true;
  }

  void finish() override {
    const std::lock_guard lock(mutex_);
    HALLEY_CHECK(state_ == State::kStreaming);
    state_ = State::kDone;
    changed_.notify_all();
  }

  /// The client reads as fast as it can, or one piece at a time: see hold_reading().
  void when_sent(std::function<void()> on_sent) override {
    {
      const std::lock_guard lock(mutex_);
      HALLEY_CHECK(state_ == State::kStreaming && !on_sent_);
      if (is_gone_) return;
      if (is_reading_held_) {
        on_sent_ = std::move(on_sent);
        changed_.notify_all();
        return;
      }
    }
    on_sent();
  }

  void keep_alive(HttpResponse head, std::string piece) override {
    const std::lock_guard lock(mutex_);
    HALLEY_CHECK(state_ == State::kOpen && piece_.empty() && !piece.empty(), piece);
    head_ = std::move(head);
    piece_ = std::move(piece);
    changed_.notify_all();
  }

  bool claim_answer() override {
    const std::lock_guard lock(mutex_);
    return state_ == State::kOpen;
  }

  void on_disconnect(std::function<void()> on_gone) override {
    std::unique_lock lock(mutex_);
    HALLEY_CHECK(!on_gone_);
    on_gone_ = std::move(on_gone);
    if (!is_gone_) return;
    lock.unlock();
    on_gone_();
  }

  /// Runs before each piece of a stream, on the thread that writes it. To be set before the route
  /// gets the exchange.
  std::function<void()> on_piece = {};

  /// The client disconnects.
  void disconnect() {
    std::function<void()> dropped;
    std::unique_lock lock(mutex_);
    is_gone_ = true;
    dropped.swap(on_sent_);
    if (!on_gone_) return;
    lock.unlock();
    on_gone_();
  }

  /// Nothing was sent for so long that the server sends what keep_alive() gives; waits for that.
  void pass_silence() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !piece_.empty(); });
    if (state_ == State::kOpen) response_ = head_;
    state_ = State::kStreaming;
    response_.body += piece_;
  }

  /// From now on the client reads nothing until read_piece().
  void hold_reading() {
    const std::lock_guard lock(mutex_);
    is_reading_held_ = true;
  }
  /// Waits for a piece that the client has not read.
  void wait_for_piece() {
    std::unique_lock lock(mutex_);
    wait_for_piece(lock);
  }
  /// Waits for a piece that the client has not read, lets it read that, and returns all it has.
  std::string read_piece() {
    std::unique_lock lock(mutex_);
    wait_for_piece(lock);
    std::string body = response_.body;
    const auto on_sent = std::exchange(on_sent_, nullptr);
    lock.unlock();
    if (on_sent) on_sent();
    return body;
  }

  /// Waits for the whole answer.
  HttpResponse wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ == State::kDone; });
    return response_;
  }

  /// Waits for the beginning of a stream.
  void wait_for_stream() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ != State::kOpen; });
  }

  /// Whether the answer came, or comes, in pieces.
  bool is_streamed() {
    const std::lock_guard lock(mutex_);
    return has_started_;
  }

  bool is_done() {
    const std::lock_guard lock(mutex_);
    return state_ == State::kDone;
  }

  bool has_answer() {
    const std::lock_guard lock(mutex_);
    return state_ != State::kOpen;
  }

 private:
  enum class State { kOpen, kStreaming, kDone };

  void wait_for_piece(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return on_sent_ || state_ == State::kDone; });
  }

  HttpRequest request_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kOpen;
  bool is_gone_ = false;
  bool has_started_ = false;  // by start_stream()
  HttpResponse response_, head_;
  std::string piece_;
  std::function<void()> on_gone_, on_sent_;
  bool is_reading_held_ = false;
};

}  // namespace halley
