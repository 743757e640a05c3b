// Why the ranks of this process can go on no more.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "halley/base/error.h"

namespace halley {

/// Any thread may call all of it.
class AbortReason {
 public:
  /// The first reason stays.
  void set(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (is_set()) return;
    text_ = text;
    is_set_.store(true);
  }

  bool is_set() const { return is_set_.load(); }
  [[noreturn]] void throw_error() const { throw DeviceError(text_); }
  /// Throws if there is one.
  void check() const {
    if (is_set()) throw_error();
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> is_set_{false};
  std::string text_;  // does not change once is_set_
};

}  // namespace halley
