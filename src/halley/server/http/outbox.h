// Where answers wait for the thread that sends them: any thread puts bytes in, one takes them out.
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
  /// `wake` makes the thread call take_all() soon. It is called once for many put(), and not any
  /// more after close().
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void put(std::shared_ptr<Outbox> outbox);
  /// Swaps what waits into `mail`, which must be empty.
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
  /// `unsent_bytes_max` of a stream.
  Outbox(std::shared_ptr<Mailbox> mailbox, size_t unsent_bytes_max)
      : mailbox_(std::move(mailbox)), unsent_bytes_max_(unsent_bytes_max) {}

  // From any thread, one call at a time.

  enum class Kind {
    kWhole,   // the only piece
    kFirst,   // of a stream
    kNext,    // of a stream; rejected while too much waits
    kLast,    // of a stream
    kBroken,  // the stream cannot be completed: the connection must be cut
  };
  /// `as_chunk`: with the framing of a chunk around them. False: the client has gone, or is cut
  /// now, since more than `unsent_bytes_max` would wait.
  bool put(std::string_view bytes, Kind kind, bool as_chunk = false);
  /// Before the first put().
  void set_status(int status, bool close_after);
  void set_on_gone(std::function<void()> on_gone);

  // On the thread of the mailbox alone.

  struct Progress {
    bool is_complete = false;  // all of the answer was put in
    bool is_broken = false;
  };
  /// Moves what waits into `bytes`, which must be empty.
  Progress take(std::string& bytes);
  /// Bytes from take() have left.
  void note_sent(size_t num_bytes);
  Progress progress();
  /// The client has gone: nothing is taken any more, and on_gone runs unless the answer was
  /// complete.
  void close();
  /// Until the next take(), put() does not tell the mailbox: the thread will look by itself.
  void hold_mail();

  int status();
  bool close_after();

  Connection* connection = nullptr;  // of the mailbox's thread alone; null: none any more

 private:
  std::mutex mutex_;
  const std::shared_ptr<Mailbox> mailbox_;
  const size_t unsent_bytes_max_;
  std::string waiting_;
  size_t num_taken_bytes_ = 0;  // taken and not sent yet
  std::function<void()> on_gone_;
  int status_ = 0;
  bool close_after_ = true;
  bool is_in_mail_ = false;
  bool is_complete_ = false;
  bool is_broken_ = false;
  bool is_closed_ = false;
};

}  // namespace halley
