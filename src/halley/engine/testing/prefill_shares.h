// For tests: checks how a step shares its rows among prefills.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/engine/scheduler.h"

namespace halley {

/// A prefill's tokens before a step, and its rows in it.
struct PrefillShare {
  int64_t num_left = 0, num_rows = 0;
};
/// By rank: priority and arrival.
using PrefillShares = std::map<std::pair<int64_t, SequenceId>, PrefillShare>;

/// `shares` have one priority and are in order of rank: half of their rows goes to the first ranks,
/// the rest to the shortest first.
inline void check_shares_of_priority(const std::vector<PrefillShare>& shares) {
  int64_t num_rows = 0, num_first = 0, num_first_left = 0;
  for (const PrefillShare& share : shares) num_rows += share.num_rows;
  const int64_t num_rows_by_rank = ceil_div(num_rows, int64_t{2});
  for (const PrefillShare& share : shares) {
    num_first += share.num_rows;
    num_first_left += share.num_left;
    ASSERT_GE(num_first, std::min(num_rows_by_rank, num_first_left)) << "by rank";
  }
  int64_t num_left_by_rank = num_rows_by_rank;
  for (const PrefillShare& share : shares) {
    const int64_t num_by_rank = std::min(num_left_by_rank, share.num_left);
    num_left_by_rank -= num_by_rank;
    if (share.num_rows <= num_by_rank) continue;
    for (const PrefillShare& other : shares) {
      ASSERT_TRUE(other.num_rows == other.num_left ||
                  other.num_left >= share.num_left - num_by_rank)
          << "a shorter one waits";
    }
  }
}

/// Prefills of a priority have rows only where those of all better ones have all that they need.
inline void check_prefill_shares(const PrefillShares& shares) {
  bool is_full = true;
  for (auto it = shares.begin(); it != shares.end();) {
    const int64_t priority = it->first.first;
    std::vector<PrefillShare> same;
    for (; it != shares.end() && it->first.first == priority; ++it) same.push_back(it->second);
    for (const PrefillShare& share : same) {
      ASSERT_TRUE(is_full || share.num_rows == 0) << "a better priority waits";
    }
    check_shares_of_priority(same);
    is_full = is_full && std::all_of(same.begin(), same.end(), [](const PrefillShare& share) {
                return share.num_rows == share.num_left;
              });
  }
}

}  // namespace halley
