// The merges of byte-pair encoding: which two tokens join to which, and how early; and the merging
// itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "halley/checkpoint/tokenizer/stop_check.h"

namespace halley {

struct Merge {
  int32_t rank;  // smaller merges first; -1: these two do not merge
  int32_t id;    // what they become
};

/// Immutable after the last add(); any thread.
class MergeTable {
 public:
  void reserve(size_t num_merges);
  /// A pair that is there already takes the later rank, as in Hugging Face.
  void add(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

  /// Merges neighbours in `ids[begin, end of ids)`, lowest rank first, the leftmost first among
  /// equals, until nothing merges; O(n log n). Returns false where `check` told it to stop before.
  [[nodiscard]] bool merge_all(std::vector<int32_t>& ids, size_t begin, StopCheck& check) const;

 private:
  struct Slot {
    uint64_t key = kFree;
    Merge merge{-1, -1};
  };
  static constexpr uint64_t kFree = ~uint64_t{0};

  size_t slot_of(uint64_t key) const;
  void rehash(size_t num_slots);
  void merge_short(std::vector<int32_t>& ids, size_t begin) const;
  bool merge_long(std::vector<int32_t>& ids, size_t begin, StopCheck& check) const;

  std::vector<Slot> slots_;  // open addressing, a power of two
  size_t num_merges_ = 0;
};

}  // namespace halley
