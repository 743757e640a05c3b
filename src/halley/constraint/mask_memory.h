// Bounds the memory of the masks and states of many grammars together.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>

namespace halley {

/// Counts the memory of matchers with their masks. Once all together have more than the bound, none
/// may have more than its equal share of it: a larger one is replaced when its request goes on.
/// Thread-safe.
class MaskMemory {
 public:
  /// Less would only make a matcher anew for every mask.
  static constexpr size_t kShareBytesMin = size_t{1} << 20;

  explicit MaskMemory(size_t num_bytes_max) : num_bytes_max_(num_bytes_max) {}

  void add_matcher() { ++num_matchers_; }
  void remove_matcher(size_t num_bytes) {
    --num_matchers_;
    num_bytes_ -= num_bytes;
  }
  /// A matcher has grown; they do not shrink.
  void grow(size_t num_bytes) { num_bytes_ += num_bytes; }

  size_t num_bytes() const { return num_bytes_; }
  /// The most that one matcher may have.
  size_t share_bytes() const {
    if (num_bytes_ <= num_bytes_max_) return std::numeric_limits<size_t>::max();
    return std::max(kShareBytesMin, num_bytes_max_ / std::max<size_t>(1, num_matchers_));
  }

 private:
  const size_t num_bytes_max_;
  std::atomic<size_t> num_matchers_ = 0, num_bytes_ = 0;
};

}  // namespace halley
