// The grouped GEMM of quantized weights on the GPU against f64.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/core/float8.h"
#include "halley/cuda/grouped_gemm/quantized_grouped_gemm.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mixed_gemm/testing/mixed_test_weight.h"
#include "halley/cuda/moe/testing/grouped_slots.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {
namespace {

// Error of f32 accumulators of the tensor cores, in parts of the sum of magnitudes.
constexpr double kSumError = 5e-5;
constexpr GroupedKind kKinds[] = {
    GroupedKind::kU4S8,  GroupedKind::kU4GroupS8, GroupedKind::kU4F16, GroupedKind::kU4Bf16,
    GroupedKind::kU8F16, GroupedKind::kU8Bf16,    GroupedKind::kS8,    GroupedKind::kE4m3};

struct GroupedCase {
  std::vector<int32_t> group_sizes;
  int64_t N = 0, K = 0;
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  int64_t group_size = 128;
  bool has_bias = false;
  bool is_gathered = false;
  /// Both halves of a gated GEMM are in one weight.
  bool is_joined = false;
  bool is_batch_invariant = false;

  int64_t num_experts() const { return static_cast<int64_t>(group_sizes.size()); }
  int64_t num_halves() const { return epilogue == GroupedEpilogue::kGated ? 2 : 1; }
  int64_t num_slots() const {
    return std::accumulate(group_sizes.begin(), group_sizes.end(), int64_t{0});
  }
};

std::ostream& operator<<(std::ostream& out, const GroupedCase& shape) {
  return out << shape.num_experts() << " experts, " << shape.num_slots()
             << " slots, N = " << shape.N << ", K = " << shape.K << ", epilogue "
             << static_cast<int>(shape.epilogue) << ", groups of " << shape.group_size
             << (shape.has_bias ? ", bias" : "") << (shape.is_gathered ? ", gathered" : "")
             << (shape.is_joined ? ", joined" : "");
}

DType input_dtype(GroupedKind kind) {
  if (kind == GroupedKind::kE4m3) return DType::kF8E4M3;
  return kind == GroupedKind::kS8 ? DType::kI8 : test_input_dtype(mixed_kind(kind));
}

/// A weight of one or both halves of an expert, and what it is.
class TestWeight {
 public:
  TestWeight(GroupedKind kind, int64_t N, int64_t K, int64_t group_size, uint32_t seed)
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
    weight.scales = device_scales_->data() + begin;
    weight.offsets = device_offsets_->data() + begin;
    return weight;
  }
  int64_t stride_bytes() const { return rows_ == nullptr ? 0 : rows_->matrix().row_stride; }
  int64_t out_features() const { return N_; }

  std::vector<float> numbers;  // [N, K]
  std::vector<float> scales, offsets;

