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

/// Thread-safe. Keeps what was used last, as much as the bound allows; a constraint that it drops
/// lives as long as its requests.
class ConstraintCache {
 public:
  using Compiled = std::shared_ptr<const CompiledConstraint>;

  /// The bound counts grammars with their masks, and keys.
  explicit ConstraintCache(size_t num_bytes_max) : num_bytes_max_(num_bytes_max) {}

  /// The constraint of the key; null where there is none yet. Does not wait.
  Compiled find(const std::string& key);

  /// The constraint of the key, which is compiled once: whoever comes meanwhile waits for it. What
  /// `compile` throws reaches all of them, and nothing is kept.
  Compiled get(const std::string& key, const std::function<Compiled()>& compile);

  size_t num_entries() const;

 private:
  struct Entry {
    std::string key;
    std::shared_future<Compiled> compiled;
  };
  using Entries = std::list<Entry>;

  Entries::iterator* touch(const std::string& key);
  void drop_last_used();
  void drop(const std::string& key);

  const size_t num_bytes_max_;
  mutable std::mutex mutex_;
  Entries entries_;                                                 // most recently used first
  std::unordered_map<std::string_view, Entries::iterator> by_key_;  // views of the entries' keys
};

}  // namespace halley
