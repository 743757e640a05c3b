// Decides which tokens of which sequences the next step computes, and which KV pages they use. A
// pure data structure: no thread, no clock, no model, so that it can be simulated.
//
// Rules
// - Sequences are ordered by rank: arrival, or priority (the lower number first) and then arrival.
// - Decodes come first, in order of rank. A step has a row for each running sequence.
// - A sequence is admitted when the free pages suffice for all its tokens, plus one spare page for
//   each running sequence, whether or not the step has rows for it. The one at the head of the
//   queue is never overtaken.
// - The rest of the step's rows, or fewer where the caller limits them, goes to prefill chunks: of
//   the best priority first, and within a priority half of them in order of rank, the others to the
//   shortest remaining first. So a short prompt does not wait for a long one, and no prefill gets
//   less than half of the rows that it would get in order of rank.
// - When a decode finds no free page, the running sequence of the last rank is preempted: it
//   loses its pages and waits again at its rank. Its tokens, generated ones too, are recomputed.
// - A waiting sequence of strictly better priority than some that run is admitted before the step
//   is planned; if needed, sequences of worse priority are preempted, last rank first, as many as
//   needed, and none if all together would not suffice.
// So the sequence of the first rank always advances. Sequences of equal priority do not starve each
// other; a priority can wait as long as better ones keep arriving.
//
// Prefix caching: full pages can be found by their tokens (page_allocator.h) as soon as they are
// computed, for prompt and output. An admitted sequence, preempted ones too, skips the longest run
// of such pages at its beginning. Its last token is always computed, since it gives the logits.
// Shared pages are full and never written, so nothing is copied.
//
// Precision: a step may be restricted to pinned sequences, or to all others (StepScope). Pages that
// pinned ones share hold what steps in the best precision have computed.
//
// Steps in flight: steps run in the order of their launches, so that a step may be planned before
// those that were launched have run. What has been launched counts as computed: a sequence has one
// token more, and pages that were given up may be written by later steps. But the token's value is
// not known yet. Until it is,
// - the sequence is in the next step nevertheless, unless the token is the last one: then another
//   sequence may run instead, and its pages become free when it is removed;
// - a sequence that was preempted meanwhile is not admitted;
// - pages with the token cannot be found in the prefix cache.
// The choice of a token may be launched later than the row that gives its logits. Until it is, the
// sequence has no further token and is in no step; if it is preempted, its last row runs again.
#pragma once

#include <algorithm>
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

/// Identifies a sequence; an id is never reused.
using SequenceId = uint64_t;

struct SchedulerConfig {
  int64_t num_pages = 0;
  int64_t page_tokens = 16;              // P
  int64_t max_model_len = 0;             // tokens of one sequence, prompt and output
  int64_t max_num_seqs = 64;             // running at once
  int64_t max_num_batched_tokens = 512;  // rows of a step; >= max_num_seqs
  int64_t max_num_prompt_logits = 512;   // rows of a step that score prompts
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  bool has_prefix_caching = true;
  /// Steps that run at the same time in the stages of a pipeline. With more than one, a sequence is
  /// in no step before its last token is known, and each step takes a share of those that decode.
  int64_t num_stages = 1;
};

struct NewSequence {
  SequenceId id = 0;
  int64_t num_prompt_tokens = 0;
  int64_t max_tokens = 0;
  int64_t priority = 0;              // lower first; ignored by kFcfs
  std::string cache_salt = {};       // only equal salts share prefixes
  bool needs_prompt_logits = false;  // of all prompt rows: no prefix is skipped
  bool needs_all_rows = false;       // no prefix is skipped
  bool is_choice_deferred = false;   // each of its choices is launched apart: choice_launched()
  bool is_pinned = false;            // to steps in the best precision; shares prefixes with such
                                     // sequences only
};

/// Which running sequences may have rows in a step.
enum class StepScope : uint8_t { kAll, kUnpinned, kPinned };

