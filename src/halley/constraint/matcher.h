// Decides which bytes may come next in a text of a grammar: a pushdown automaton, made
// deterministic lazily.
//
// The position in a text is a set of stacks. A stack is a chain of frames: the expression to match
// now, and below it the ones to continue with. Stacks share frames. Each distinct set of stacks is
// a numbered state, and transitions (state, byte) are cached. So a text along known transitions
// costs one look-up per byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "halley/constraint/grammar.h"

namespace halley {

struct MatcherLimits {
  /// Frames of a stack: somewhat more than the depth of nested JSON values. Deeper texts are not in
  /// the language; every text can reach its end within this depth.
  int32_t frames_max = 120;
  /// Stacks of a state: alternatives that the text leaves open.
  size_t stacks_max = 2048;
  /// Steps of the transition from a state to the next.
  size_t steps_max = 32'768;
  /// Approximate memory of a matcher, and steps of all its transitions: about 0.1 s.
  size_t memory_bytes_max = 16u << 20;
  size_t total_steps_max = 1'000'000;
};

/// Not thread-safe.
class Matcher {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;  // no text of the language begins so
  /// A limit was passed: kFull that of the whole matcher (a new one can continue from this state),
  /// kTooComplex that of one state (the grammar is too ambiguous).
  static constexpr State kFull = -2;
  static constexpr State kTooComplex = -3;
  /// The steps of allow_steps() are used up: the same call later goes on.
  static constexpr State kPaused = -7;

  /// `grammar` must outlive this.
  explicit Matcher(const Grammar& grammar, const MatcherLimits& limits = {});

  /// The state of the empty text, or kTooComplex.
  State start() const { return start_; }
  /// The state after one more byte, or one of the four above. `state` is none of these, here and
  /// below.
  State next(State state, uint8_t byte) {
    const size_t slot =
        static_cast<size_t>(state) * num_classes_ + static_cast<size_t>(grammar_.class_of(byte));
    return next_[slot] != kUnknown ? next_[slot] : compute_next(state, byte);
  }
  /// Whether the text may end here.
  bool may_end(State state) const { return states_[static_cast<size_t>(state)].may_end; }
  /// Whether a byte may follow.
  bool may_go_on(State state) const { return states_[static_cast<size_t>(state)].num_stacks > 0; }

  /// Imports `state` of `other`, a matcher of the same grammar; returns the state here, or kFull.
  State adopt(const Matcher& other, State state);

  /// Further steps that the matcher may take until next() answers kPaused.
  void allow_steps(size_t num_steps) {
    const size_t left = std::numeric_limits<size_t>::max() - num_steps_;
    pause_at_ = num_steps_ + std::min(num_steps, left);
  }
  void set_memory_bytes_max(size_t num_bytes) { limits_.memory_bytes_max = num_bytes; }

  size_t memory_bytes() const { return memory_bytes_; }
  size_t num_steps() const { return num_steps_; }
  /// Counts memory of other structures towards the matcher's limit.
  void add_memory_bytes(size_t num_bytes) { memory_bytes_ += num_bytes; }
  const Grammar& grammar() const { return grammar_; }

 private:
  using FrameId = int32_t;
  static constexpr FrameId kBottom = 0;  // below all frames: the end of the text
  static constexpr State kUnknown = -4;

  /// Match expression `expr` from part, repetition or byte `index` on, then go on with `parent`.
  struct Frame {
    ExprId expr = 0;
    int32_t index = 0;
    FrameId parent = kBottom;
    auto operator<=>(const Frame&) const = default;
  };
  struct FrameHash {
    size_t operator()(const Frame& frame) const;
  };
  struct StateInfo {
    size_t first_stack = 0;
    size_t num_stacks = 0;
    bool may_end = false;
  };

  State compute_next(State state, uint8_t byte);
  State close_pending(bool may_end);
  bool close();
  void expand(const Frame& frame);
  void expand_sequence(const Frame& frame, const Expr& expr);
  void expand_repeat(const Frame& frame, const Expr& expr);
  void enter(ExprId expr, int32_t index, FrameId parent);
  void leave_to(FrameId frame);
  FrameId intern(const Frame& frame);
  State intern_state(std::vector<FrameId> stacks, bool may_end);
  std::span<const FrameId> stacks_of(State state) const;
  bool is_full() const {
    return memory_bytes_ > limits_.memory_bytes_max || num_steps_ > limits_.total_steps_max;
  }

  const Grammar& grammar_;
  MatcherLimits limits_;
  size_t num_classes_;
  size_t memory_bytes_ = 0;
  size_t num_steps_ = 0;
  size_t pause_at_ = std::numeric_limits<size_t>::max();

  std::vector<Frame> frames_;
  std::vector<int32_t> depths_;  // parallel to frames_: frames down to the bottom
  std::unordered_map<Frame, FrameId, FrameHash> frame_ids_;

  std::vector<StateInfo> states_;
  std::vector<FrameId> stacks_;                       // stacks of all states, each sorted
  std::vector<State> next_;                           // [state][byte class]
  std::unordered_multimap<size_t, State> state_ids_;  // by hash
  State start_ = kDead;

  // The last transition that was computed: where the stacks were behind the byte, and its result.
  std::vector<Frame> last_pending_;
  bool last_may_end_ = false;
  State last_next_ = kUnknown;

  // Work lists of the current transition: frames to expand, frames expanded, and the result.
  std::vector<Frame> pending_;
  std::unordered_set<Frame, FrameHash> seen_;
  std::vector<FrameId> closed_;
  bool closed_may_end_ = false;
};

}  // namespace halley
