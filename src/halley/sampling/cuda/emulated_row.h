// For tests: emulates the CTAs of a row on the host. Every thread is a fiber; between barriers the
// fibers run one after the other, in an order that changes, so that a missing barrier shows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <ucontext.h>

#include "halley/base/check.h"
#include "halley/sampling/cuda/row_team.h"

namespace halley::cuda {

/// Runs functions as fibers that wait for each other.
class Fibers {
 public:
  /// Calls body(i) for i in [0, num_fibers), each on a stack of its own, until all have returned.
  void run(int num_fibers, uint32_t seed, const std::function<void(int)>& body) {
    while (static_cast<int>(fibers_.size()) < num_fibers) {
      fibers_.push_back(std::make_unique<Fiber>());
    }
    body_ = &body;
    for (int i = 0; i < num_fibers; ++i) prepare(*fibers_[static_cast<size_t>(i)]);
    std::mt19937 random(seed);
    const auto some = [&] {
      return static_cast<int>(random() % static_cast<uint32_t>(num_fibers));
    };
    for (int num_done = 0; num_done < num_fibers;) {
      // Neighbours together, so that whole CTAs get ahead of others.
      const int first = some(), count = 1 + some();
      const int step = random() % 2 == 0 ? 1 : num_fibers - 1;  // up or down
      for (int i = 0; i < count; ++i) {
        current_ = static_cast<int>((first + int64_t{i} * step) % num_fibers);
        Fiber& fiber = *fibers_[static_cast<size_t>(current_)];
        if (fiber.is_done || fiber.is_waiting()) continue;
        running_ = this;
        HALLEY_CHECK(swapcontext(&main_, &fiber.context) == 0);
        num_done += fiber.is_done ? 1 : 0;
      }
    }
  }

  /// Lets the others run until `round` has changed. Called by a fiber.
  void wait_for_change(const int64_t& round) {
    Fiber& fiber = *fibers_[static_cast<size_t>(current_)];
    fiber.round = &round;
    fiber.seen_round = round;
    HALLEY_CHECK(swapcontext(&fiber.context, &main_) == 0);
    fiber.round = nullptr;
  }

 private:
  struct Fiber {
    bool is_waiting() const { return round != nullptr && *round == seen_round; }

    ucontext_t context = {};
    std::vector<std::byte> stack = std::vector<std::byte>(size_t{64} << 10);
    bool is_done = false;
    const int64_t* round = nullptr;  // null: it waits for nothing
    int64_t seen_round = 0;
  };

  // A function of its own: getcontext() may return twice, and the variables of its caller are not
  // reliable then.
  void prepare(Fiber& fiber) {
    fiber.is_done = false;
    HALLEY_CHECK(getcontext(&fiber.context) == 0);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &main_;
    makecontext(&fiber.context, &Fibers::start, 0);
  }

  static void start() {
    Fibers& fibers = *running_;
    const int i = fibers.current_;
    (*fibers.body_)(i);
    fibers.fibers_[static_cast<size_t>(i)]->is_done = true;
  }

  static inline Fibers* running_ = nullptr;
  ucontext_t main_ = {};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  const std::function<void(int)>* body_ = nullptr;
  int current_ = 0;
};

/// Fibers wait here until `size` of them have come.
class FiberBarrier {
 public:
  explicit FiberBarrier(int size) : size_(size) {}
  void wait(Fibers& fibers) {
    if (++num_waiting_ == size_) {
      num_waiting_ = 0;
      ++round_;
      return;
    }
    fibers.wait_for_change(round_);
  }

 private:
  int size_;
  int num_waiting_ = 0;
  int64_t round_ = 0;
};

/// The Machine of RowTeam on the host: kNumCtas CTAs of kThreads threads.
template <int kThreads, int kNumCtas>
class EmulatedRow {
 public:
  using Shared = RowShared<kThreads>;

  struct Memory {
    Memory() : row_barrier(kThreads * kNumCtas) {
      for (int cta = 0; cta < kNumCtas; ++cta) {
        shared.push_back(std::make_unique<Shared>());
        cta_barriers.emplace_back(kThreads);
      }
    }
    Fibers fibers;
    std::vector<std::unique_ptr<Shared>> shared;
    std::vector<FiberBarrier> cta_barriers;
    FiberBarrier row_barrier;
  };

  /// One thread of the row.
  class Machine {
   public:
    static constexpr int kNumThreads = kThreads;
    static constexpr int kClusterSize = kNumCtas;

    Machine(Memory& memory, int index)
        : memory_(memory), cta_rank_(index / kThreads), thread_(index % kThreads) {}

    int cta_rank() const { return cta_rank_; }
    int thread() const { return thread_; }
    Shared& own_shared() const { return shared(cta_rank_); }
    Shared& shared(int cta) const { return *memory_.shared[static_cast<size_t>(cta)]; }
    void sync_cta() const {
      memory_.cta_barriers[static_cast<size_t>(cta_rank_)].wait(memory_.fibers);
    }
    void sync_row() const { memory_.row_barrier.wait(memory_.fibers); }
    uint32_t add(uint32_t& sum, uint32_t value) const {
      const uint32_t before = sum;
      sum += value;
      return before;
    }
    void load_float4(const float* from, float (&to)[4]) const { std::copy_n(from, 4, to); }

   private:
    Memory& memory_;
    int cta_rank_, thread_;
  };
};

}  // namespace halley::cuda