/// The rows that the next step could have, before any of them is planned.
struct StepOutline {
  struct Part {
    SequenceId id = 0;
    int64_t num_past = 0, num_left = 0;  // tokens that are computed, and that are not
    int64_t num_unknown = 0;             // tokens of steps in flight
    bool is_pinned = false;
    bool can_run = true;  // it has pages, or there are pages for it
  };
  std::vector<Part> decodes;   // running, past their prefill
  std::vector<Part> prefills;  // in order of rank: those that run, then those that wait
};

/// One sequence's part of a step: tokens [num_past, num_past + num_rows) of the sequence.
struct ScheduledSequence {
  SequenceId id = 0;
  int64_t num_past = 0;
  int64_t num_rows = 0;
  bool is_complete = false;  // has its last token: the next one is sampled
  bool is_last = false;      // and that is the last one: the sequence is in no later step
  /// Valid until the next call of a non-const member.
  std::span<const int32_t> page_table = {};
};

/// A sequence that gets rows for the first time.
struct StartedSequence {
  SequenceId id = 0;
  int64_t num_cached = 0;  // first tokens, from the prefix cache
};

struct StepPlan {
  std::vector<ScheduledSequence> sequences;  // decodes, then prefill chunks
  int64_t num_rows = 0;
  int64_t num_decodes = 0;  // the first sequences; they have one row each
  std::vector<StartedSequence> started;
  std::vector<SequenceId> preempted;  // in this order; they lost their pages
};

/// Facts of a step by which the caller limits its prefill rows.
struct PrefillOutlook {
  int64_t num_decodes = 0;  // running sequences past their prefill, in this step or not
  int64_t num_past = 0;     // largest number of past tokens of the chunks that come first
};
/// The largest number of prefill rows of a step, at least 0. Where it is always 0 while sequences
/// decode, prefills wait until they have ended.
using PrefillLimitOf = std::function<int64_t(const PrefillOutlook& outlook)>;

/// All known tokens of a sequence that has been added and not removed.
using TokensOf = std::function<std::span<const int32_t>(SequenceId id)>;

/// Not thread-safe.
class Scheduler {
 public:
  /// schedule(), launched() and note_token() call `tokens_of`.
  Scheduler(const SchedulerConfig& config, TokensOf tokens_of);

  /// The largest number of tokens of a sequence: prompt and output, at most max_model_len.
  static int64_t num_tokens_max(const SchedulerConfig& config, int64_t num_prompt_tokens,
                                int64_t max_tokens);
  /// Returns false for a sequence that could never run: its prompt leaves no position for a token,
  /// or it needs more pages than there are.
  static bool can_fit(const SchedulerConfig& config, int64_t num_prompt_tokens, int64_t max_tokens);

  /// Queues a sequence that can_fit(). Its id is not in use; its prompt is not empty.
  void add(const NewSequence& added);

  /// Plans the next step: takes pages, preempts, admits. The plan has no sequences if nothing is
  /// left to do or all sequences wait for tokens to be known or chosen; it may have preempted some
  /// even then.
  /// The plan must be passed to launched() before the next one is made. `limit_of` is called at
  /// most once, where a prefill could have rows; without it max_num_batched_tokens alone limits
  /// them.
  /// Sequences outside of `scope` have no rows in this step, but may be admitted or preempted.
  StepPlan schedule(const PrefillLimitOf& limit_of = {}, StepScope scope = StepScope::kAll);

  /// The facts by which a caller chooses a scope. Sequences that cannot run before a token of
  /// theirs is known or chosen are left out.
  StepOutline outline() const;

  /// To be called when the step was launched: its rows count as computed, and each of its complete
  /// sequences that still exist has one token more, unless its choice is deferred.
  void launched(const StepPlan& plan);

  /// To be called when the choice of a deferred token was launched: the sequence has one token
  /// more. It runs, and its last row has been launched since it was admitted. Returns whether the
  /// token is the last one.
  bool choice_launched(SequenceId id);

  /// To be called when the first unknown token of a sequence is known: tokens_of() has it.
  void note_token(SequenceId id);

