// For tests of grouped GEMMs: experts with known weights in device memory, and their results in
// f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/core/float8.h"
#include "halley/cuda/grouped_gemm/testing/grouped_slots.h"
#include "halley/cuda/grouped_gemm/wgmma_grouped_gemm.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mixed_gemm/testing/mixed_test_weight.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {

// Error of f32 accumulators of the tensor cores, in parts of the sum of magnitudes.
inline constexpr double kSumError = 5e-5;
inline constexpr GroupedKind kQuantizedKinds[] = {
    GroupedKind::kU4S8,  GroupedKind::kU4GroupS8, GroupedKind::kU4F16, GroupedKind::kU4Bf16,
    GroupedKind::kU8F16, GroupedKind::kU8Bf16,    GroupedKind::kS8,    GroupedKind::kE4m3};
struct GroupedCase {
  std::vector<int32_t> group_sizes;
  int64_t N = 0, K = 0;
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  int64_t group_size = 128;
  bool has_bias = false;
  bool is_gathered = false;
  int64_t num_rows = kGatheredRows;  // that are gathered
  /// Both halves of a gated GEMM are in one weight.
  bool is_joined = false;
  bool is_batch_invariant = false;
  Activation activation = Activation::kSilu;

  int64_t num_experts() const { return static_cast<int64_t>(group_sizes.size()); }
  int64_t num_halves() const { return epilogue == GroupedEpilogue::kGated ? 2 : 1; }
  int64_t num_slots() const {
    return std::accumulate(group_sizes.begin(), group_sizes.end(), int64_t{0});
  }
};

inline std::ostream& operator<<(std::ostream& out, const GroupedCase& shape) {
  return out << shape.num_experts() << " experts, " << shape.num_slots()
             << " slots, N = " << shape.N << ", K = " << shape.K << ", epilogue "
             << static_cast<int>(shape.epilogue) << ", groups of " << shape.group_size
             << (shape.has_bias ? ", bias" : "") << (shape.is_gathered ? ", gathered" : "")
             << (shape.is_joined ? ", joined" : "");
}

/// A weight of one or both halves of an expert, and what it is.
class GroupedTestWeight {
 public:
  GroupedTestWeight(GroupedKind kind, int64_t N, int64_t K, int64_t group_size, uint32_t seed)
      : kind_(kind), N_(N), K_(K) {
    if (is_rows(kind)) {
      make_rows(seed);
      return;
    }
    RandomWeight weight(mixed_kind(kind), N, K, test_group_size(mixed_kind(kind), K, group_size));
    // Other values for each seed: RandomWeight has the same for each size.
    std::mt19937 random(seed);
    for (uint8_t& code : weight.codes) {
      code =
          static_cast<uint8_t>(random() % static_cast<uint32_t>(code_max(weight.source.kind) + 1));
    }
    const MixedPacked packed = pack_mixed(weight.source);
    packed_ = std::make_unique<MixedWeight>(packed);
    numbers = weight.numbers(/*are_rounded=*/false);
    scales = packed.w_scales;
    offsets = packed.w_offsets;
  }

  GroupedWeight on_device(int64_t begin) const {
    GroupedWeight weight;
    if (packed_ != nullptr) {
      weight.data = packed_->chunks.data();
      if (packed_->w_scales() != nullptr) weight.scales = packed_->w_scales() + begin;
      if (packed_->w_offsets() != nullptr) weight.offsets = packed_->w_offsets() + begin;
      return weight;
    }
    weight.data = rows_->matrix().rows(begin, N_).data;
    if (!has_scales(kind_)) return weight;
    weight.scales = device_scales_->data() + begin;
    weight.offsets = device_offsets_->data() + begin;
    return weight;
  }
  CUtensorMap map(int64_t begin, int64_t N) const {
    return wgmma_rows_map(rows_->matrix().rows(begin, begin + N));
  }
  int64_t stride_bytes() const {
    return rows_ == nullptr ? 0 : rows_->matrix().row_stride * row_value_bytes(kind_);
  }
  int64_t out_features() const { return N_; }

  std::vector<float> numbers;  // [N, K]
  std::vector<float> scales, offsets;

 private:
  void make_rows(uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> code(-127, 127);
    std::uniform_real_distribution<float> real(-1.0f, 1.0f);
    for (int64_t i = 0; i < N_ * K_; ++i) {
      if (is_float_rows(kind_)) {
        numbers.push_back(rounded_to(input_dtype(kind_), real(random)));
      } else if (kind_ == GroupedKind::kS8) {
        numbers.push_back(static_cast<float>(code(random)));
      } else {
        numbers.push_back(e4m3_to_f32(f32_to_e4m3(8 * real(random))));
      }
    }
    for (int64_t n = 0; n < N_; ++n) {
      scales.push_back(real(random) / 32);
      offsets.push_back(kind_ == GroupedKind::kS8 ? real(random) / 32 : 0.0f);
    }
    rows_ = std::make_unique<DeviceMatrix>(input_dtype(kind_), N_, K_, (K_ + 15) / 16 * 16 - K_);
    rows_->set(numbers);
    device_scales_ = std::make_unique<DeviceArray<float>>(scales);
    device_offsets_ = std::make_unique<DeviceArray<float>>(offsets);
  }

