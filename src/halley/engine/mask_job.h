// The constraint of one request and the mask of its next token, whose work is done apart from the
// engine's thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "halley/constraint/token_constraint.h"
#include "halley/sampling/base/token_mask.h"

namespace halley {

/// The result of a job, for the output of a constrained request.
enum class OutputState : uint8_t {
  kOpen,         // the token was accepted, and the mask of the next one is there if it was wanted
  kComplete,     // the token was accepted, and none may follow
  kNotAccepted,  // a limit was passed at the token
  kNoMask,       // the token was accepted, and a limit was passed at the mask
};

/// Belongs to the engine's thread until begin() returns false, then to an executor until
/// is_done(). Both hold it by shared_ptr, so that a request may end meanwhile.
class MaskJob {
 public:
  explicit MaskJob(std::shared_ptr<const CompiledConstraint> compiled);

  /// Begins to accept `token_id`, or nothing for the first mask, and then to make the mask of the
  /// next token if it is wanted. Looks up what is known already, which is quick; returns whether
  /// that was all. Else an executor has to run() the job.
  [[nodiscard]] bool begin(std::optional<int32_t> token_id, bool needs_mask);
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  /// The result is not needed any more.
  void cancel() { is_cancelled_.store(true, std::memory_order_relaxed); }

  /// After is_done().
  OutputState state() const { return state_; }
  /// After is_done(), where the state is kOpen and a mask was wanted.
  const TokenMask& allowed() const { return allowed_; }

  /// One slice of the work, by an executor. Returns whether the job is done, or was cancelled.
  bool run(size_t num_steps);
  /// Whether it has taken many slices so far. Any thread.
  bool is_long() const { return num_slices_.load(std::memory_order_relaxed) > kNumSlicesShort; }
  /// Jobs of equal groups share a grammar: only one of them can work at a time.
  const void* group() const { return compiled_->group(); }

 private:
  static constexpr int kNumSlicesShort = 8;

  bool finish(OutputState state);

  const std::shared_ptr<const CompiledConstraint> compiled_;
  const std::unique_ptr<TokenConstraint> constraint_;
  std::optional<int32_t> token_id_;  // to accept
  bool has_token_ = false, needs_mask_ = false;
  TokenMask allowed_;
  OutputState state_ = OutputState::kOpen;
  std::atomic<bool> is_done_ = false, is_cancelled_ = false;
  std::atomic<int> num_slices_ = 0;
};

/// Runs jobs in slices.
class MaskExecutor {
 public:
  virtual ~MaskExecutor() = default;
  /// Runs the job until it is done, some time, on any thread.
  virtual void post(std::shared_ptr<MaskJob> job) = 0;
  /// Works on the caller's thread, which has nothing else to do, where the executor has no threads
  /// of its own. Returns whether it had something to do.
  virtual bool work_here() { return false; }
};

}  // namespace halley
