// Decides which tokens of which sequences the next step computes, and which KV pages they use. A
// pure data structure: no thread, no clock, no model, so that it can be simulated.
//
// Rules
// - Sequences have a rank: by arrival, or by priority (the lower number first) and then by arrival.
// - Decodes come first, in order of rank. A step has room for one of each sequence that runs.
// - What is left of the step's rows goes to prefill chunks in order of rank.
// - A sequence is admitted when all pages of the tokens it has, and one spare page for each
//   sequence that runs already, are free. The one at the head of the queue is never overtaken.
// - When a decode finds no free page, the running sequence of the last rank gives up its pages and
//   waits in its old place; its tokens, generated ones included, are computed again later.
// - A waiting sequence of strictly better priority than some that run is admitted before the step
//   is planned; where there is no room, those of worse priority give up theirs, last rank first, as
//   many as needed and none if all would not be enough.
// So the sequence of the first rank always advances. Of equal priority no one starves; a priority
// can wait for as long as better ones keep coming.
//
// Prefixes: full pages can be found by their tokens (page_allocator.h) as soon as they are
// computed, prompt or output. A sequence that is admitted, preempted ones too, starts behind the
// longest run of such pages that its tokens begin with, its last token excepted, which gives the
// logits and is always computed. Shared pages are full and never written: nothing is copied.
//
// Steps in flight: steps run in the order of their launches, so that a step may be planned before
// those that were launched have run. What has been launched counts as computed: a sequence has one
// token more, and pages that were given up may be written by later steps. But the token's value is
// not known yet. Until it is,
// - the sequence is in the next step nevertheless, unless the host must know the value before, or
//   the token is the last that it may have: then its place is free for another, and its pages are
//   once it is removed;
// - it is not admitted where it has been preempted meanwhile;
// - pages that the token is in cannot be found.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "halley/engine/page_allocator.h"
#include "halley/engine/scheduling_policy.h"

namespace halley {

/// Of one sequence for ever: an id is not used again.
using SequenceId = uint64_t;

struct SchedulerConfig {
  int64_t num_pages = 0;
  int64_t page_tokens = 16;              // P
  int64_t max_model_len = 0;             // tokens of one sequence, prompt and output
  int64_t max_num_seqs = 64;             // running at once
  int64_t max_num_batched_tokens = 512;  // rows of a step; >= max_num_seqs
  int64_t max_num_prompt_logits = 512;   // of them those that score prompts
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  bool has_prefix_caching = true;
};

struct NewSequence {
  SequenceId id = 0;
  int64_t num_prompt_tokens = 0;
  int64_t max_tokens = 0;
  int64_t priority = 0;              // lower first; no matter with kFcfs
  std::string cache_salt = {};       // prefixes are shared among equal salts alone
  bool needs_prompt_logits = false;  // of every row before its first token: no prefix is skipped
  bool is_chosen_by_host = false;    // its last token must be known before its next step
};

/// One sequence's part of a step: tokens [num_past, num_past + num_rows) of the sequence.
struct ScheduledSequence {
  SequenceId id = 0;
  int64_t num_past = 0;
  int64_t num_rows = 0;
  bool is_complete = false;  // its last token is among them: the next one is to be chosen
  bool is_last = false;      // and is the last that it may have: it will be in no step any more
  /// Valid until the next call of a member that is not const.
  std::span<const int32_t> page_table = {};
};

/// A sequence that was admitted for the first time.
struct StartedSequence {
  SequenceId id = 0;
  int64_t num_cached = 0;  // its first tokens that need not be computed
};

struct StepPlan {
  std::vector<ScheduledSequence> sequences;  // decodes, then prefill chunks
  int64_t num_rows = 0;
  std::vector<StartedSequence> started;
  std::vector<SequenceId> preempted;  // lost their pages in this step, in this order
};

/// All known tokens of a sequence that has been added and not removed.
using TokensOf = std::function<std::span<const int32_t>(SequenceId id)>;

/// Not thread-safe.
class Scheduler {
 public:
  /// `tokens_of` is asked in schedule(), launched() and note_token().
  Scheduler(const SchedulerConfig& config, TokensOf tokens_of);

