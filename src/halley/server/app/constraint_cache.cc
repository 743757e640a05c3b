#include "halley/server/app/constraint_cache.h"

#include <chrono>
#include <exception>
#include <iterator>
#include <utility>

namespace halley {
namespace {

bool is_ready(const std::shared_future<ConstraintCache::Compiled>& compiled) {
  return compiled.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// The cache has one reference itself.
bool is_used(const std::shared_future<ConstraintCache::Compiled>& compiled) {
  return !is_ready(compiled) || compiled.get().use_count() > 1;
}

}  // namespace

// Called under the lock. Null: there is no such entry.
ConstraintCache::Entries::iterator* ConstraintCache::touch(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &found->second;
}

ConstraintCache::Compiled ConstraintCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const Entries::iterator* found = touch(key);
  if (found == nullptr || !is_ready((*found)->compiled)) return nullptr;
  return (*found)->compiled.get();
}

ConstraintCache::Compiled ConstraintCache::get(const std::string& key,
                                               const std::function<Compiled()>& compile) {
  std::promise<Compiled> promise;
  {
    std::unique_lock lock(mutex_);
    if (const Entries::iterator* found = touch(key)) {
      const std::shared_future<Compiled> compiled = (*found)->compiled;
      lock.unlock();
      return compiled.get();
    }
    entries_.push_front({key, promise.get_future().share()});
    by_key_.emplace(entries_.front().key, entries_.begin());
  }
  try {
    Compiled compiled = compile();
    promise.set_value(compiled);
    drop_unused_beyond(num_unused_bytes_max_);
    return compiled;
  } catch (...) {
    drop(key);
    promise.set_exception(std::current_exception());
    throw;
  }
}

void ConstraintCache::drop(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  const auto entry = found->second;
  by_key_.erase(found);
  entries_.erase(entry);
}

// Masks grow while they are used, so that sizes are asked for each time.
void ConstraintCache::drop_unused_beyond(size_t num_bytes_max) {
  std::list<Entry> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  size_t num_left_bytes = num_bytes_max;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if (is_used(entry->compiled)) continue;
    const size_t num_bytes = entry->key.size() + entry->compiled.get()->num_bytes();
    if (num_bytes <= num_left_bytes) {
      num_left_bytes -= num_bytes;
      continue;
    }
    by_key_.erase(entry->key);
    dropped.splice(dropped.begin(), entries_, entry);
  }
}

size_t ConstraintCache::num_entries() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace halley
