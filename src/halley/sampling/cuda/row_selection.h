// Selects the best tokens of a row by histograms instead of a sort: the best k, or the fewest that
// have a given part of the weight.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "halley/sampling/cuda/device_code.h"
#include "halley/sampling/cuda/row_team.h"
#include "halley/sampling/cuda/token_score.h"

namespace halley::cuda {

/// Keeps tokens with a higher key, and those with this key and an id below id_end.
struct Threshold {
  uint64_t key = 0;
  int32_t id_end = INT32_MAX;
};

/// Keeps the tokens that both keep.
HALLEY_DEVICE inline Threshold both(const Threshold& a, const Threshold& b) {
  if (a.key != b.key) return a.key > b.key ? a : b;
  return {a.key, a.id_end < b.id_end ? a.id_end : b.id_end};
}

HALLEY_DEVICE inline bool passes(const Threshold& threshold, double score, int32_t id) {
  const uint64_t key = key_of(score);
  return key > threshold.key || (key == threshold.key && id < threshold.id_end);
}

/// The amount to keep.
struct Demand {
  bool is_of_weight = false;
  int32_t count = 0;  // tokens; >= 1
  double part = 1;    // of the weight of all candidates
};

/// The id at which the sum of weight(id, logit, is_marked), ids ascending, first passes
/// target(sum of all). INT32_MAX: no token has a weight. Every thread of the row gets the id.
template <class Machine, class Weight, class Target>
HALLEY_DEVICE int32_t find_by_sum(RowTeam<Machine>& team, const uint32_t* marks,
                                  const Weight& weight, const Target& target_of) {
  using Team = RowTeam<Machine>;
  double own = 0;
  team.for_ids(
      marks, [&](int32_t id, float logit, bool is_marked) { own += weight(id, logit, is_marked); });
  double sums[Team::kClusterSize];
  team.gather_sums(own, sums);
  double total = 0;
  for (int cta = 0; cta < Team::kClusterSize; ++cta) total += sums[cta];
  const double target = target_of(total);
  // The target lies in the CTA `owner`: the last one with a weight where rounding hides it.
  int owner = -1;
  double before = 0, running = 0;
  for (int cta = 0; cta < Team::kClusterSize; ++cta) {
    if (sums[cta] > 0) {
      owner = cta;
      before = running;
      if (target < running + sums[cta]) break;
    }
    running += sums[cta];
  }
  uint64_t found = INT32_MAX;
  if (team.cta_rank() == owner) {
    found = static_cast<uint64_t>(team.find_in_cta(marks, before, target, weight));
  }
  uint64_t found_by_cta[Team::kClusterSize];
  team.gather(found, found_by_cta);
  return owner < 0 ? INT32_MAX : static_cast<int32_t>(found_by_cta[owner]);
}

/// Narrows a range of keys around the last token that is kept, histogram by histogram.
///
/// Candidate is bool(id, logit, is_marked, double& score, double& position): whether the token
/// takes part.
template <class Machine, class Candidate>
class RowSelection {
 public:
  HALLEY_DEVICE RowSelection(RowTeam<Machine>& team, const uint32_t* marks, const ScoreScale& scale,
                             const Demand& demand, const Candidate& candidate)
      : team_(team), marks_(marks), scale_(scale), demand_(demand), candidate_(candidate) {}

  /// The threshold that keeps the demanded candidates. Every thread of the row gets it.
  HALLEY_DEVICE Threshold find() {
    clear_histogram();
    team_.for_ids(marks_, [&](int32_t id, float logit, bool is_marked) {
      double score = 0, position = 0;
      if (!candidate_(id, logit, is_marked, score, position)) return;
      const int bin = bin_of(position);
      add(bin, position, bin);
    });
    choose_bin(KeyRange{}, true);
    if (range_.takes_all) return {};
    const int bin = range_.bin;
    find_key_range(bin);
    while (!is_decided()) {
      const int bits = num_bits(range_.high - range_.low);
      const int shift = bits > kBinBits ? bits - kBinBits : 0;
      clear_histogram();
      team_.for_ids(marks_, [&](int32_t id, float logit, bool is_marked) {
        double score = 0, position = 0;
        if (!candidate_(id, logit, is_marked, score, position)) return;
        const uint64_t key = key_of(score);
        if (key < range_.low || key > range_.high) return;
        add(static_cast<int>((range_.high - key) >> shift), position, bin);
      });
      KeyRange range = range_;
      choose_bin(range, false);
      // Within the chosen bin.
      range.high -= static_cast<uint64_t>(range_.bin) << shift;
      const uint64_t span = (uint64_t{1} << shift) - 1;
      if (range.high - range.low > span) range.low = range.high - span;
      range_.low = range.low;
      range_.high = range.high;
      range_.bin = bin;
    }
    return decide();
  }

