// A limit on the memory that many users of one kind take together, and the share of one of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace halley {

struct ByteBudgetStats {
  size_t num_bytes_max = 0;
  size_t num_taken_bytes = 0;
  uint64_t num_rejected = 0;  // failed calls of try_take(), since the start
};

/// Thread-safe; all its calls are a few atomic operations.
class ByteBudget {
 public:
  explicit ByteBudget(size_t num_bytes_max) : num_bytes_max_(num_bytes_max) {}

  [[nodiscard]] bool try_take(size_t num_bytes) {
    size_t taken = num_taken_bytes_.load(std::memory_order_relaxed);
    do {
      if (num_bytes > num_bytes_max_ - taken) {
        num_rejected_.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
    } while (!num_taken_bytes_.compare_exchange_weak(taken, taken + num_bytes,
                                                     std::memory_order_relaxed));
    return true;
  }
  void give_back(size_t num_bytes) {
    num_taken_bytes_.fetch_sub(num_bytes, std::memory_order_relaxed);
  }

  ByteBudgetStats stats() const {
    return {.num_bytes_max = num_bytes_max_,
            .num_taken_bytes = num_taken_bytes_.load(std::memory_order_relaxed),
            .num_rejected = num_rejected_.load(std::memory_order_relaxed)};
  }

 private:
  const size_t num_bytes_max_;
  std::atomic<size_t> num_taken_bytes_{0};
  std::atomic<uint64_t> num_rejected_{0};
};

/// The share of one user; returned on destruction.
class ByteReservation {
 public:
  ByteReservation() = default;
  explicit ByteReservation(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
  ByteReservation(ByteReservation&& other) noexcept
      : budget_(std::move(other.budget_)), num_bytes_(std::exchange(other.num_bytes_, 0)) {}
  ByteReservation& operator=(ByteReservation&&) = delete;
  ~ByteReservation() {
    if (budget_ != nullptr) budget_->give_back(num_bytes_);
  }

  /// Not for one without a budget.
  [[nodiscard]] bool try_grow(size_t num_bytes) {
    if (!budget_->try_take(num_bytes)) return false;
    num_bytes_ += num_bytes;
    return true;
  }

 private:
  std::shared_ptr<ByteBudget> budget_;
  size_t num_bytes_ = 0;
};

}  // namespace halley
