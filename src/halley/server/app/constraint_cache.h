// Compiled constraints, shared by the requests that ask for the same one.
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "halley/constraint/token_constraint.h"

namespace halley {

/// Thread-safe. Keeps all that somebody uses, so that it is compiled and stored once, and of the
/// rest what was used last, as much as the bound allows.
class ConstraintCache {
 public:
  using Compiled = std::shared_ptr<const CompiledConstraint>;

  /// The bound counts grammars with their masks, and keys, that nobody uses.
  explicit ConstraintCache(size_t num_unused_bytes_max)
      : num_unused_bytes_max_(num_unused_bytes_max) {}

  /// The constraint of the key; null where there is none yet. Does not wait.
  Compiled find(const std::string& key);

  /// The constraint of the key, which is compiled once: whoever comes meanwhile waits for it. What
  /// `compile` throws reaches all of them, and nothing is kept.
  Compiled get(const std::string& key, const std::function<Compiled()>& compile);

  /// Drops what nobody uses.
  void drop_unused() { drop_unused_beyond(0); }

  size_t num_entries() const;

 private:
  struct Entry {
    std::string key;
    std::shared_future<Compiled> compiled;
  };
  using Entries = std::list<Entry>;

  Entries::iterator* touch(const std::string& key);
  void drop_unused_beyond(size_t num_bytes_max);
  void drop(const std::string& key);

  const size_t num_unused_bytes_max_;
  mutable std::mutex mutex_;
  Entries entries_;                                                 // most recently used first
  std::unordered_map<std::string_view, Entries::iterator> by_key_;  // views of the entries' keys
};

}  // namespace halley
