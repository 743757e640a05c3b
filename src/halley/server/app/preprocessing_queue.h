// The requests that wait to be parsed, rendered and tokenized: short ones apart from long ones,
// clients in turns.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace halley {

/// Each lane has threads of its own, so that its jobs wait for those of no other.
enum class PreprocessingLane : uint8_t {
  kShort,       // bodies of at most kShortBodyBytes
  kLong,        // longer bodies
  kConstraint,  // requests whose grammar must be compiled
};
inline constexpr size_t kPreprocessingLanes = 3;
inline constexpr size_t kShortBodyBytes = size_t{64} << 10;

/// Thread-safe. In each lane at most one job of a client runs at a time; clients whose jobs wait
/// get turns, one job each; jobs of one client run in the order of their push().
class PreprocessingQueue {
 public:
  using Job = std::function<void()>;
  struct Turn {
    std::string client;
    Job job;
  };

  /// At most `num_jobs_max` jobs wait, in all lanes together.
  explicit PreprocessingQueue(size_t num_jobs_max) : num_jobs_max_(num_jobs_max) {}

  /// False: the queue is full or has stopped, and `job` was dropped.
  [[nodiscard]] bool push(PreprocessingLane lane, const std::string& client, Job job);

  /// Waits for a job whose client may have a turn in this lane. Whoever took it runs the job and
  /// then calls end_turn(). Nothing: the queue has stopped.
  std::optional<Turn> wait_for_turn(PreprocessingLane lane);
  void end_turn(PreprocessingLane lane, const std::string& client);

  /// Drops what waits.
  void stop();

 private:
  struct Client {
    std::deque<Job> jobs;
    bool has_turn = false;
  };
  struct Lane {
    std::unordered_map<std::string, Client> clients;  // those with jobs or a turn
    std::deque<std::string> next;                     // those with jobs and without a turn
    std::condition_variable has_next;
  };

  Lane& lane_of(PreprocessingLane lane) { return lanes_[static_cast<size_t>(lane)]; }

  const size_t num_jobs_max_;
  std::mutex mutex_;
  std::array<Lane, kPreprocessingLanes> lanes_;
  size_t num_jobs_ = 0;
  bool is_stopped_ = false;
};

}  // namespace halley
