#include "halley/constraint/grammar_constraint.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/mask_cache.h"

namespace halley {
namespace {

using State = Matcher::State;

struct LockedCache {
  LockedCache(const Grammar& grammar, const TokenTrie& trie, const MatcherLimits& limits,
              std::shared_ptr<MaskMemory> memory)
      : cache(grammar, trie, limits), memory_(std::move(memory)) {
    if (memory_ != nullptr) memory_->add_matcher();
    note_growth();
  }
  ~LockedCache() {
    if (memory_ != nullptr) memory_->remove_matcher(num_counted_);
  }
  LockedCache(const LockedCache&) = delete;
  LockedCache& operator=(const LockedCache&) = delete;

  /// Under the mutex, after work.
  void note_growth() {
    const size_t now = cache.matcher().memory_bytes();
    if (memory_ != nullptr) memory_->grow(now - num_counted_);
    num_counted_ = now;
  }

  size_t num_bytes() const { return num_counted_; }

  std::mutex mutex;
  MaskCache cache;

 private:
  std::shared_ptr<MaskMemory> memory_;
  std::atomic<size_t> num_counted_ = 0;
};

// The state that all requests of one grammar share.
class SharedCaches {
 public:
  SharedCaches(std::shared_ptr<const TokenTrie> trie, Grammar grammar, const MatcherLimits& limits,
               std::shared_ptr<MaskMemory> memory)
      : trie_(std::move(trie)),
        grammar_(std::move(grammar)),
        limits_(limits),
        memory_(std::move(memory)),
        current_(make()) {}

  const TokenTrie& trie() const { return *trie_; }

  std::shared_ptr<LockedCache> current() {
    const std::lock_guard lock(mutex_);
    return current_;
  }

  // Replaces the full cache `full`: by a new one, unless another request has made one already.
  std::shared_ptr<LockedCache> replace(const std::shared_ptr<LockedCache>& full, bool& is_new) {
    const std::lock_guard lock(mutex_);
    is_new = current_ == full;
    if (is_new) current_ = make();
    return current_;
  }

  // A cache that was made for the work at hand may have all that its limits say, so that the result
  // does not depend on others.
  size_t memory_bytes_max(bool is_new) const {
    if (is_new || memory_ == nullptr) return limits_.memory_bytes_max;
    return std::min(limits_.memory_bytes_max, memory_->share_bytes());
  }

  size_t num_bytes() { return grammar_.num_bytes() + current()->num_bytes(); }

 private:
  std::shared_ptr<LockedCache> make() const {
    return std::make_shared<LockedCache>(grammar_, *trie_, limits_, memory_);
  }

  std::shared_ptr<const TokenTrie> trie_;
  Grammar grammar_;
  MatcherLimits limits_;
  std::shared_ptr<MaskMemory> memory_;
  std::mutex mutex_;
  std::shared_ptr<LockedCache> current_;
};

class GrammarConstraint : public TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<SharedCaches> shared)
      : shared_(std::move(shared)),
        cache_(shared_->current()),
        state_(cache_->cache.matcher().start()) {
    const std::lock_guard lock(cache_->mutex);
    is_complete_ = is_complete_at(cache_->cache.matcher(), state_);
  }

  ConstraintWork fill_some(TokenMask& allowed, size_t num_steps) override {
    if (state_ < 0) return ConstraintWork::kOverLimit;
    if (has_ended_) {
      allowed.assign(shared_->trie().num_mask_words(), 0);
      return ConstraintWork::kDone;
    }
    if (num_steps == 0) {
      const std::unique_lock lock(cache_->mutex, std::try_to_lock);
      return lock && cache_->cache.find(state_, allowed) ? ConstraintWork::kDone
                                                         : ConstraintWork::kPaused;
    }
    return in_cache(num_steps,
                    [&](MaskCache& cache) { return cache.fill(state_, allowed, walk_); });
  }

  ConstraintWork accept_some(int32_t token_id, size_t num_steps) override {
    if (state_ < 0) return ConstraintWork::kOverLimit;
    if (shared_->trie().is_eos(token_id)) {
      has_ended_ = is_complete_ = true;
      return ConstraintWork::kDone;
    }
    State next = Matcher::kDead;
    const auto accept = [&](MaskCache& cache) {
      next = cache.next(state_, token_id);
      if (next >= 0) is_complete_ = is_complete_at(cache.matcher(), next);
      return next;
    };
    const ConstraintWork work =
        num_steps == 0 ? without_waiting(accept) : in_cache(num_steps, accept);
    if (work != ConstraintWork::kPaused) state_ = next;
    return work;
  }

