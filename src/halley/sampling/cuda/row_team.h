// The cluster of CTAs that works on one row: its ids among threads, reductions in a fixed order.
#pragma once

#include <climits>
#include <cstdint>

#include "halley/sampling/cuda/device_code.h"
#include "halley/sampling/cuda/token_score.h"

namespace halley::cuda {

/// The largest score and logit of a row, so far.
struct RowBest {
  double score = 0;
  int32_t id = INT32_MAX;  // the lowest with this score; none has one above -infinity: INT32_MAX
  float logit = 0;         // the largest, of any id
  bool is_broken = false;  // a logit is NaN or +infinity
};

/// The range of keys that the selection examines next, and its known properties.
struct KeyRange {
  uint64_t low = 0, high = 0;  // inclusive
  int32_t bin = 0;             // of bin_of()
  int32_t count = 0;           // of tokens
  int32_t num_needed = 0;      // of them
  bool takes_all = false;      // there is nothing to leave out
  double before = 0;           // weights of what comes before the range
  double target = 0;           // weights that are needed
};

/// This many threads of a CTA make its reduction, and then one of them.
inline constexpr int kNumParts = 16;

/// Threads that share a segment of the ids. A CTA has consecutive segments.
inline constexpr int kLanes = 32;

/// A CTA's shared memory.
template <int kNumThreads>
struct RowShared {
  uint32_t counts[kNumBins];
  uint32_t low_words[kNumBins], high_words[kNumBins];  // of whole weights
  // Reductions within a CTA use one element a thread, and one for each of kNumParts threads.
  RowBest bests[kNumThreads];
  double sums[kNumThreads + kNumThreads / 2];  // with gaps
  double part_sums[kNumParts];
  double segment_sums[kNumThreads / kLanes];
  uint64_t words[kNumThreads];
  // CTAs exchange values through two elements in turn: one may be written while the other is read.
  RowBest cta_bests[2];
  double cta_sums[2];
  uint64_t cta_words[2];
  KeyRange range;  // of CTA 0
  uint32_t num_listed;
  int32_t listed_ids[32];
  float listed_logits[32];
};

/// Machine gives the thread its index, the rank of its CTA, barriers, shared memory and atomic
/// additions; all threads of a row call these in the same order.
template <class Machine>
class RowTeam {
 public:
  static constexpr int kNumThreads = Machine::kNumThreads;
  static constexpr int kClusterSize = Machine::kClusterSize;
  static constexpr int kNumSegments = kNumThreads / kLanes;  // of a CTA
  using Shared = RowShared<kNumThreads>;

  HALLEY_DEVICE RowTeam(Machine& machine, const float* logits, int vocab_size,
                        bool is_float4_aligned)
      : machine_(machine),
        logits_(logits),
        vocab_size_(vocab_size),
        is_float4_aligned_(is_float4_aligned) {
    segment_size_ = (vocab_size + kClusterSize * kNumSegments - 1) / (kClusterSize * kNumSegments);
    segment_size_ = (segment_size_ + kStep - 1) / kStep * kStep;
    begin_ = end_of(segment_begin(thread() / kLanes));
    end_ = end_of(segment_begin(thread() / kLanes + 1));
  }

  HALLEY_DEVICE Machine& machine() const { return machine_; }
  HALLEY_DEVICE int thread() const { return machine_.thread(); }
  HALLEY_DEVICE int cta_rank() const { return machine_.cta_rank(); }
  HALLEY_DEVICE bool is_first() const { return cta_rank() == 0 && thread() == 0; }
  HALLEY_DEVICE Shared& shared() const { return machine_.own_shared(); }
  HALLEY_DEVICE int vocab_size() const { return vocab_size_; }

  /// body(id, logit, is_marked) for this thread's part of its CTA's ids, ascending. `marks` null:
  /// nothing is marked.
  template <class Body>
  HALLEY_DEVICE void for_ids(const uint32_t* marks, const Body& body) const {
    int first = begin_ + 4 * (thread() % kLanes);
    if (is_float4_aligned_ && first + 4 <= end_) {
      MarkedFloat4 next = load_float4(marks, first);
      for (; first + 4 <= end_; first += kStep) {
        const MarkedFloat4 four = next;
        if (first + kStep + 4 <= end_) next = load_float4(marks, first + kStep);
        for (int i = 0; i < 4; ++i) {
          body(first + i, four.logits[i], ((four.marks >> i) & 1) != 0);
        }
      }
    }
    for (; first < end_; first += kStep) visit_some(marks, first, body);
  }