  /// Tokens of a sequence at most: the prompt's and those it may generate, no more than
  /// max_model_len.
  static int64_t num_tokens_max(const SchedulerConfig& config, int64_t num_prompt_tokens,
                                int64_t max_tokens);
  /// False for what could never run: no room for one token behind the prompt, or more pages needed
  /// than there are.
  static bool can_fit(const SchedulerConfig& config, int64_t num_prompt_tokens, int64_t max_tokens);

  /// Queues a sequence that can_fit(). Its id is not in use; it has a token in its prompt.
  void add(const NewSequence& added);

  /// Plans the next step: takes pages, preempts, admits. It has no sequences where nothing is left
  /// to do, or where all that is left waits for tokens to be known; it may have preempted then too.
  /// The plan must be passed to launched() before the next one is made.
  StepPlan schedule();

  /// The step was launched: its rows count as computed, and every complete sequence of it that is
  /// still there has one token more.
  void launched(const StepPlan& plan);

  /// The first token of a sequence that was not known is: tokens_of() has it.
  void note_token(SequenceId id);

  /// Forgets a sequence and frees its pages, waiting or running; also between schedule() and
  /// launched(), and while it is in steps in flight. Returns false where there is none. The caller
  /// removes a sequence as soon as it knows as many tokens as it may have.
  bool remove(SequenceId id);

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  /// Tokens that were looked up and that were found, of sequences admitted for the first time.
  int64_t num_prefix_queries() const { return num_prefix_queries_; }
  int64_t num_prefix_hits() const { return num_prefix_hits_; }
  const PageAllocator& pages() const { return pages_; }
  /// Pages of a sequence that is there, empty while it waits; valid until the next call of a member
  /// that is not const.
  std::span<const int32_t> page_table(SequenceId id) const { return sequences_.at(id).page_table; }

 private:
  struct Rank {
    int64_t priority = 0;
    int64_t arrival = 0;  // order of add()
    auto operator<=>(const Rank&) const = default;
  };
  struct Sequence {
    SequenceId id = 0;
    Rank rank;
    int64_t num_prompt_tokens = 0;
    int64_t num_tokens = 0;      // prompt and generated, also those that steps in flight generate
    int64_t num_known = 0;       // of them those whose values are known
    int64_t num_tokens_max = 0;  // with this many known it must have been removed
    int64_t num_computed = 0;    // in the cache, or launched
    int64_t num_kept = 0;        // pages that others can find: the first ones of the page table
    bool has_run = false;
    bool needs_prompt_logits = false;
    bool is_chosen_by_host = false;
    std::string cache_salt;
    std::vector<int32_t> page_table;

    int64_t num_left() const { return num_tokens - num_computed; }
    bool is_known() const { return num_known == num_tokens; }
    bool is_ending() const { return num_tokens == num_tokens_max; }  // in no step any more
    bool can_decode() const {
      return num_left() == 1 && !is_ending() && (is_known() || !is_chosen_by_host);
    }
    bool is_scored() const { return needs_prompt_logits && num_tokens == num_prompt_tokens; }
  };
  using ByRank = std::map<Rank, Sequence*>;

  void admit_better(StepPlan& plan);
  void plan_decodes(StepPlan& plan);
  void plan_prefills(StepPlan& plan);
  void admit(StepPlan& plan);
  void plan_rows(Sequence& sequence, int64_t num_rows, StepPlan& plan);
  int64_t num_rows_for(const Sequence& sequence, const StepPlan& plan) const;
  void preempt_last(StepPlan& plan);

  bool try_start(Sequence& sequence, StepPlan& plan);
  int64_t num_to_preempt(const Sequence& sequence, int64_t num_pages) const;
  void share_prefix(Sequence& sequence);
  void keep_full_pages(Sequence& sequence);
  PrefixKey key_of(const Sequence& sequence, std::span<const int32_t> tokens) const;

  SchedulerConfig config_;
  TokensOf tokens_of_;
  PageAllocator pages_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  ByRank waiting_, running_;       // every sequence is in one of them
  int64_t num_prompt_logits_ = 0;  // of the step that is being planned
  int64_t num_prefix_queries_ = 0, num_prefix_hits_ = 0;
  int64_t next_arrival_ = 0;
};

}  // namespace halley
