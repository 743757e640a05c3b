// Decides which tokens of which sequences the next step computes, and which KV pages they use. A
// pure data structure: no thread, no clock, no model, so that it can be simulated.
//
// Rules
// - Decodes come first, oldest first. A step has room for one of each sequence that runs.
// - What is left of the step's rows goes to prefill chunks, first come first served.
// - A sequence is admitted when all pages of the tokens it has, and one spare page for each
// sequence
//   that runs already, are free. The one at the head of the queue is never overtaken.
// - When a decode finds no free page, the youngest sequence that runs gives up all of its pages and
//   waits in its old place; its tokens, generated ones included, are computed again later.
// So the oldest sequence always advances, and every one becomes the oldest in the end.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "halley/engine/page_allocator.h"

namespace halley {

using RequestId = uint64_t;

struct SchedulerConfig {
  int64_t num_pages = 0;
  int64_t page_tokens = 16;              // P
  int64_t max_model_len = 0;             // tokens of one sequence, prompt and output
  int64_t max_num_seqs = 64;             // running at once
  int64_t max_num_batched_tokens = 512;  // rows of a step; >= max_num_seqs
  int64_t max_num_queued = 1024;         // that never ran
};

enum class Admission : uint8_t { kQueued, kQueueFull, kTooLong };

/// One sequence's part of a step: tokens [num_past, num_past + num_rows) of the sequence.
struct ScheduledSequence {
  RequestId id = 0;
  int64_t num_past = 0;
  int64_t num_rows = 0;
  bool is_complete = false;  // its last token is among them: the next one is to be chosen
  std::span<const int32_t> page_table;  // valid until the next call of a member that is not const
};

struct StepPlan {
  std::vector<ScheduledSequence> sequences;  // decodes, then prefill chunks
  int64_t num_rows = 0;
  std::vector<RequestId> preempted;  // lost their pages in this step, youngest first
};

/// Not thread-safe.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);

  /// Tokens of a sequence at most: the prompt's and those it may generate, no more than
  /// max_model_len.
  static int64_t num_tokens_max(const SchedulerConfig& config, int64_t num_prompt_tokens,
                                int64_t max_tokens);
  /// False for what could never run: no room for one token behind the prompt, or more pages needed
  /// than there are.
  static bool can_fit(const SchedulerConfig& config, int64_t num_prompt_tokens, int64_t max_tokens);

  /// Queues a sequence, or says why not. `id` is not in use; num_prompt_tokens >= 1.
  [[nodiscard]] Admission add(RequestId id, int64_t num_prompt_tokens, int64_t max_tokens);

  /// Plans the next step: takes pages, preempts, admits. Empty exactly when nothing is left to do.
  /// The plan must be passed to update() before the next one is made.
  StepPlan schedule();

  /// The step was computed: every complete sequence of it that is still there has one token more.
  void update(const StepPlan& plan);

  /// Forgets a sequence and frees its pages, waiting or running; also between schedule() and
  /// update(), when its id may not be used again before update(). Returns false where there is
  /// none. The caller removes a sequence that has as many tokens as it may have.
  bool remove(RequestId id);

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_never_run() const { return num_never_run_; }
  int64_t num_pages() const { return pages_.num_pages(); }
  int64_t num_free_pages() const { return pages_.num_free(); }

 private:
  struct Sequence {
    RequestId id = 0;
    int64_t arrival = 0;         // order of add()
    int64_t num_tokens = 0;      // prompt and generated
    int64_t num_tokens_max = 0;  // at this many it must have been removed
    int64_t num_computed = 0;    // of them in the cache
    bool has_run = false;
    std::vector<int32_t> page_table;

    int64_t num_left() const { return num_tokens - num_computed; }
  };
  using ByArrival = std::map<int64_t, Sequence*>;

  void plan_decodes(StepPlan& plan);
  void plan_prefills(StepPlan& plan);
  void admit(StepPlan& plan);
  void plan_rows(Sequence& sequence, int64_t num_rows, StepPlan& plan);
  void preempt_youngest(StepPlan& plan);

  SchedulerConfig config_;
  PageAllocator pages_;
  std::unordered_map<RequestId, Sequence> sequences_;
  ByArrival waiting_, running_;  // every sequence is in one of them
  int64_t num_never_run_ = 0;
  int64_t next_arrival_ = 0;
};

}  // namespace halley
