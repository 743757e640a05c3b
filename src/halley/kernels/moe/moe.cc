#include "halley/kernels/moe/moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "halley/base/check.h"
#include "halley/kernels/base/row_tasks.h"

namespace halley {
namespace {

// Probabilities of one token; all NaN where a logit is NaN or +infinity.
void softmax(std::span<const float> logits, std::span<float> probabilities) {
  float largest = logits[0];
  for (const float logit : logits) {
    // A NaN must win, so that it reaches every probability.
    if (logit > largest || std::isnan(logit)) largest = logit;
  }
  double sum = 0;
  for (size_t e = 0; e < logits.size(); ++e) {
    probabilities[e] = std::exp(logits[e] - largest);
    sum += static_cast<double>(probabilities[e]);
  }
  const auto scale = static_cast<float>(1.0 / sum);
  for (float& probability : probabilities) probability *= scale;
}

// Slots are sorted by expert, then by row: a counting sort over expert_of.
void assign_slots(int64_t num_experts, MoeRouting& routing) {
  routing.expert_begin.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (const int32_t expert : routing.expert_of) {
    ++routing.expert_begin[static_cast<size_t>(expert) + 1];
  }
  std::partial_sum(routing.expert_begin.begin(), routing.expert_begin.end(),
                   routing.expert_begin.begin());
  std::vector<int64_t> next(routing.expert_begin.begin(), routing.expert_begin.end() - 1);
  const size_t num_slots = routing.expert_of.size();
  routing.slot_row.resize(num_slots);
  routing.row_slots.resize(num_slots);
  for (size_t i = 0; i < num_slots; ++i) {
    const int64_t slot = next[static_cast<size_t>(routing.expert_of[i])]++;
    routing.slot_row[static_cast<size_t>(slot)] =
        static_cast<int32_t>(static_cast<int64_t>(i) / routing.num_experts_per_token);
    routing.row_slots[i] = static_cast<int32_t>(slot);
  }
}

void check_gather(const MoeRouting& routing, ConstMatrix x, ConstMatrix slots) {
  HALLEY_CHECK(slots.num_rows == static_cast<int64_t>(routing.slot_row.size()) &&
                   slots.num_cols == x.num_cols,
               slots.num_rows, routing.slot_row.size(), slots.num_cols, x.num_cols);
}

void gather_range(const MoeRouting& routing, ConstMatrix x, int64_t begin, int64_t end,
                  Matrix slots) {
  for (int64_t slot = begin; slot < end; ++slot) {
    std::memcpy(slots.row<float>(slot), x.row<float>(routing.slot_row[static_cast<size_t>(slot)]),
                static_cast<size_t>(x.num_cols) * sizeof(float));
  }
}

void check_combine(const MoeRouting& routing, ConstMatrix slots, ConstMatrix y) {
  const auto num_choices = static_cast<size_t>(y.num_rows * routing.num_experts_per_token);
  HALLEY_CHECK(num_choices == routing.row_slots.size() && slots.num_cols == y.num_cols, y.num_rows,
               routing.num_experts_per_token, routing.row_slots.size(), slots.num_cols, y.num_cols);
}

void combine_range(const MoeRouting& routing, ConstMatrix slots, int64_t begin, int64_t end,
                   Matrix y) {
  const auto per_token = static_cast<size_t>(routing.num_experts_per_token);
  for (int64_t m = begin; m < end; ++m) {
    float* to = y.row<float>(m);
    bool is_first = true;
    for (size_t i = 0; i < per_token; ++i) {
      const size_t at = static_cast<size_t>(m) * per_token + i;
      if (routing.row_slots[at] == kNoSlot) continue;
      const float* from = slots.row<float>(routing.row_slots[at]);
      const float weight = routing.weight_of[at];
      if (is_first) {
        for (int64_t k = 0; k < y.num_cols; ++k) to[k] = weight * from[k];
      } else {
        for (int64_t k = 0; k < y.num_cols; ++k) to[k] += weight * from[k];
      }
      is_first = false;
    }
    if (is_first) std::fill_n(to, y.num_cols, 0.0f);
  }
}

}  // namespace

MoeRouting route_tokens(ConstMatrix router_logits, int64_t num_experts_per_token,
                        bool is_normalized) {
  const int64_t num_experts = router_logits.num_cols;
  HALLEY_CHECK(1 <= num_experts_per_token && num_experts_per_token <= num_experts,
               num_experts_per_token, num_experts);
  MoeRouting routing;
  routing.num_experts_per_token = num_experts_per_token;
  const auto num_slots = static_cast<size_t>(router_logits.num_rows * num_experts_per_token);
  routing.expert_of.reserve(num_slots);
  routing.weight_of.reserve(num_slots);
  std::vector<float> probabilities(static_cast<size_t>(num_experts));
  std::vector<int32_t> order(static_cast<size_t>(num_experts));
  for (int64_t m = 0; m < router_logits.num_rows; ++m) {
    softmax({router_logits.row<float>(m), static_cast<size_t>(num_experts)}, probabilities);
    std::iota(order.begin(), order.end(), 0);
    // If all are NaN, no comparison but that of the ids is true: the lowest ids win.
    std::partial_sort(order.begin(), order.begin() + num_experts_per_token, order.end(),
                      [&](int32_t a, int32_t b) {
                        const float left = probabilities[static_cast<size_t>(a)];
                        const float right = probabilities[static_cast<size_t>(b)];
                        return left > right || (!(right > left) && a < b);
                      });
    std::sort(order.begin(), order.begin() + num_experts_per_token);
    float sum = 0;
    for (int64_t i = 0; i < num_experts_per_token; ++i) {
      sum += probabilities[static_cast<size_t>(order[static_cast<size_t>(i)])];
    }
    for (int64_t i = 0; i < num_experts_per_token; ++i) {
      const int32_t expert = order[static_cast<size_t>(i)];
      const float weight = probabilities[static_cast<size_t>(expert)];
      routing.expert_of.push_back(expert);
      routing.weight_of.push_back(is_normalized ? weight / sum : weight);
    }
  }
  assign_slots(num_experts, routing);
  return routing;
}

void keep_experts(MoeRouting& routing, int64_t begin, int64_t end) {
  std::vector<int64_t>& expert_begin = routing.expert_begin;
  const auto num_experts = static_cast<int64_t>(expert_begin.size()) - 1;
  HALLEY_CHECK(0 <= begin && begin <= end && end <= num_experts, begin, end, num_experts);
  expert_begin.erase(expert_begin.begin() + end + 1, expert_begin.end());
  expert_begin.erase(expert_begin.begin(), expert_begin.begin() + begin);
  const int64_t first_slot = expert_begin.front(), end_slot = expert_begin.back();
  for (int64_t& slot : expert_begin) slot -= first_slot;
  routing.slot_row.erase(routing.slot_row.begin() + end_slot, routing.slot_row.end());
  routing.slot_row.erase(routing.slot_row.begin(), routing.slot_row.begin() + first_slot);
  for (int32_t& slot : routing.row_slots) {
    const bool is_kept = first_slot <= slot && slot < end_slot;
    slot = is_kept ? slot - static_cast<int32_t>(first_slot) : kNoSlot;
  }
}

void gather_slots(const MoeRouting& routing, ConstMatrix x, Matrix slots) {
  check_gather(routing, x, slots);
  gather_range(routing, x, 0, slots.num_rows, slots);
}

void gather_slots(ExecContext& context, const MoeRouting& routing, ConstMatrix x, Matrix slots) {
  check_gather(routing, x, slots);
  for_row_ranges(context, slots.num_rows, slots.num_cols,
                 [&](int64_t begin, int64_t end) { gather_range(routing, x, begin, end, slots); });
}

void combine_slots(const MoeRouting& routing, ConstMatrix slots, Matrix y) {
  check_combine(routing, slots, y);
  combine_range(routing, slots, 0, y.num_rows, y);
}

void combine_slots(ExecContext& context, const MoeRouting& routing, ConstMatrix slots, Matrix y) {
  check_combine(routing, slots, y);
  for_row_ranges(context, y.num_rows, routing.num_experts_per_token * y.num_cols,
                 [&](int64_t begin, int64_t end) { combine_range(routing, slots, begin, end, y); });
}

}  // namespace halley
