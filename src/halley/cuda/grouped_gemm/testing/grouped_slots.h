// For tests of grouped GEMMs: the slots of experts, and what their epilogues make of sums in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/kernels/activation/testing/activation_reference.h"

namespace halley::cuda {

/// The first slot of each expert, and the number of slots.
inline std::vector<int32_t> slot_begins(const std::vector<int32_t>& group_sizes) {
  std::vector<int32_t> begin = {0};
  for (const int32_t size : group_sizes) begin.push_back(begin.back() + size);
  return begin;
}

/// Rows of x where slots gather them.
inline constexpr int64_t kGatheredRows = 11;

/// A row for each slot.
inline std::vector<int32_t> random_slot_rows(int64_t num_slots, int64_t num_rows) {
  std::mt19937 random(8);
  std::vector<int32_t> rows(static_cast<size_t>(num_slots));
  for (int32_t& row : rows) row = static_cast<int32_t>(random() % static_cast<uint64_t>(num_rows));
  return rows;
}

/// A sum, and how far that of the GPU may be from it.
struct GroupedSum {
  double value = 0, error = 0;
};

/// Behind the epilogue: `first` is the gate where there are two.
inline GroupedSum behind_epilogue(GroupedEpilogue epilogue, Activation activation, GroupedSum first,
                                  GroupedSum second) {
  constexpr double kSlopeMax = 1.15;  // |f'| of the activations
  if (epilogue == GroupedEpilogue::kNone) return first;
  const double value = activation_reference(activation, first.value);
  const double error = kSlopeMax * first.error + 4e-6 * std::max(1.0, std::fabs(value));
  if (epilogue == GroupedEpilogue::kActivation) return {value, error};
  return {value * second.value,
          error * (std::fabs(second.value) + second.error) + std::fabs(value) * second.error};
}

}  // namespace halley::cuda
