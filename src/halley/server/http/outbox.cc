#include "halley/server/http/outbox.h"

#include <utility>

#include "halley/server/http/answer_format.h"

namespace halley {

void Mailbox::put(std::shared_ptr<Outbox> outbox) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  mail_.push_back(std::move(outbox));
  // Under the lock: the thread that wake_ notifies exists until close() has returned.
  if (mail_.size() == 1) wake_();
}

void Mailbox::take_all(std::vector<std::shared_ptr<Outbox>>& mail) {
  const std::lock_guard lock(mutex_);
  mail_.swap(mail);
}

void Mailbox::close() {
  std::vector<std::shared_ptr<Outbox>> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  dropped.swap(mail_);
}

bool Outbox::put(std::string_view bytes, Kind kind, bool as_chunk) {
  std::function<void()> dropped;  // may own the exchange that calls: destroyed without the lock
  bool must_tell = false;
  bool is_taken = true;
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_ || is_complete_) return false;
    const size_t num_unsent = waiting_.size() + num_taken_bytes_;
    // A single piece above the limit is no reason to disconnect a client that keeps up.
    const bool is_too_slow =
        kind == Kind::kNext && num_unsent > 0 && num_unsent + bytes.size() > unsent_bytes_max_;
    if (is_too_slow || kind == Kind::kBroken) {
      is_broken_ = true;
      is_closed_ = true;
      is_taken = false;
      must_tell = true;  // even if it waits for the socket, which may take long
    } else {
      if (as_chunk) {
        append_chunk(waiting_, bytes);
      } else {
        waiting_.append(bytes);
      }
      beginning_ = Beginning::kPut;
      is_complete_ = kind == Kind::kWhole || kind == Kind::kLast;
      if (is_complete_) dropped.swap(on_gone_);
      must_tell = !is_in_mail_;
    }
    is_in_mail_ = true;
  }
  if (must_tell) mailbox_->put(shared_from_this());
  return is_taken;
}

void Outbox::set_status(int status, bool close_after) {
  const std::lock_guard lock(mutex_);
  status_ = status;
  close_after_ = close_after;
}

void Outbox::set_on_gone(std::function<void()> on_gone) {
  {
    const std::lock_guard lock(mutex_);
    if (is_complete_) return;
    // Broken, but not closed by the thread yet: it will run on_gone when it gets there.
    if (!is_closed_ || is_broken_) {
      on_gone_ = std::move(on_gone);
      return;
    }
  }
  on_gone();
}

void Outbox::when_sent(std::function<void()> on_sent) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    if (!waiting_.empty() || num_taken_bytes_ > 0) {
      on_sent_ = std::move(on_sent);
      return;
    }
  }
  on_sent();
}

void Outbox::set_keep_alive(KeepAlive parts) {
  const std::lock_guard lock(mutex_);
  keep_alive_ = std::move(parts);
}

bool Outbox::claim_beginning() {
  const std::lock_guard lock(mutex_);
  if (beginning_ == Beginning::kPut) return false;
  beginning_ = Beginning::kClaimed;
  return true;
}

void Outbox::keep_alive() {
  const std::lock_guard lock(mutex_);
  if (keep_alive_.piece.empty() || is_closed_ || is_complete_ || is_broken_) return;
  if (beginning_ == Beginning::kClaimed || !waiting_.empty() || num_taken_bytes_ > 0) return;
  if (beginning_ == Beginning::kFree) {
    waiting_.swap(keep_alive_.head);
    status_ = keep_alive_.status;
    close_after_ = keep_alive_.close_after;
    beginning_ = Beginning::kPut;
  }
  waiting_ += keep_alive_.piece;
}

Outbox::Progress Outbox::take(std::string& bytes) {
  const std::lock_guard lock(mutex_);
  is_in_mail_ = false;
  if (!is_broken_) {
    waiting_.swap(bytes);
    num_taken_bytes_ += bytes.size();
  }
  return {is_complete_, is_broken_};
}

void Outbox::note_sent(size_t num_bytes) {
  std::function<void()> on_sent;
  {
    const std::lock_guard lock(mutex_);
    num_taken_bytes_ -= num_bytes;
    if (num_taken_bytes_ == 0 && waiting_.empty()) on_sent.swap(on_sent_);
  }
  if (on_sent) on_sent();
}

Outbox::Progress Outbox::progress() {
  const std::lock_guard lock(mutex_);
  return {is_complete_, is_broken_};
}

void Outbox::close() {
  std::function<void()> on_gone, on_sent;
  std::string dropped;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    is_broken_ = false;  // from here on a new callback runs at once
    on_gone.swap(on_gone_);
    on_sent.swap(on_sent_);
    dropped.swap(waiting_);
  }
  if (on_gone) on_gone();
}

void Outbox::hold_mail() {
  const std::lock_guard lock(mutex_);
  is_in_mail_ = true;
}

int Outbox::status() {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool Outbox::close_after() {
  const std::lock_guard lock(mutex_);
  return close_after_;
}

}  // namespace halley
