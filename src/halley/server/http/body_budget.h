// The limit on the memory of all request bodies together.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace halley {

/// Thread-safe.
class BodyBudget {
 public:
  explicit BodyBudget(size_t num_bytes_max) : num_bytes_max_(num_bytes_max) {}

  [[nodiscard]] bool try_take(size_t num_bytes) {
    size_t taken = num_taken_bytes_.load(std::memory_order_relaxed);
    do {
      if (num_bytes > num_bytes_max_ - taken) return false;
    } while (!num_taken_bytes_.compare_exchange_weak(taken, taken + num_bytes,
                                                     std::memory_order_relaxed));
    return true;
  }
  void give_back(size_t num_bytes) {
    num_taken_bytes_.fetch_sub(num_bytes, std::memory_order_relaxed);
  }

 private:
  const size_t num_bytes_max_;
  std::atomic<size_t> num_taken_bytes_{0};
};

/// The share of one request; returns it on destruction.
class BodyReservation {
 public:
  BodyReservation() = default;
  explicit BodyReservation(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  BodyReservation(BodyReservation&& other) noexcept
      : budget_(std::move(other.budget_)), num_bytes_(std::exchange(other.num_bytes_, 0)) {}
  BodyReservation& operator=(BodyReservation&&) = delete;
  ~BodyReservation() {
    if (budget_ != nullptr) budget_->give_back(num_bytes_);
  }

  [[nodiscard]] bool try_grow(size_t num_bytes) {
    if (!budget_->try_take(num_bytes)) return false;
    num_bytes_ += num_bytes;
    return true;
  }

 private:
  std::shared_ptr<BodyBudget> budget_;
  size_t num_bytes_ = 0;
};

}  // namespace halley