  /// The same with body(id, logit) that is short: many loads are under way together.
  template <class Body>
  HALLEY_DEVICE void for_logits(const Body& body) const {
    int first = begin_ + 4 * (thread() % kLanes);
    if (is_float4_aligned_) {
      visit_batches<8>(first, body);
      visit_batches<4>(first, body);
      visit_batches<2>(first, body);
      visit_batches<1>(first, body);
    }
    for (; first < end_; first += kStep) {
      visit_some(nullptr, first, [&](int id, float logit, bool) { body(id, logit); });
    }
  }

  /// Gathers each CTA's sum of the values that its threads have from for_ids(), and prepares
  /// find_in_cta().
  HALLEY_DEVICE void gather_sums(double value, double (&sums)[kClusterSize]) {
    Shared& here = shared();
    machine_.sync_cta();  // the arrays' former use has ended
    here.sums[padded_index(thread(), kLanes)] = value;
    machine_.sync_cta();
    if (thread() < kNumSegments) {
      double sum = 0;
      for (int i = 0; i < kLanes; ++i)
        sum += here.sums[padded_index(thread() * kLanes + i, kLanes)];
      here.segment_sums[thread()] = sum;
    }
    machine_.sync_cta();
    double total = 0;
    for (const double sum : here.segment_sums) total += sum;
    gather(total, sums);
  }

  /// The id at which the sum of weight(id, logit, is_marked) over the CTA's ids, ascending,
  /// first passes `target`; where rounding keeps it from that, the last of a segment with a weight.
  /// `running`: the sum of the CTAs before. After gather_sums() of the same weights, which must
  /// not all be 0. All threads of the CTA get it.
  template <class Weight>
  HALLEY_DEVICE int32_t find_in_cta(const uint32_t* marks, double running, double target,
                                    const Weight& weight) {
    int segment = 0;
    double before = running;
    for (int i = 0; i < kNumSegments; ++i) {
      const double sum = shared().segment_sums[i];
      if (sum > 0) {
        segment = i;
        before = running;
        if (target < running + sum) break;
      }
      running += sum;
    }
    const int segment_end = end_of(segment_begin(segment + 1));
    int32_t last = -1;
    for (int begin = segment_begin(segment); begin < segment_end; begin += 4 * kNumThreads) {
      const int first = begin + 4 * thread();
      double weights[4] = {0, 0, 0, 0};
      for (int i = 0; i < 4; ++i) {
        const int id = first + i;
        if (id >= segment_end) break;
        weights[i] = weight(id, logits_[id], is_marked(marks, id));
      }
      double tile_sum = 0;
      double sum = before + sum_before(weights[0] + weights[1] + weights[2] + weights[3], tile_sum);
      int32_t found = INT32_MAX;
      for (int i = 0; i < 4; ++i) {
        sum += weights[i];
        if (weights[i] > 0) {
          last = first + i;
          if (target < sum && found == INT32_MAX) found = first + i;
        }
      }
      found = static_cast<int32_t>(reduce_cta(static_cast<uint64_t>(found), Least{}));
      if (found != INT32_MAX) return found;
      before += tile_sum;
    }
    return static_cast<int32_t>(reduce_cta(static_cast<uint64_t>(last + 1), Greatest{})) - 1;
  }

  struct Sum {
    HALLEY_DEVICE double operator()(double a, double b) const { return a + b; }
  };
  struct Least {
    HALLEY_DEVICE uint64_t operator()(uint64_t a, uint64_t b) const { return a < b ? a : b; }
  };
  struct Greatest {
    HALLEY_DEVICE uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
  };
  struct Better {
    HALLEY_DEVICE RowBest operator()(const RowBest& a, const RowBest& b) const {
      const bool is_b = b.score > a.score || (b.score == a.score && b.id < a.id);
      return {is_b ? b.score : a.score, is_b ? b.id : a.id, a.logit > b.logit ? a.logit : b.logit,
              a.is_broken || b.is_broken};
    }
  };

  /// Reduces over the CTA's threads, in an order that never varies; all threads get the result.
  template <class T, class Combine>
  HALLEY_DEVICE T reduce_cta(const T& value, const Combine& combine) {
    T* values = array_of(shared(), T{});
    machine_.sync_cta();  // the array's former use has ended
    values[thread()] = value;
    machine_.sync_cta();
    T result = value;
    if (thread() < kNumParts) {
      for (int i = thread() + kNumParts; i < kNumThreads; i += kNumParts) {
        result = combine(result, values[i]);
      }
    }
    // None of the threads above has read what these write.
    if (thread() < kNumParts) values[thread()] = result;
    machine_.sync_cta();
    result = values[0];
    for (int i = 1; i < kNumParts; ++i) result = combine(result, values[i]);
    return result;
  }

  /// Reduces over all threads of the row.
  template <class T, class Combine>
  HALLEY_DEVICE T reduce(const T& value, const Combine& combine) {
    T values[kClusterSize];
    gather(reduce_cta(value, combine), values);
    T result = values[0];
    for (int cta = 1; cta < kClusterSize; ++cta) result = combine(result, values[cta]);
    return result;
  }

