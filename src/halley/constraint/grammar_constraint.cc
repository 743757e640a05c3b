#include "halley/constraint/grammar_constraint.h"

#include <mutex>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/mask_cache.h"

namespace halley {
namespace {

using State = Matcher::State;

struct LockedCache {
  LockedCache(const Grammar& grammar, const TokenTrie& trie, const MatcherLimits& limits)
      : cache(grammar, trie, limits) {}
  std::mutex mutex;
  MaskCache cache;
};

// The state that all requests of one grammar share.
class SharedCaches {
 public:
  SharedCaches(std::shared_ptr<const TokenTrie> trie, Grammar grammar, const MatcherLimits& limits)
      : trie_(std::move(trie)), grammar_(std::move(grammar)), limits_(limits), current_(make()) {}

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

 private:
  std::shared_ptr<LockedCache> make() const {
    return std::make_shared<LockedCache>(grammar_, *trie_, limits_);
  }

  std::shared_ptr<const TokenTrie> trie_;
  Grammar grammar_;
  MatcherLimits limits_;
  std::mutex mutex_;
  std::shared_ptr<LockedCache> current_;
};

class GrammarConstraint : public TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<SharedCaches> shared)
      : shared_(std::move(shared)),
        cache_(shared_->current()),
        state_(cache_->cache.matcher().start()) {}

  bool fill_allowed(TokenMask& allowed) override {
    if (state_ < 0) return false;
    if (has_ended_) {
      allowed.assign(shared_->trie().num_mask_words(), 0);
      return true;
    }
    return in_cache([&](MaskCache& cache) { return cache.fill(state_, allowed); });
  }

  bool accept(int32_t token_id) override {
    if (state_ < 0) return false;
    if (shared_->trie().is_eos(token_id)) {
      has_ended_ = true;
      return true;
    }
    State next = Matcher::kDead;
    const bool is_done = in_cache([&](MaskCache& cache) {
      next = cache.next(state_, token_id);
      return next;
    });
    state_ = next;
    return is_done && next >= 0;
  }

  bool is_complete() const override {
    if (has_ended_) return true;
    if (state_ < 0) return false;
    const std::lock_guard lock(cache_->mutex);
    const Matcher& matcher = cache_->cache.matcher();
    return matcher.may_end(state_) && !matcher.may_go_on(state_);
  }

 private:
  // Runs `work`, in a new cache if the old one is full. Returns false if a limit is passed that a
  // new cache does not lift.
  template <typename Work>
  bool in_cache(const Work& work) {
    bool is_new = false;
    while (true) {
      State result = Matcher::kDead;
      {
        const std::lock_guard lock(cache_->mutex);
        result = work(cache_->cache);
      }
      if (result != Matcher::kFull) return result >= 0;
      if (is_new) return false;
      if (!move_on(is_new)) return false;
    }
  }

  bool move_on(bool& is_new) {
    std::shared_ptr<LockedCache> full = cache_;
    do {
      const std::shared_ptr<LockedCache> target = shared_->replace(full, is_new);
      const std::scoped_lock lock(cache_->mutex, target->mutex);
      const State adopted = target->cache.matcher().adopt(cache_->cache.matcher(), state_);
      if (adopted >= 0) {
        state_ = adopted;
        full = target;
        break;
      }
      if (is_new) return false;
      full = target;
    } while (true);
    cache_ = full;
    return true;
  }

  std::shared_ptr<SharedCaches> shared_;
  std::shared_ptr<LockedCache> cache_;
  State state_;
  bool has_ended_ = false;
};

class GrammarCompiledConstraint : public CompiledConstraint {
 public:
  explicit GrammarCompiledConstraint(std::shared_ptr<SharedCaches> shared)
      : shared_(std::move(shared)) {}
  std::unique_ptr<TokenConstraint> start() const override {
    return std::make_unique<GrammarConstraint>(shared_);
  }

 private:
  std::shared_ptr<SharedCaches> shared_;
};

}  // namespace

std::shared_ptr<const CompiledConstraint> compile_constraint(std::shared_ptr<const TokenTrie> trie,
                                                             Grammar grammar,
                                                             const MatcherLimits& limits) {
  if (Matcher(grammar, limits).start() < 0) {
    throw InputError(str("schema: expected one whose values begin in at most ", limits.stacks_max,
                         " ways and need at most some ", limits.frames_max,
                         " nested values, got one with more. Make it simpler."));
  }
  return std::make_shared<GrammarCompiledConstraint>(
      std::make_shared<SharedCaches>(std::move(trie), std::move(grammar), limits));
}

}  // namespace halley