 private:
  void make_rows(uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> code(-127, 127);
    std::uniform_real_distribution<float> real(-1.0f, 1.0f);
    for (int64_t i = 0; i < N_ * K_; ++i) {
      numbers.push_back(kind_ == GroupedKind::kS8 ? static_cast<float>(code(random))
                                                  : e4m3_to_f32(f32_to_e4m3(8 * real(random))));
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

using Sum = GroupedSum;

/// Operands of a case in device memory, and what they are.
class OnDevice {
 public:
  OnDevice(const GroupedCase& shape, GroupedKind kind, const CudaStream& stream,
           DType y_dtype = DType::kBf16)
      : shape_(shape),
        kind_(kind),
        stream_(stream),
        y_dtype_(has_scales(kind) ? y_dtype : input_dtype(kind)),
        x_(input_dtype(kind), num_rows(), shape.K, (shape.K + 15) / 16 * 16 - shape.K + 16),
        begin_(slot_begins(shape.group_sizes)),
        slot_row_(random_slot_rows(shape.num_slots())),
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
  }

  QuantizedGroupedGemm gemm() const {
    QuantizedGroupedGemm gemm = {
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
        .epilogue = shape_.epilogue,
        .is_batch_invariant = shape_.is_batch_invariant};
    if (has_scales(kind_)) {
      gemm.x_scales = {.x_scales = device_scales_->data(), .x_sums = device_sums_->data()};
    }
    return gemm;
  }

  const DeviceMatrix& y() const { return y_; }

  void expect_right() const {
    const std::vector<float> y = y_.get(stream_);
    EXPECT_TRUE(y_.guards_are_intact(stream_));
    for (int64_t e = 0; e < shape_.num_experts(); ++e) {
      for (int64_t slot = begin_[static_cast<size_t>(e)]; slot < begin_[static_cast<size_t>(e) + 1];
           ++slot) {
        const int64_t row = shape_.is_gathered ? slot_row_[static_cast<size_t>(slot)] : slot;
        for (int64_t n = 0; n < shape_.N; ++n) {
          Sum sums[2];
          for (int64_t h = 0; h < shape_.num_halves(); ++h) {
            sums[h] = sum_of(row, e * shape_.num_halves() + h, n);
          }
          const Sum expected =
              behind_epilogue(shape_.epilogue, Activation::kSilu, sums[0], sums[1]);
          ASSERT_NEAR(y[static_cast<size_t>(slot * shape_.N + n)], expected.value,
                      expected.error + half_step_of(y_dtype_) * std::fabs(expected.value) + 1e-6)
              << "expert " << e << " slot " << slot << " output " << n;
        }
      }
    }
  }

 private:
  int64_t num_rows() const { return shape_.is_gathered ? kGatheredRows : shape_.num_slots(); }

  /// The weight of a half, and its first output there.
  std::pair<const TestWeight*, int64_t> half(int64_t i) const {
    if (!shape_.is_joined || shape_.num_halves() == 1)
      return {&weights_[static_cast<size_t>(i)], 0};
    return {&weights_[static_cast<size_t>(i / 2)], i % 2 * shape_.N};
  }

  Sum sum_of(int64_t row, int64_t i, int64_t n) const {
    const auto [weight, begin] = half(i);
    const float* x = x_values_.data() + row * shape_.K;
    const float* w = weight->numbers.data() + (begin + n) * shape_.K;
    Sum sum;
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
    sum.error = kSumError * (sum.error + std::fabs(bias));
    return sum;
  }

  const GroupedCase& shape_;
  GroupedKind kind_;
  const CudaStream& stream_;
  DType y_dtype_;
  DeviceMatrix x_;
  std::vector<int32_t> begin_, slot_row_;
  DeviceMatrix y_;
  DeviceArray<int32_t> begin_on_device_, slot_row_on_device_;
  std::vector<float> x_values_, x_scales_, biases_;
  std::vector<int32_t> x_sums_;
  std::vector<TestWeight> weights_;
  std::unique_ptr<DeviceArray<float>> device_scales_, device_biases_;
  std::unique_ptr<DeviceArray<int32_t>> device_sums_;
  std::unique_ptr<DeviceArray<GroupedWeight>> table_;
};

class QuantizedGroupedGpuTest : public GpuTest {
 protected:
  void expect_right(const GroupedCase& shape, GroupedKind kind, DType y_dtype = DType::kBf16) {
    SCOPED_TRACE(str(shape, " of ", kind));
    const OnDevice operands(shape, kind, stream_, y_dtype);
    quantized_grouped_gemm(context_, operands.gemm(), operands.y().matrix());
    operands.expect_right();
  }
};

/// Sizes for each of the tiles of 16, 32 and 64 tokens.
const std::vector<std::vector<int32_t>> kGroups[] = {
    {{1}, {2, 0, 1}, {0, 16, 17, 0}, {9, 8, 7}},
    {{24}, {20, 25}, {0, 33, 15, 40}},
    {{65}, {25, 26}, {0, 300}, {128, 0, 129}, {0, 64, 90}}};

TEST_F(QuantizedGroupedGpuTest, AgreesWithTheDefinition) {
  for (const GroupedKind kind : kKinds) {
    for (const auto& groups : kGroups) {
      for (const std::vector<int32_t>& sizes : groups) {
        for (const int64_t N : {1, 16, 65, 96, 192}) {
          for (const int64_t K : {1, 127, 128, 400}) {
            for (const auto epilogue :
                 {GroupedEpilogue::kNone, GroupedEpilogue::kActivation, GroupedEpilogue::kGated}) {
              // A part of all, another one for each kind.
              if ((N + K + static_cast<int64_t>(epilogue) + static_cast<int64_t>(kind)) % 3 != 0) {
                continue;
              }
              GroupedCase shape = {sizes, N, K, epilogue};
              shape.has_bias = (N + K) % 2 == 1;
              shape.is_gathered = K % 2 == 0;
              shape.is_joined = N % kHalfOutputsMin == 0;
              shape.group_size = K == 400 ? 64 : 128;
              expect_right(shape, kind, K == 128 ? DType::kF16 : DType::kBf16);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_F(QuantizedGroupedGpuTest, GroupsOfEverySizeAreRight) {
  for (const GroupedKind kind : kKinds) {
    if (is_rows(kind) || kind == GroupedKind::kU4S8) continue;
    for (const int64_t group_size : {32, 64, 128, 256, 600}) {
      for (const std::vector<int32_t>& sizes :
           {std::vector<int32_t>{3, 9}, std::vector<int32_t>{30, 17}, std::vector<int32_t>{70}}) {
        GroupedCase shape = {sizes, 128, 600, GroupedEpilogue::kGated, group_size};
        shape.is_joined = group_size != 64;
        expect_right(shape, kind);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// More tiles than CTAs, and more stages than the ring has.
TEST_F(QuantizedGroupedGpuTest, CtasTakeSeveralTiles) {
  std::vector<int32_t> sizes(48);
  for (size_t e = 0; e < sizes.size(); ++e) sizes[e] = static_cast<int32_t>(e * 7 % 5);
  for (const GroupedKind kind :
       {GroupedKind::kU4GroupS8, GroupedKind::kU4F16, GroupedKind::kE4m3}) {
    expect_right({sizes, 608, 1600, GroupedEpilogue::kGated}, kind);
    expect_right({{90, 0, 130, 257}, 4000, 300, GroupedEpilogue::kNone}, kind);
    if (HasFatalFailure()) return;
  }
}

TEST_F(QuantizedGroupedGpuTest, AsManyExpertsAsThereCanBe) {
  std::vector<int32_t> sizes(1024);
  for (size_t e = 0; e < sizes.size(); ++e) sizes[e] = static_cast<int32_t>(e % 3);
  expect_right({sizes, 32, 64, GroupedEpilogue::kGated}, GroupedKind::kU4Bf16);
}

/// Sums of integers are exact; others are added in one order where asked.
TEST_F(QuantizedGroupedGpuTest, ARowsBitsDoNotDependOnTheTile) {
  for (const GroupedKind kind : kKinds) {
    GroupedCase wide = {{3, 300}, 192, 1000, GroupedEpilogue::kGated};
    wide.is_joined = true;
    wide.is_batch_invariant = true;
    const OnDevice operands(wide, kind, stream_);
    QuantizedGroupedGemm gemm = operands.gemm();
    quantized_grouped_gemm(context_, gemm, operands.y().matrix());
    const std::vector<float> all = operands.y().get(stream_);
    // One row alone, of expert 1; its number stays, by which it has a scale.
    const DeviceArray<int32_t> begin(std::vector<int32_t>{0, 0, 1});
    for (const int32_t slot : {3, 77, 200, 302}) {
      const DeviceArray<int32_t> row(std::vector<int32_t>{slot});
      const DeviceMatrix alone(DType::kBf16, 1, wide.N), f16(DType::kF16, 1, wide.N);
      const bool is_f16 = kind == GroupedKind::kU4F16 || kind == GroupedKind::kU8F16;
      const DeviceMatrix& y = is_f16 ? f16 : alone;
      gemm.slot_row = row.data();
      gemm.expert_begin = begin.data();
      quantized_grouped_gemm(context_, gemm, y.matrix());
      const std::vector<float> got = y.get(stream_);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + slot * wide.N))
          << kind << " slot " << slot;
    }
  }
}

}  // namespace
}  // namespace halley::cuda