  /// Gathers each CTA's value, which all its threads have.
  template <class T>
  HALLEY_DEVICE void gather(const T& value, T (&values)[kClusterSize]) {
    if (thread() == 0) slots_of(shared(), T{})[turn_] = value;
    machine_.sync_row();
    for (int cta = 0; cta < kClusterSize; ++cta) {
      values[cta] = slots_of(machine_.shared(cta), T{})[turn_];
    }
    turn_ ^= 1;
  }

  /// The sum of the values of the CTA's threads before this one; `total` is that of all.
  HALLEY_DEVICE double sum_before(double value, double& total) {
    constexpr int kPart = kNumThreads / kNumParts;
    Shared& here = shared();
    machine_.sync_cta();  // the arrays' former use has ended
    here.sums[padded_index(thread(), kPart)] = value;
    machine_.sync_cta();
    if (thread() < kNumParts) {
      double sum = 0;
      for (int i = 0; i < kPart; ++i) sum += here.sums[padded_index(thread() * kPart + i, kPart)];
      here.part_sums[thread()] = sum;
    }
    machine_.sync_cta();
    const int part = thread() / kPart;
    double before = 0, all = 0;
    for (int i = 0; i < kNumParts; ++i) {
      if (i == part) before = all;
      all += here.part_sums[i];
    }
    double within = 0;
    for (int i = part * kPart; i < thread(); ++i) within += here.sums[padded_index(i, kPart)];
    total = all;
    return before + within;
  }

 private:
  static_assert(kNumThreads % kNumParts == 0);
  static_assert(kNumThreads % kLanes == 0 && kNumSegments <= kNumParts);
  static constexpr int kStep = 4 * kLanes;  // ids that a segment's threads take at a time

  /// The index of a thread's value in shared memory. Padding behind each part keeps threads that
  /// read one part each from bank conflicts.
  HALLEY_DEVICE static int padded_index(int thread, int part) { return thread + thread / part; }

  HALLEY_DEVICE int segment_begin(int segment) const {
    return (cta_rank() * kNumSegments + segment) * segment_size_;
  }
  HALLEY_DEVICE int end_of(int id) const { return id < vocab_size_ ? id : vocab_size_; }

  struct MarkedFloat4 {
    float logits[4];
    uint32_t marks;
  };

  HALLEY_DEVICE MarkedFloat4 load_float4(const uint32_t* marks, int first) const {
    MarkedFloat4 four = {{0, 0, 0, 0}, 0};
    machine_.load_float4(logits_ + first, four.logits);
    // The bits of four ids from a multiple of four are in one word.
    if (marks != nullptr) four.marks = marks[first / 32] >> (first % 32);
    return four;
  }

  template <int kNumVectors, class Body>
  HALLEY_DEVICE void visit_batches(int& first, const Body& body) const {
    for (; first + (kNumVectors - 1) * kStep + 4 <= end_; first += kNumVectors * kStep) {
      float logits[kNumVectors][4];
      for (int i = 0; i < kNumVectors; ++i) {
        machine_.load_float4(logits_ + first + i * kStep, logits[i]);
      }
      for (int i = 0; i < kNumVectors; ++i) {
        for (int j = 0; j < 4; ++j) body(first + i * kStep + j, logits[i][j]);
      }
    }
  }

  HALLEY_DEVICE static bool is_marked(const uint32_t* marks, int id) {
    return marks != nullptr && ((marks[id / 32] >> (id % 32)) & 1) != 0;
  }

  /// Visits four ids, or fewer at the end, one by one.
  template <class Body>
  HALLEY_DEVICE void visit_some(const uint32_t* marks, int first, const Body& body) const {
    for (int id = first; id < first + 4 && id < end_; ++id) {
      body(id, logits_[id], is_marked(marks, id));
    }
  }

  HALLEY_DEVICE static RowBest* array_of(Shared& shared, const RowBest&) { return shared.bests; }
  HALLEY_DEVICE static double* array_of(Shared& shared, double) { return shared.sums; }
  HALLEY_DEVICE static uint64_t* array_of(Shared& shared, uint64_t) { return shared.words; }
  HALLEY_DEVICE static RowBest* slots_of(Shared& shared, const RowBest&) {
    return shared.cta_bests;
  }
  HALLEY_DEVICE static double* slots_of(Shared& shared, double) { return shared.cta_sums; }
  HALLEY_DEVICE static uint64_t* slots_of(Shared& shared, uint64_t) { return shared.cta_words; }

  Machine& machine_;
  const float* logits_;
  int vocab_size_;
  bool is_float4_aligned_;
  int segment_size_ = 0;
  int begin_ = 0, end_ = 0;  // of the thread's segment
  int turn_ = 0;
};

}  // namespace halley::cuda