  /// Removes a waiting or running sequence and frees its pages; also between schedule() and
  /// launched(), and while it is in steps in flight. Returns false if there is none. The caller
  /// removes a sequence as soon as its last token is known.
  bool remove(SequenceId id);

  /// Sequences that have pages, and had rows since they were admitted.
  int64_t num_running() const { return num_with_rows_; }
  /// All others: they wait for pages, for a running slot, or for rows.
  int64_t num_waiting() const { return static_cast<int64_t>(sequences_.size()) - num_with_rows_; }
  /// Tokens looked up and found in the prefix cache, for sequences that ran for the first time.
  int64_t num_prefix_queries() const { return num_prefix_queries_; }
  int64_t num_prefix_hits() const { return num_prefix_hits_; }
  const PageAllocator& pages() const { return pages_; }
  int64_t num_batched_tokens_max() const { return config_.max_num_batched_tokens; }
  /// The pages of an existing sequence, empty while it waits; valid until the next call of a
  /// non-const member.
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
    int64_t num_tokens = 0;      // prompt and output, with those of steps in flight
    int64_t num_known = 0;       // tokens whose values are known
    int64_t num_tokens_max = 0;  // with this many known it has been removed
    int64_t num_computed = 0;    // in the cache, or launched
    int64_t num_kept = 0;        // the table's first pages, which others can find
    bool has_run = false;
    bool has_rows = false;  // had some since it was admitted
    bool needs_prompt_logits = false;
    bool needs_all_rows = false;
    bool is_choice_deferred = false;
    bool is_pinned = false;
    std::string cache_salt;
    std::vector<int32_t> page_table;

    int64_t num_left() const { return num_tokens - num_computed; }
    bool is_known() const { return num_known == num_tokens; }
    bool is_ending() const { return num_tokens == num_tokens_max; }  // in no step any more
    bool can_decode() const { return num_left() == 1 && !is_ending(); }
    bool skips_nothing() const { return needs_all_rows || is_scored(); }
    bool is_scored() const { return needs_prompt_logits && num_tokens == num_prompt_tokens; }
    // How many of its next `num_rows` rows score the prompt: all but its last row, which gives the
    // first token.
    int64_t num_prompt_logits(int64_t num_rows) const {
      return is_scored() ? std::min(num_rows, num_left() - 1) : 0;
    }
  };
  using ByRank = std::map<Rank, Sequence*>;
  /// A sequence in its prefill, and its rows in the step that is being planned.
  struct Prefill {
    Sequence* sequence = nullptr;
    int64_t num_rows = 0;

    int64_t num_left() const { return sequence->num_left() - num_rows; }
    static bool is_shorter(const Prefill& a, const Prefill& b) {
      return a.num_left() < b.num_left();
    }
  };

  void admit_better(StepPlan& plan);
  bool is_in_scope(const Sequence& sequence) const;
  int64_t num_decodes_max() const;
  void plan_decodes(StepPlan& plan);
  void admit(StepPlan& plan);
  void plan_prefills(const PrefillLimitOf& limit_of, StepPlan& plan);
  std::vector<Prefill> find_prefills();
  PrefillOutlook outlook(std::span<const Prefill> best) const;
  int64_t share_rows(std::span<Prefill> prefills, int64_t num_rows);
  int64_t give_rows(Prefill& prefill, int64_t num_rows);
  void plan_rows(Sequence& sequence, int64_t num_rows, StepPlan& plan);
  void note_first_rows(Sequence& sequence, StepPlan& plan);
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
  ByRank waiting_, running_;           // every sequence is in one of them
  int64_t num_with_rows_ = 0;          // sequences with has_rows
  int64_t num_prompt_logits_ = 0;      // in the step that is being planned
  StepScope scope_ = StepScope::kAll;  // of that step
  int64_t num_prefix_queries_ = 0, num_prefix_hits_ = 0;
  int64_t next_arrival_ = 0;
};

}  // namespace halley
