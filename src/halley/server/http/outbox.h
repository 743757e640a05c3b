// Queues of answers for the thread that sends them: any thread puts bytes in, one takes them out.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halley {

class Connection;
class Outbox;

/// Tells one thread which outboxes have something for it. Thread-safe.
class Mailbox {
 public:
  /// `wake` makes the thread call take_all() soon. It is called once for many put(), and never
  /// after close().
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void put(std::shared_ptr<Outbox> outbox);
  /// Swaps the waiting outboxes into `mail`, which must be empty.
  void take_all(std::vector<std::shared_ptr<Outbox>>& mail);
  void close();

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Outbox>> mail_;
  std::function<void()> wake_;
  bool is_closed_ = false;
};

/// The bytes of one answer.
class Outbox : public std::enable_shared_from_this<Outbox> {
 public:
  /// `unsent_bytes_max`: the limit for a stream.
  Outbox(std::shared_ptr<Mailbox> mailbox, size_t unsent_bytes_max)
      : mailbox_(std::move(mailbox)), unsent_bytes_max_(unsent_bytes_max) {}

  // For any thread, one call at a time.

  enum class Kind {
    kWhole,   // the only piece
    kFirst,   // of a stream
    kNext,    // of a stream; rejected if too much waits
    kLast,    // of a stream
    kBroken,  // the stream cannot be completed: the connection must be cut
  };
  /// `as_chunk` adds the framing of a chunk. Returns false if the client is gone, or is
  /// disconnected now since more than `unsent_bytes_max` would wait.
  bool put(std::string_view bytes, Kind kind, bool as_chunk = false);
  /// To be called before the first put().
  void set_status(int status, bool close_after);
  void set_on_gone(std::function<void()> on_gone);
  /// As HttpExchange::when_sent().
  void when_sent(std::function<void()> on_sent);
  /// The bytes of keep_alive(): `piece`, and `head` before it where nothing was put in yet.
  struct KeepAlive {
    std::string head;
    std::string piece;
    int status = 0;
    bool close_after = false;
  };
  void set_keep_alive(KeepAlive parts);
  /// Whether the answer's beginning is still to be put in: then keep_alive() leaves it to the
  /// caller. To be called before kWhole and kFirst.
  bool claim_beginning();

  // For the mailbox's thread only.

  struct Progress {
    bool is_complete = false;  // all of the answer was put in
    bool is_broken = false;
  };
  /// Moves the waiting bytes into `bytes`, which must be empty.
  Progress take(std::string& bytes);
  /// Reports that bytes from take() were sent.
  void note_sent(size_t num_bytes);
  Progress progress();
  /// Reports that the client is gone: no bytes are accepted any more, and on_gone runs unless the
  /// answer was complete.
  void close();
  /// Puts in what set_keep_alive() gave, unless bytes wait anyway.
  void keep_alive();
  /// Until the next take(), put() does not notify the mailbox: its thread will check by itself.
  void hold_mail();

  int status();
  bool close_after();

  Connection* connection = nullptr;  // for the mailbox's thread only; null: closed

 private:
  std::mutex mutex_;
  const std::shared_ptr<Mailbox> mailbox_;
  const size_t unsent_bytes_max_;
  std::string waiting_;
  size_t num_taken_bytes_ = 0;  // taken and not sent yet
  std::function<void()> on_gone_;
  std::function<void()> on_sent_;  // both may own the exchange: destroyed without the lock
  KeepAlive keep_alive_;           // without a piece: none
  enum class Beginning { kFree, kClaimed, kPut } beginning_ = Beginning::kFree;
  int status_ = 0;
  bool close_after_ = true;
  bool is_in_mail_ = false;
  bool is_complete_ = false;
  bool is_broken_ = false;
  bool is_closed_ = false;
};

}  // namespace halley