  GroupedKind kind_;
  int64_t N_, K_;
  std::unique_ptr<MixedWeight> packed_;
  std::unique_ptr<DeviceMatrix> rows_;
  std::unique_ptr<DeviceArray<float>> device_scales_, device_offsets_;
};

/// Operands of a case in device memory, and what they are.
class GroupedOperands {
 public:
  GroupedOperands(const GroupedCase& shape, GroupedKind kind, const CudaStream& stream,
                  DType y_dtype = DType::kBf16)
      : shape_(shape),
        kind_(kind),
        stream_(stream),
        y_dtype_(has_scales(kind) ? y_dtype : input_dtype(kind)),
        x_(input_dtype(kind), num_rows(), shape.K, (shape.K + 15) / 16 * 16 - shape.K + 16),
        begin_(slot_begins(shape.group_sizes)),
        slot_row_(random_slot_rows(shape.num_slots(), shape.num_rows)),
        slots_(input_dtype(kind), shape.num_slots(), shape.K, (shape.K + 15) / 16 * 16 - shape.K),
        y_(y_dtype_, shape.num_slots(), shape.N, shape.N % 8 == 0 ? 16 : 3),
        begin_on_device_(begin_),
        slot_row_on_device_(slot_row_) {
    // Gated outputs stay in f16.
    const float of_floats = kind == GroupedKind::kE4m3 ? 1.0f : 0.02f;
    x_.fill_normal(1, input_dtype(kind) == DType::kI8 ? 40.0f : of_floats);
    x_values_ = x_.get(stream);
    std::mt19937 random(5);
    std::uniform_real_distribution<float> real(-1.0f, 1.0f);
    for (int64_t m = 0; m < num_rows(); ++m) {
      x_scales_.push_back(0.002f + 0.001f * std::fabs(real(random)));
      int32_t sum = 0;
      for (int64_t k = 0; k < shape.K; ++k) {
        sum += static_cast<int32_t>(x_values_[static_cast<size_t>(m * shape.K + k)]);
      }
      x_sums_.push_back(sum);
    }
    for (int64_t i = 0; i < shape.num_experts() * shape.num_halves() * shape.N; ++i) {
      biases_.push_back(real(random));
    }
    const bool is_joined = shape.is_joined && shape.num_halves() == 2;
    const int64_t num_weights = shape.num_experts() * (is_joined ? 1 : shape.num_halves());
    for (int64_t i = 0; i < num_weights; ++i) {
      weights_.emplace_back(kind, is_joined ? 2 * shape.N : shape.N, shape.K, shape.group_size,
                            static_cast<uint32_t>(i + 7));
    }
    device_scales_ = std::make_unique<DeviceArray<float>>(x_scales_);
    device_sums_ = std::make_unique<DeviceArray<int32_t>>(x_sums_);
    device_biases_ = std::make_unique<DeviceArray<float>>(biases_);
    std::vector<GroupedWeight> table;
    for (int64_t i = 0; i < shape.num_experts() * shape.num_halves(); ++i) {
      const auto [weight, begin] = half(i);
      table.push_back(weight->on_device(begin));
      if (shape.has_bias) table.back().bias = device_biases_->data() + i * shape.N;
    }
    table_ = std::make_unique<DeviceArray<GroupedWeight>>(table);
    if (is_rows(kind)) {
      std::vector<CUtensorMap> maps;
      for (int64_t i = 0; i < shape.num_experts() * shape.num_halves(); ++i) {
        const auto [weight, begin] = half(i);
        maps.push_back(weight->map(begin, shape.N));
      }
      maps_ = std::make_unique<DeviceArray<CUtensorMap>>(maps);
    }
    std::vector<float> slots;
    for (int64_t slot = 0; slot < shape.num_slots(); ++slot) {
      const float* row = x_values_.data() + row_of(slot) * shape.K;
      slots.insert(slots.end(), row, row + shape.K);
    }
    slots_.set(slots);
  }

  /// Its x lies in the order of slots.
  GroupedGemm wgmma_gemm() const {
    GroupedGemm of_slots = gemm();
    of_slots.x = slots_.matrix();
    return of_slots;
  }

