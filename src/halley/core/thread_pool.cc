#include "halley/core/thread_pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "halley/base/check.h"
#include "halley/core/spin_wait.h"

namespace halley {
namespace {

// Longer than the serial part between two loops of a decode step, short enough that an idle server
// does not burn its cores.
constexpr std::chrono::microseconds kSpinTime(100);

// One thread's share of the tasks. Aligned so that two threads' counters never share a cache line.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

}  // namespace

// A loop is open from run()'s start until its tasks are handed out. A worker takes part only where
// it enters while the loop is open, so that run() never waits for a worker that the system has not
// scheduled yet: on a busy machine that is milliseconds.
class ThreadPool::Impl {
 public:
  explicit Impl(int num_threads) : shares_(static_cast<size_t>(num_threads)) {
    HALLEY_CHECK(num_threads >= 1, num_threads);
    for (int thread = 1; thread < num_threads; ++thread) {
      workers_.emplace_back([this, thread] { work(thread); });
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
      gate_.fetch_add(kOneLoop, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int num_threads() const { return static_cast<int>(shares_.size()); }

  void run(int64_t num_tasks, const std::function<void(int64_t, int)>& body) {
    if (num_tasks <= 0) return;
    if (num_tasks == 1 || workers_.empty()) {
      for (int64_t task = 0; task < num_tasks; ++task) body(task, 0);
      return;
    }
    for (int64_t i = 0; i < num_threads(); ++i) {
      Share& share = shares_[static_cast<size_t>(i)];
      share.next.store(num_tasks * i / num_threads(), std::memory_order_relaxed);
      share.end = num_tasks * (i + 1) / num_threads();
    }
    body_ = &body;
    open_gate();
    run_shares(0);
    // Closed: who has not entered stays outside. Those inside finish their last tasks.
    gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto is_empty = [&] { return (gate_.load(std::memory_order_acquire) & kInside) == 0; };
    while (!spin_until(is_empty, kSpinTime)) std::this_thread::yield();
    body_ = nullptr;
  }

 private:
  // The gate is one word: the number of the loop, whether it is open, and how many workers are
  // inside it.
  static constexpr uint64_t kInside = 0xFFFF;
  static constexpr uint64_t kOpen = 0x10000;
  static constexpr uint64_t kOneLoop = 0x20000;
  static uint64_t loop_of(uint64_t gate) { return gate / kOneLoop; }

  void open_gate() {
    // No worker is inside and the gate is closed: nobody else writes it. Under the lock, so that a
    // worker that is about to sleep cannot miss it.
    bool has_sleepers = false;
    {
      const std::lock_guard lock(mutex_);
      const uint64_t gate = gate_.load(std::memory_order_relaxed);
      gate_.store((gate + kOneLoop) | kOpen, std::memory_order_release);
      has_sleepers = num_sleeping_ > 0;
    }
    if (has_sleepers) wake_.notify_all();
  }

  void work(int thread) {
    uint64_t seen = 0;
    while (true) {
      uint64_t gate = wait_for_loop_after(seen);
      if (is_stopping_.load(std::memory_order_relaxed)) return;
      seen = loop_of(gate);
      while ((gate & kOpen) != 0 && loop_of(gate) == seen) {
        if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) {
          run_shares(thread);
          gate_.fetch_sub(1, std::memory_order_release);
          break;
        }
      }
    }
  }

  uint64_t wait_for_loop_after(uint64_t seen) {
    uint64_t gate = 0;
    const auto has_changed = [&] {
      gate = gate_.load(std::memory_order_acquire);
      return loop_of(gate) != seen;
    };
    if (spin_until(has_changed, kSpinTime)) return gate;
    std::unique_lock lock(mutex_);
    ++num_sleeping_;
    wake_.wait(lock, has_changed);
    --num_sleeping_;
    return gate;
  }

  void run_shares(int thread) {
    const int num = num_threads();
    for (int i = 0; i < num; ++i) {
      Share& share = shares_[static_cast<size_t>((thread + i) % num)];
      while (true) {
        const int64_t task = share.next.fetch_add(1, std::memory_order_relaxed);
        if (task >= share.end) break;
        (*body_)(task, thread);
      }
    }
  }

  std::vector<Share> shares_;
  std::vector<std::thread> workers_;
  const std::function<void(int64_t, int)>* body_ = nullptr;
  std::atomic<uint64_t> gate_{0};
  std::atomic<bool> is_stopping_{false};
  std::mutex mutex_;
  int num_sleeping_ = 0;  // guarded by mutex_
  std::condition_variable wake_;
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>(num_threads)) {}
ThreadPool::~ThreadPool() = default;
int ThreadPool::num_threads() const { return impl_->num_threads(); }
void ThreadPool::run(int64_t num_tasks, const std::function<void(int64_t, int)>& body) {
  impl_->run(num_tasks, body);
}

}  // namespace halley