 private:
  static constexpr int kBinBits = 11;
  static_assert(kNumBins == 1 << kBinBits);
  using Team = RowTeam<Machine>;
  static constexpr int kOwnBins = kNumBins / Team::kNumThreads;  // of a thread of CTA 0
  static_assert(kNumBins % Team::kNumThreads == 0);

  HALLEY_DEVICE void clear_histogram() {
    auto& shared = team_.shared();
    for (int i = team_.thread(); i < kNumBins; i += Team::kNumThreads) {
      shared.counts[i] = shared.low_words[i] = shared.high_words[i] = 0;
    }
    team_.machine().sync_cta();
  }

  /// Counts a token in a bin of the histogram; `weight_bin` is its bin_of().
  HALLEY_DEVICE void add(int bin, double position, int weight_bin) {
    auto& shared = team_.shared();
    team_.machine().add(shared.counts[bin], 1);
    if (!demand_.is_of_weight) return;
    const uint64_t weight = whole_weight(position, weight_bin);
    const auto low = static_cast<uint32_t>(weight);
    const uint32_t before = team_.machine().add(shared.low_words[bin], low);
    const uint32_t carry = before + low < before ? 1 : 0;
    team_.machine().add(shared.high_words[bin], static_cast<uint32_t>(weight >> 32) + carry);
  }

  /// Leaves in range_.bin the bin of the histogram that the last kept token is in, with what is
  /// known of it. `is_level_one`: bins are those of bin_of(), and the demand is not known yet.
  HALLEY_DEVICE void choose_bin(const KeyRange& range, bool is_level_one) {
    team_.machine().sync_row();  // all have counted
    merge_histograms();
    team_.machine().sync_row();
    if (team_.cta_rank() == 0) {
      const KeyRange chosen = chosen_by_cta_0(range, is_level_one);
      if (team_.thread() == 0) team_.shared().range = chosen;
    }
    team_.machine().sync_row();
    range_ = team_.machine().shared(0).range;
  }

  /// Leaves the sum of all CTAs' histograms in that of CTA 0. One thread adds up a bin.
  HALLEY_DEVICE void merge_histograms() {
    constexpr int kCtaBins = kNumBins / Team::kClusterSize;
    for (int i = team_.thread(); i < kCtaBins; i += Team::kNumThreads) {
      const int bin = team_.cta_rank() * kCtaBins + i;
      uint32_t count = 0;
      uint64_t weight = 0;
      for (int cta = 0; cta < Team::kClusterSize; ++cta) {
        const auto& shared = team_.machine().shared(cta);
        count += shared.counts[bin];
        if (demand_.is_of_weight) {
          weight += uint64_t{shared.high_words[bin]} << 32 | shared.low_words[bin];
        }
      }
      auto& merged = team_.machine().shared(0);
      merged.counts[bin] = count;
      merged.low_words[bin] = static_cast<uint32_t>(weight);
      merged.high_words[bin] = static_cast<uint32_t>(weight >> 32);
    }
  }