  bool is_complete() const override { return is_complete_; }

 private:
  static bool is_complete_at(const Matcher& matcher, State state) {
    return state >= 0 && matcher.may_end(state) && !matcher.may_go_on(state);
  }

  template <typename Work>
  ConstraintWork without_waiting(const Work& work) {
    const std::unique_lock lock(cache_->mutex, std::try_to_lock);
    if (!lock) return ConstraintWork::kPaused;
    cache_->cache.matcher().allow_steps(0);
    const State result = work(cache_->cache);
    if (result == Matcher::kPaused) return ConstraintWork::kPaused;
    return result >= 0 ? ConstraintWork::kDone : ConstraintWork::kOverLimit;
  }

  // Runs `work`, in a new cache if the old one is full. Over the limit where a new cache does not
  // help.
  template <typename Work>
  ConstraintWork in_cache(size_t num_steps, const Work& work) {
    while (true) {
      const State result = run(num_steps, work);
      if (result == Matcher::kPaused) return ConstraintWork::kPaused;
      if (result != Matcher::kFull) {
        walk_.stage = MaskWalk::Stage::kBegin;
        is_new_ = false;
        return result >= 0 ? ConstraintWork::kDone : ConstraintWork::kOverLimit;
      }
      if (is_new_ || !move_on()) return ConstraintWork::kOverLimit;
    }
  }

  template <typename Work>
  State run(size_t num_steps, const Work& work) {
    const std::lock_guard lock(cache_->mutex);
    Matcher& matcher = cache_->cache.matcher();
    matcher.set_memory_bytes_max(shared_->memory_bytes_max(is_new_));
    matcher.allow_steps(num_steps);
    const State result = work(cache_->cache);
    cache_->note_growth();
    return result;
  }

  bool move_on() {
    walk_.stage = MaskWalk::Stage::kBegin;
    std::shared_ptr<LockedCache> full = cache_;
    do {
      const std::shared_ptr<LockedCache> target = shared_->replace(full, is_new_);
      const std::scoped_lock lock(cache_->mutex, target->mutex);
      const State adopted = target->cache.matcher().adopt(cache_->cache.matcher(), state_);
      target->note_growth();
      if (adopted >= 0) {
        state_ = adopted;
        full = target;
        break;
      }
      if (is_new_) return false;
      full = target;
    } while (true);
    cache_ = full;
    return true;
  }

  std::shared_ptr<SharedCaches> shared_;
  std::shared_ptr<LockedCache> cache_;
  State state_;
  MaskWalk walk_;        // of the mask in the making, in cache_
  bool is_new_ = false;  // cache_ was made for the work at hand
  bool has_ended_ = false;
  bool is_complete_ = false;
};

class GrammarCompiledConstraint : public CompiledConstraint {
 public:
  explicit GrammarCompiledConstraint(std::shared_ptr<SharedCaches> shared)
      : shared_(std::move(shared)) {}
  std::unique_ptr<TokenConstraint> start() const override {
    return std::make_unique<GrammarConstraint>(shared_);
  }
  size_t num_bytes() const override { return shared_->num_bytes(); }

 private:
  std::shared_ptr<SharedCaches> shared_;
};

}  // namespace

std::shared_ptr<const CompiledConstraint> compile_constraint(std::shared_ptr<const TokenTrie> trie,
                                                             Grammar grammar,
                                                             const MatcherLimits& limits,
                                                             std::shared_ptr<MaskMemory> memory) {
  if (Matcher(grammar, limits).start() < 0) {
    throw InputError(str(grammar.where(), ": expected an output that begins in at most ",
                         limits.stacks_max, " ways and needs at most some ", limits.frames_max,
                         " nested values, got one with more. Make it simpler."));
  }
  return std::make_shared<GrammarCompiledConstraint>(std::make_shared<SharedCaches>(
      std::move(trie), std::move(grammar), limits, std::move(memory)));
}

}  // namespace halley