  GroupedGemm gemm() const {
    GroupedGemm gemm = {
        .kind = kind_,
        .x = x_.matrix(),
        .slot_row = shape_.is_gathered ? slot_row_on_device_.data() : nullptr,
        .expert_begin = begin_on_device_.data(),
        .num_experts = shape_.num_experts(),
        .weights = table_->data(),
        .second_half_begin =
            shape_.is_joined && shape_.num_halves() == 2 && !is_rows(kind_) ? shape_.N : 0,
        .group_size = stored_group_size(
            shape_.K, is_rows(kind_)
                          ? shape_.K
                          : test_group_size(mixed_kind(kind_), shape_.K, shape_.group_size)),
        .weight_stride = weights_[0].stride_bytes(),
        .maps = maps_ == nullptr ? nullptr : maps_->data(),
        .epilogue = shape_.epilogue,
        .activation = shape_.activation,
        .is_batch_invariant = shape_.is_batch_invariant};
    if (has_scales(kind_)) {
      gemm.x_scales = {.x_scales = device_scales_->data(), .x_sums = device_sums_->data()};
    }
    return gemm;
  }

  const DeviceMatrix& x() const { return x_; }
  const DeviceMatrix& y() const { return y_; }

  void expect_right(double sum_error = kSumError) const {
    const std::vector<float> y = y_.get(stream_);
    EXPECT_TRUE(y_.guards_are_intact(stream_));
    for (int64_t e = 0; e < shape_.num_experts(); ++e) {
      for (int64_t slot = begin_[static_cast<size_t>(e)]; slot < begin_[static_cast<size_t>(e) + 1];
           ++slot) {
        const int64_t row = row_of(slot);
        for (int64_t n = 0; n < shape_.N; ++n) {
          GroupedSum sums[2];
          for (int64_t h = 0; h < shape_.num_halves(); ++h) {
            sums[h] = sum_of(row, e * shape_.num_halves() + h, n, sum_error);
          }
          const GroupedSum expected =
              behind_epilogue(shape_.epilogue, shape_.activation, sums[0], sums[1]);
          ASSERT_NEAR(y[static_cast<size_t>(slot * shape_.N + n)], expected.value,
                      expected.error + half_step_of(y_dtype_) * std::fabs(expected.value) + 1e-6)
              << "expert " << e << " slot " << slot << " output " << n;
        }
      }
    }
  }

 private:
  int64_t num_rows() const { return shape_.is_gathered ? shape_.num_rows : shape_.num_slots(); }

  /// The weight of a half, and its first output there.
  std::pair<const GroupedTestWeight*, int64_t> half(int64_t i) const {
    if (!shape_.is_joined || shape_.num_halves() == 1)
      return {&weights_[static_cast<size_t>(i)], 0};
    return {&weights_[static_cast<size_t>(i / 2)], i % 2 * shape_.N};
  }

  int64_t row_of(int64_t slot) const {
    return shape_.is_gathered ? slot_row_[static_cast<size_t>(slot)] : slot;
  }

  GroupedSum sum_of(int64_t row, int64_t i, int64_t n, double sum_error) const {
    const auto [weight, begin] = half(i);
    const float* x = x_values_.data() + row * shape_.K;
    const float* w = weight->numbers.data() + (begin + n) * shape_.K;
    GroupedSum sum;
    for (int64_t k = 0; k < shape_.K; ++k) {
      const double term = double{x[k]} * double{w[k]};
      sum.value += term;
      sum.error += std::fabs(term);
    }
    if (has_scales(kind_)) {
      const auto at = static_cast<size_t>(begin + n);
      const double x_scale = x_scales_[static_cast<size_t>(row)];
      const double offset = weight->offsets.empty() ? 0 : weight->offsets[at];
      const double shift = offset * x_sums_[static_cast<size_t>(row)];
      sum.value = x_scale * (double{weight->scales[at]} * sum.value - shift);
      sum.error = x_scale * (std::fabs(weight->scales[at]) * sum.error + std::fabs(shift));
    }
    const double bias = shape_.has_bias ? biases_[static_cast<size_t>(i * shape_.N + n)] : 0;
    sum.value += bias;
    sum.error = sum_error * (sum.error + std::fabs(bias));
    return sum;
  }

  const GroupedCase& shape_;
  GroupedKind kind_;
  const CudaStream& stream_;
  DType y_dtype_;
  DeviceMatrix x_;
  std::vector<int32_t> begin_, slot_row_;
  DeviceMatrix slots_;
  DeviceMatrix y_;
  DeviceArray<int32_t> begin_on_device_, slot_row_on_device_;
  std::vector<float> x_values_, x_scales_, biases_;
  std::vector<int32_t> x_sums_;
  std::vector<GroupedTestWeight> weights_;
  std::unique_ptr<DeviceArray<float>> device_scales_, device_biases_;
  std::unique_ptr<DeviceArray<int32_t>> device_sums_;
  std::unique_ptr<DeviceArray<GroupedWeight>> table_;
  std::unique_ptr<DeviceArray<CUtensorMap>> maps_;
};

}  // namespace halley::cuda