  HALLEY_DEVICE KeyRange chosen_by_cta_0(const KeyRange& range, bool is_level_one) {
    double counts[kOwnBins], weights[kOwnBins];
    const int first = team_.thread() * kOwnBins;
    for (int i = 0; i < kOwnBins; ++i) {
      const auto& shared = team_.shared();
      const uint32_t count = shared.counts[first + i];
      const uint64_t weight =
          uint64_t{shared.high_words[first + i]} << 32 | shared.low_words[first + i];
      counts[i] = count;
      weights[i] = demand_.is_of_weight
                       ? weight_of_bin(weight, is_level_one ? first + i : range.bin)
                       : static_cast<double>(count);
    }
    double own_weight = 0;
    for (int i = 0; i < kOwnBins; ++i) own_weight += weights[i];
    double total = 0;
    double sum = team_.sum_before(own_weight, total);
    KeyRange chosen = range;
    if (is_level_one) {
      chosen.before = 0;
      chosen.target = demand_.is_of_weight ? demand_.part * total : demand_.count;
      chosen.takes_all = chosen.target >= total && !demand_.is_of_weight;
    }
    // The first bin with tokens whose sum reaches the target; else, by rounding, the last one.
    const double before = chosen.before;
    int found = INT32_MAX, last = 0;
    double found_before = 0, last_before = 0;
    for (int i = 0; i < kOwnBins; ++i) {
      if (counts[i] > 0) {
        last = first + i + 1;
        last_before = sum;
        if (found == INT32_MAX && before + sum + weights[i] >= chosen.target) {
          found = first + i;
          found_before = sum;
        }
      }
      sum += weights[i];
    }
    const auto least = team_.reduce_cta(static_cast<uint64_t>(found), typename Team::Least{});
    const auto greatest = team_.reduce_cta(static_cast<uint64_t>(last), typename Team::Greatest{});
    const bool is_found = least != INT32_MAX;
    chosen.bin = is_found ? static_cast<int32_t>(least) : static_cast<int32_t>(greatest) - 1;
    // One thread has the bin; its numbers reach the others as a sum with zeros.
    const bool is_owner = chosen.bin >= first && chosen.bin < first + kOwnBins;
    double own_count = 0;
    for (int i = 0; i < kOwnBins; ++i) {
      if (first + i == chosen.bin) own_count = counts[i];
    }
    const double own_before = is_found ? found_before : last_before;
    chosen.before = before + team_.reduce_cta(is_owner ? own_before : 0.0, typename Team::Sum{});
    chosen.count = static_cast<int32_t>(team_.reduce_cta(own_count, typename Team::Sum{}));
    return chosen;
  }

  /// The smallest and the largest key of bin_of() `bin`.
  HALLEY_DEVICE void find_key_range(int bin) {
    uint64_t low = UINT64_MAX, high = 0;
    team_.for_ids(marks_, [&](int32_t id, float logit, bool is_marked) {
      double score = 0, position = 0;
      if (!candidate_(id, logit, is_marked, score, position) || bin_of(position) != bin) return;
      const uint64_t key = key_of(score);
      low = key < low ? key : low;
      high = key > high ? key : high;
    });
    range_.low = team_.reduce(low, typename Team::Least{});
    range_.high = team_.reduce(high, typename Team::Greatest{});
  }

  /// How many tokens of the range are kept, where that is a matter of counting.
  HALLEY_DEVICE int32_t num_needed() const {
    const double missing = range_.target - range_.before;
    double count = missing;
    if (demand_.is_of_weight) {
      // All of one key: each has this weight.
      const double weight = exp((score_of_key(range_.low) - scale_.max) / scale_.temperature);
      count = ceil(missing / weight);
      if (count > 1 && range_.before + (count - 1) * weight >= range_.target) count -= 1;
    }
    return count < 1 ? 1 : count < range_.count ? static_cast<int32_t>(count) : range_.count;
  }

  HALLEY_DEVICE static double score_of_key(uint64_t key) {
    constexpr uint64_t kSign = uint64_t{1} << 63;
    return std::bit_cast<double>((key & kSign) != 0 ? key & ~kSign : ~key);
  }

  HALLEY_DEVICE bool is_decided() const {
    return range_.count == 1 || range_.low == range_.high ||
           (!demand_.is_of_weight && num_needed() == range_.count);
  }

  HALLEY_DEVICE Threshold decide() {
    if (range_.count == 1 || num_needed() == range_.count) return {range_.low, INT32_MAX};
    // The lower ids are kept among equal scores.
    const uint64_t key = range_.low;
    const auto is_equal = [&](int32_t id, float logit, bool is_marked) {
      double score = 0, position = 0;
      const bool takes_part = candidate_(id, logit, is_marked, score, position);
      return takes_part && key_of(score) == key ? 1.0 : 0.0;
    };
    const int32_t last =
        find_by_sum(team_, marks_, is_equal, [&](double) { return num_needed() - 1.0; });
    return {key, last + 1};
  }

  Team& team_;
  const uint32_t* marks_;
  ScoreScale scale_;
  Demand demand_;
  const Candidate& candidate_;
  KeyRange range_;
};

}  // namespace halley::cuda
