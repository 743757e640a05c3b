#include "halley/core/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"

namespace halley {
namespace {

// About 50 us on a core of 3 GHz: longer than the serial part between two loops of a decode step,
// short enough that an idle server does not burn its cores.
constexpr int kNumSpins = 4000;

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One thread's share of the tasks. Aligned so that two threads' counters never share a cache line.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

}  // namespace

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
      generation_.fetch_add(1, std::memory_order_release);
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
    const int64_t share_size = ceil_div<int64_t>(num_tasks, num_threads());
    for (size_t i = 0; i < shares_.size(); ++i) {
      const int64_t begin = std::min(num_tasks, static_cast<int64_t>(i) * share_size);
      shares_[i].next.store(begin, std::memory_order_relaxed);
      shares_[i].end = std::min(num_tasks, begin + share_size);
    }
    body_ = &body;
    num_working_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    {
      // Under the lock, so that a worker that is about to sleep cannot miss it.
      const std::lock_guard lock(mutex_);
      generation_.fetch_add(1, std::memory_order_release);
    }
    if (num_sleeping_.load(std::memory_order_seq_cst) > 0) wake_.notify_all();
    run_shares(0);
    // Every worker must have left the shares before the next loop may refill them.
    for (int spins = 0; num_working_.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins < kNumSpins) {
        pause_core();
      } else {
        std::this_thread::yield();
      }
    }
    body_ = nullptr;
  }

 private:
  void work(int thread) {
    uint64_t seen = 0;
    while (true) {
      seen = wait_for_change(seen);
      if (is_stopping_.load(std::memory_order_relaxed)) return;
      run_shares(thread);
      num_working_.fetch_sub(1, std::memory_order_release);
    }
  }

  uint64_t wait_for_change(uint64_t seen) {
    for (int i = 0; i < kNumSpins; ++i) {
      const uint64_t now = generation_.load(std::memory_order_acquire);
      if (now != seen) return now;
      pause_core();
    }
    std::unique_lock lock(mutex_);
    num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
    num_sleeping_.fetch_sub(1, std::memory_order_relaxed);
    return generation_.load(std::memory_order_acquire);
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
  std::atomic<int> num_working_{0};
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> num_sleeping_{0};
  std::atomic<bool> is_stopping_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>(num_threads)) {}
ThreadPool::~ThreadPool() = default;
int ThreadPool::num_threads() const { return impl_->num_threads(); }
void ThreadPool::run(int64_t num_tasks, const std::function<void(int64_t, int)>& body) {
  impl_->run(num_tasks, body);
}

}  // namespace halley
