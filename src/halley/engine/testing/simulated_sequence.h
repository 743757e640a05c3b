// For tests: sequences of the scheduler's simulation, whose tokens are hashes of those before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/engine/scheduler.h"

namespace halley {

inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}

// The contents of a cache position: a hash of its token and all before it, and of the owner's salt.
inline uint64_t chained(uint64_t before, int32_t token) {
  return mix(before, static_cast<uint64_t>(token) + 1);
}
inline uint64_t chain_begin(const std::string& salt) { return mix(77, salt.empty() ? 0 : salt[0]); }

// A small vocabulary, so that sequences with equal prefixes often continue alike.
inline int32_t next_token(uint64_t chain) { return static_cast<int32_t>(chain >> 20 & 3); }

/// A sequence of the simulation, with its text and how far the scheduler has come with it.
struct SimulatedSequence {
  int64_t priority = 0;
  std::string salt;
  std::vector<int32_t> tokens;   // computed ones, known or not
  std::vector<uint64_t> chains;  // of each token
  size_t num_prompt_tokens = 0;
  size_t num_tokens_max = 0;
  size_t num_tokens_end = 0;  // its end, which the scheduler does not foresee
  size_t num_launched = 0;    // tokens, with those that steps in flight give
  size_t num_known = 0;       // tokens whose values are known
  size_t num_computed = 0;    // positions in the cache, as of the last launch
  bool is_choice_deferred = false;
  bool has_logits = false;  // it waits for its choice
  std::optional<int64_t> deadline;
  bool is_scored = false;
  bool has_started = false;

  void append(int32_t token) {
    chains.push_back(chained(chains.empty() ? chain_begin(salt) : chains.back(), token));
    tokens.push_back(token);
  }
  bool is_known() const { return num_known == num_launched; }
  bool is_ending() const { return num_launched == num_tokens_max; }
  bool may_go_on() const { return !is_ending() && !has_logits; }
};

/// A small scheduler; `pick` gives a random number from its first argument to its second.
inline SchedulerConfig random_config(const std::function<int64_t(int64_t, int64_t)>& pick) {
  const int64_t max_num_seqs = pick(1, 8);
  return {.num_pages = pick(2, 30),
          .page_tokens = pick(1, 8),
          .max_model_len = pick(2, 60),
          .max_num_seqs = max_num_seqs,
          .max_num_batched_tokens = max_num_seqs + pick(0, 20),
          .max_num_prompt_logits = pick(1, 10),
          .policy = pick(0, 2) == 0 ? SchedulingPolicy::kFcfs : SchedulingPolicy::kPriority,
          .has_prefix_caching = pick(0, 4) != 0,
          .num_stages = pick(0, 2) == 0 ? pick(2, 4) : 1};
}

/// Counts how often the simulation reached the interesting cases.
struct ReachedCases {
  int64_t num_steps = 0, num_finished = 0, num_preemptions = 0, num_hits = 0, num_cancels = 0;
  int64_t num_expired = 0, num_overtaken = 0, num_shared_pages = 0, num_scored_rows = 0;
  int64_t num_dropped = 0, num_unknown_inputs = 0, num_preempted_unknown = 0;
  int64_t num_limited = 0, num_shared_steps = 0, num_shared_decodes = 0;
  int64_t num_deferred = 0, num_preempted_deferred = 0;
};

/// A sequence's part of a step in flight, with its own copies: it may have ended meanwhile.
struct SimulatedPart {
  SequenceId id = 0;
  std::shared_ptr<SimulatedSequence> live;
  size_t num_past = 0, num_after = 0;
  bool is_complete = false;
  bool is_choice = false;  // of the token alone
  std::vector<int32_t> page_table = {};
};

}  // namespace halley
