#include "halley/checkpoint/tokenizer/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <queue>

namespace halley {
namespace {

// Words up to this many characters are merged by looking at all pairs again and again, which is
// quicker than a heap there.
constexpr size_t kShortWord = 24;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A pair that may merge: `left` is the index of its left part.
struct Candidate {
  int32_t rank;
  int32_t id;
  uint32_t left;
};

struct ComesLater {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

}  // namespace

void MergeTable::reserve(size_t num_merges) { rehash(std::bit_ceil(num_merges * 2 + 2)); }

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  if ((num_merges_ + 1) * 2 > slots_.size()) rehash(std::bit_ceil(num_merges_ * 4 + 16));
  Slot& slot = slots_[slot_of(key_of(left, right))];
  if (slot.key == kFree) ++num_merges_;
  slot = {key_of(left, right), merge};
}

Merge MergeTable::find(int32_t left, int32_t right) const {
  if (slots_.empty()) return {-1, -1};
  return slots_[slot_of(key_of(left, right))].merge;
}

size_t MergeTable::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  // The high bits of the result depend on all bits of the key.
  const uint64_t mixed = key * 0x9E3779B97F4A7C15u;
  size_t slot = (mixed ^ mixed >> 32) & mask;
  while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::rehash(size_t num_slots) {
  if (num_slots <= slots_.size()) return;
  std::vector<Slot> old(num_slots);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.key != kFree) slots_[slot_of(slot.key)] = slot;
  }
}

bool MergeTable::merge_all(std::vector<int32_t>& ids, size_t begin, StopCheck& check) const {
  if (ids.size() - begin > kShortWord) return merge_long(ids, begin, check);
  if (check.must_stop()) return false;
  if (ids.size() - begin >= 2) merge_short(ids, begin);
  return true;
}

void MergeTable::merge_short(std::vector<int32_t>& ids, size_t begin) const {
  int32_t* word = ids.data() + begin;
  size_t count = ids.size() - begin;
  std::array<Merge, kShortWord> merges;  // merges[i] is that of word[i] and word[i + 1]
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(word[i], word[i + 1]);
  while (count > 1) {
    size_t best = 0;
    int32_t best_rank = kNoRank;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (merges[i].rank >= 0 && merges[i].rank < best_rank) {
        best = i;
        best_rank = merges[i].rank;
      }
    }
    if (best_rank == kNoRank) break;
    word[best] = merges[best].id;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      word[i] = word[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best + 1 < count) merges[best] = find(word[best], word[best + 1]);
    if (best > 0) merges[best - 1] = find(word[best - 1], word[best]);
  }
  ids.resize(begin + count);
}

bool MergeTable::merge_long(std::vector<int32_t>& ids, size_t begin, StopCheck& check) const {
  const size_t count = ids.size() - begin;
  constexpr uint32_t kNone = ~uint32_t{0};
  struct Links {
    uint32_t previous;
    uint32_t next;
  };
  int32_t* word = ids.data() + begin;  // -1 where merged into its left neighbour
  std::vector<Links> links(count);
  std::vector<Candidate> candidates;
  for (uint32_t i = 0; i < count; ++i) {
    links[i] = {i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
    if (i + 1 == count) break;
    const Merge merge = find(word[i], word[i + 1]);
    if (merge.rank >= 0) candidates.push_back({merge.rank, merge.id, i});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, ComesLater> queue(ComesLater(),
                                                                           std::move(candidates));
  const auto push = [&](uint32_t left, uint32_t right) {
    const Merge merge = find(word[left], word[right]);
    if (merge.rank >= 0) queue.push({merge.rank, merge.id, left});
  };
  while (!queue.empty()) {
    if (check.must_stop()) return false;
    const Candidate top = queue.top();
    queue.pop();
    const uint32_t left = top.left;
    const uint32_t right = links[left].next;
    // One of the two may have merged with another meanwhile.
    if (word[left] < 0 || right == kNone) continue;
    const Merge merge = find(word[left], word[right]);
    if (merge.rank != top.rank || merge.id != top.id) continue;
    word[left] = merge.id;
    word[right] = -1;
    links[left].next = links[right].next;
    if (links[left].next != kNone) {
      links[links[left].next].previous = left;
      push(left, links[left].next);
    }
    if (links[left].previous != kNone) push(links[left].previous, left);
  }
  ids.erase(std::remove(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), -1),
            ids.end());
  return true;
}

}  // namespace halley
