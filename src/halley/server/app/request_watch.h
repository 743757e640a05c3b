// Whether somebody still waits for a request's answer.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>

#include "halley/server/app/engine_bridge.h"
#include "halley/server/http/http_exchange.h"

namespace halley {

/// Thrown by RequestWatch::check(): the work is dropped and nobody is told.
class ClientGone : public std::exception {
 public:
  const char* what() const noexcept override { return "The client is gone."; }
};

/// Preprocessing asks it before and during long work.
class RequestWatch {
 public:
  /// Set by whoever watches the exchange; any thread.
  void set_gone() { is_gone_ = true; }
  /// For the thread that preprocesses, as are those below.
  void set_deadline(std::optional<ServerTime> deadline) { deadline_ = deadline; }
  std::optional<ServerTime> deadline() const { return deadline_; }

  bool must_stop() const;
  /// Throws ClientGone, or ApiError 504 past the deadline.
  void check() const;

 private:
  std::atomic<bool> is_gone_{false};
  std::optional<ServerTime> deadline_;
};

}  // namespace halley
