#include "halley/constraint/matcher.h"

#include <algorithm>
#include <utility>

#include "halley/base/check.h"

namespace halley {
namespace {

// The overhead of a hash table's entry: the node's pointers and its bucket.
constexpr size_t kHashNodeBytes = 32;

size_t mix(size_t hash, size_t value) {
  // The multiplier of splitmix64: all bits of the value reach the high half.
  hash = (hash ^ value) * 0xBF58476D1CE4E5B9u;
  return hash ^ (hash >> 32);
}

}  // namespace

size_t Matcher::FrameHash::operator()(const Frame& frame) const {
  size_t hash = mix(0, static_cast<size_t>(frame.expr));
  hash = mix(hash, static_cast<size_t>(frame.index));
  return mix(hash, static_cast<size_t>(frame.parent));
}

Matcher::Matcher(const Grammar& grammar, const MatcherLimits& limits)
    : grammar_(grammar),
      limits_(limits),
      num_classes_(static_cast<size_t>(grammar.num_byte_classes())) {
  frames_.emplace_back();  // kBottom
  depths_.push_back(0);
  enter(grammar_.root(), 0, kBottom);
  start_ = close() ? intern_state(std::exchange(closed_, {}), closed_may_end_) : kTooComplex;
}

std::span<const Matcher::FrameId> Matcher::stacks_of(State state) const {
  const StateInfo& info = states_[static_cast<size_t>(state)];
  return std::span(stacks_).subspan(info.first_stack, info.num_stacks);
}

Matcher::FrameId Matcher::intern(const Frame& frame) {
  const auto [found, is_new] = frame_ids_.try_emplace(frame, static_cast<FrameId>(frames_.size()));
  if (is_new) {
    frames_.push_back(frame);
    depths_.push_back(depths_[static_cast<size_t>(frame.parent)] + 1);
    memory_bytes_ += 2 * sizeof(Frame) + sizeof(FrameId) + sizeof(int32_t) + kHashNodeBytes;
  }
  return found->second;
}

// Every path taken here can reach its end within frames_max: the least need of an expression is
// compared with the frames left, and the frames below it were compared before.
void Matcher::enter(ExprId expr, int32_t index, FrameId parent) {
  const int32_t needed = grammar_.frames_needed(expr, index);
  if (needed == kNoEnd || depths_[static_cast<size_t>(parent)] + needed > limits_.frames_max) {
    return;
  }
  pending_.push_back({expr, index, parent});
}

void Matcher::leave_to(FrameId frame) {
  if (frame == kBottom) {
    closed_may_end_ = true;
  } else {
    pending_.push_back(frames_[static_cast<size_t>(frame)]);
  }
}

void Matcher::expand_sequence(const Frame& frame, const Expr& expr) {
  if (frame.index == expr.count) {
    leave_to(frame.parent);
    return;
  }
  const bool is_last = frame.index + 1 == expr.count;
  // No frame for the last part: a chain of tails needs no stack.
  const FrameId behind =
      is_last ? frame.parent : intern({frame.expr, frame.index + 1, frame.parent});
  enter(grammar_.part(expr, frame.index), 0, behind);
}

void Matcher::expand_repeat(const Frame& frame, const Expr& expr) {
  if (frame.index >= expr.min) leave_to(frame.parent);
  if (expr.max != kUnbounded && frame.index >= expr.max) return;
  // Without an upper bound all counts from min on are equivalent.
  const int32_t count =
      expr.max == kUnbounded ? std::min(frame.index + 1, expr.min) : frame.index + 1;
  const ExprId part = grammar_.part(expr, 0);
  if (expr.max != 1 && depths_[static_cast<size_t>(frame.parent)] >= limits_.frames_max) return;
  const FrameId behind = expr.max == 1 ? frame.parent : intern({frame.expr, count, frame.parent});
  enter(part, 0, behind);
}

void Matcher::expand(const Frame& frame) {
  const Expr& expr = grammar_.expr(frame.expr);
  switch (expr.kind) {
    case ExprKind::kBytes:
    case ExprKind::kText:
      closed_.push_back(intern(frame));
      break;
    case ExprKind::kSequence:
      expand_sequence(frame, expr);
      break;
    case ExprKind::kChoice:
    case ExprKind::kRule:
      for (int32_t i = 0; i < expr.count; ++i) enter(grammar_.part(expr, i), 0, frame.parent);
      break;
    case ExprKind::kRepeat:
      expand_repeat(frame, expr);
      break;
  }
}

// Expands pending frames to stacks whose top matches a byte. Returns false if a limit is passed.
bool Matcher::close() {
  closed_.clear();
  closed_may_end_ = false;
  seen_.clear();
  size_t num_steps = 0;
  // leave_to() may have been called before: it is pending or the end.
  while (!pending_.empty()) {
    const Frame frame = pending_.back();
    pending_.pop_back();
    if (!seen_.insert(frame).second) continue;
    expand(frame);
    ++num_steps_;
    if (++num_steps > limits_.steps_max || closed_.size() > limits_.stacks_max) {
      pending_.clear();
      return false;
    }
  }
  std::sort(closed_.begin(), closed_.end());
  closed_.erase(std::unique(closed_.begin(), closed_.end()), closed_.end());
  return true;
}

Matcher::State Matcher::intern_state(std::vector<FrameId> stacks, bool may_end) {
  if (stacks.empty() && !may_end) return kDead;
  size_t hash = mix(0, may_end ? 1 : 0);
  for (const FrameId stack : stacks) hash = mix(hash, static_cast<size_t>(stack));
  const auto [begin, end] = state_ids_.equal_range(hash);
  for (auto found = begin; found != end; ++found) {
    const State state = found->second;
    if (may_end == this->may_end(state) && std::ranges::equal(stacks, stacks_of(state))) {
      return state;
    }
  }
  const auto state = static_cast<State>(states_.size());
  states_.push_back({stacks_.size(), stacks.size(), may_end});
  stacks_.insert(stacks_.end(), stacks.begin(), stacks.end());
  next_.resize(next_.size() + num_classes_, kUnknown);
  state_ids_.emplace(hash, state);
  memory_bytes_ += sizeof(StateInfo) + stacks.size() * sizeof(FrameId) +
                   num_classes_ * sizeof(State) + 2 * sizeof(size_t) + kHashNodeBytes;
  return state;
}

// The state of the pending frames. Most bytes that may come next are taken by the same stacks, the
// letters of a string for example, so that the last result is often this one too.
Matcher::State Matcher::close_pending(bool may_end) {
  if (last_next_ != kUnknown && may_end == last_may_end_ && pending_ == last_pending_) {
    pending_.clear();
    ++num_steps_;
    return last_next_;
  }
  last_pending_ = pending_;
  last_may_end_ = may_end;
  last_next_ = kTooComplex;
  if (close()) last_next_ = intern_state(std::exchange(closed_, {}), closed_may_end_ || may_end);
  return last_next_;
}

Matcher::State Matcher::compute_next(State state, uint8_t byte) {
  if (num_steps_ >= pause_at_) return kPaused;
  if (is_full()) return kFull;
  bool may_end = false;
  for (const FrameId stack : stacks_of(state)) {
    const Frame frame = frames_[static_cast<size_t>(stack)];
    const Expr& expr = grammar_.expr(frame.expr);
    if (expr.kind == ExprKind::kBytes) {
      if (!grammar_.bytes(expr)[byte]) continue;
    } else {
      if (grammar_.text_byte(expr, frame.index) != byte) continue;
      if (frame.index + 1 < expr.count) {
        pending_.push_back({frame.expr, frame.index + 1, frame.parent});
        continue;
      }
    }
    if (frame.parent == kBottom) {
      may_end = true;
    } else {
      pending_.push_back(frames_[static_cast<size_t>(frame.parent)]);
    }
  }
  const State next = close_pending(may_end);
  const auto byte_class = static_cast<size_t>(grammar_.class_of(byte));
  next_[static_cast<size_t>(state) * num_classes_ + byte_class] = next;
  return next;
}

Matcher::State Matcher::adopt(const Matcher& other, State state) {
  HALLEY_CHECK(&grammar_ == &other.grammar_);
  std::vector<FrameId> stacks;
  std::vector<FrameId> chain;
  for (const FrameId stack : other.stacks_of(state)) {
    chain.clear();
    for (FrameId f = stack; f != kBottom; f = other.frames_[static_cast<size_t>(f)].parent) {
      chain.push_back(f);
    }
    FrameId parent = kBottom;
    while (!chain.empty()) {
      const Frame& frame = other.frames_[static_cast<size_t>(chain.back())];
      parent = intern({frame.expr, frame.index, parent});
      chain.pop_back();
    }
    stacks.push_back(parent);
    if (is_full()) return kFull;
  }
  std::sort(stacks.begin(), stacks.end());
  return intern_state(std::move(stacks), other.may_end(state));
}

}  // namespace halley
