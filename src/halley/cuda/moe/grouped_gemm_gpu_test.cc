// The grouped product on the GPU against f64.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/moe/grouped_gemm.h"
#include "halley/cuda/moe/grouped_tiles.h"
#include "halley/cuda/moe/testing/grouped_slots.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {
namespace {

// f32 sums of the tensor cores, in parts of the sum of magnitudes.
constexpr double kSumError = 5e-5;

struct GroupedCase {
  std::vector<int32_t> group_sizes;
  int64_t N = 0, K = 0;
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  bool has_bias = false;
  bool is_gathered = false;
  Activation activation = Activation::kSilu;

  int64_t num_experts() const { return static_cast<int64_t>(group_sizes.size()); }
  int64_t num_halves() const { return epilogue == GroupedEpilogue::kGated ? 2 : 1; }
  int64_t num_slots() const {
    return std::accumulate(group_sizes.begin(), group_sizes.end(), int64_t{0});
  }
};

std::ostream& operator<<(std::ostream& out, const GroupedCase& shape) {
  return out << shape.num_experts() << " experts, " << shape.num_slots()
             << " slots, N = " << shape.N << ", K = " << shape.K << ", epilogue "
             << static_cast<int>(shape.epilogue) << (shape.has_bias ? ", bias" : "")
             << (shape.is_gathered ? ", gathered" : "");
}

using Sum = GroupedSum;

/// Operands of a case in device memory, and what they are.
class OnDevice {
 public:
  OnDevice(const GroupedCase& shape, DType dtype, const CudaStream& stream)
      : shape_(shape),
        dtype_(dtype),
        stream_(stream),
        x_(dtype, num_rows(), shape.K, gap(shape.K)),
        begin_(slot_begins(shape.group_sizes)),
        slot_row_(random_slot_rows(shape.num_slots())),
        weights_(dtype, shape.num_experts() * shape.num_halves() * shape.N, shape.K, gap(shape.K)),
        biases_(DType::kF32, shape.num_experts() * shape.num_halves(), shape.N),
        y_(dtype, shape.num_slots(), shape.N, shape.N % 8 == 0 ? 16 : 3),
        weight_addresses_(addresses<std::byte>(weights_.matrix(), shape.N)),
        bias_addresses_(addresses<float>(biases_.matrix(), 1)),
        begin_on_device_(begin_),
        slot_row_on_device_(slot_row_) {
    x_.fill_normal(1);
    weights_.fill_normal(2, 1.0f / std::sqrt(static_cast<float>(shape.K)));
    biases_.fill_normal(3);
  }

  GroupedGemm gemm() const {
    return {.x = x_.matrix(),
            .slot_row = shape_.is_gathered ? slot_row_on_device_.data() : nullptr,
            .expert_begin = begin_on_device_.data(),
            .num_experts = shape_.num_experts(),
            .weights = weight_addresses_.data(),
            .weight_stride = weights_.matrix().row_stride,
            .biases = shape_.has_bias ? bias_addresses_.data() : nullptr,
            .epilogue = shape_.epilogue,
            .activation = shape_.activation};
  }

  const DeviceMatrix& y() const { return y_; }

  void expect_right() const {
    const std::vector<float> x = x_.get(stream_), w = weights_.get(stream_);
    const std::vector<float> bias = biases_.get(stream_), y = y_.get(stream_);
    EXPECT_TRUE(y_.guards_are_intact(stream_));
    for (int64_t e = 0; e < shape_.num_experts(); ++e) {
      for (int64_t slot = begin_[static_cast<size_t>(e)]; slot < begin_[static_cast<size_t>(e) + 1];
           ++slot) {
        const int64_t row = shape_.is_gathered ? slot_row_[static_cast<size_t>(slot)] : slot;
        for (int64_t n = 0; n < shape_.N; ++n) {
          Sum sums[2];
          for (int64_t half = 0; half < shape_.num_halves(); ++half) {
            const int64_t matrix = e * shape_.num_halves() + half;
            sums[half] =
                sum_of(x.data() + row * shape_.K, w.data() + (matrix * shape_.N + n) * shape_.K,
                       shape_.has_bias ? bias[static_cast<size_t>(matrix * shape_.N + n)] : 0.0f);
          }
          const Sum expected =
              behind_epilogue(shape_.epilogue, shape_.activation, sums[0], sums[1]);
          ASSERT_NEAR(y[static_cast<size_t>(slot * shape_.N + n)], expected.value,
                      expected.error + half_step_of(dtype_) * std::fabs(expected.value) + 1e-6)
              << "expert " << e << " slot " << slot << " output " << n;
        }
      }
    }
  }

 private:
  /// Rows at multiples of 16 bytes.
  static int64_t gap(int64_t K) { return (K + 7) / 8 * 8 - K + 8; }
  int64_t num_rows() const { return shape_.is_gathered ? kGatheredRows : shape_.num_slots(); }

  template <typename T>
  DeviceArray<const T*> addresses(ConstMatrix matrix, int64_t rows_each) const {
    const int64_t count = shape_.num_experts() * shape_.num_halves();
    std::vector<const T*> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(
          reinterpret_cast<const T*>(matrix.rows(i * rows_each, (i + 1) * rows_each).data));
    }
    return DeviceArray<const T*>(values);
  }

  Sum sum_of(const float* x, const float* w, float bias) const {
    Sum sum = {bias, std::fabs(bias)};
    for (int64_t k = 0; k < shape_.K; ++k) {
      const double product = double{x[k]} * double{w[k]};
      sum.value += product;
      sum.error += std::fabs(product);
    }
    sum.error *= kSumError;
    return sum;
  }

  const GroupedCase& shape_;
  DType dtype_;
  const CudaStream& stream_;
  DeviceMatrix x_;
  std::vector<int32_t> begin_, slot_row_;
  DeviceMatrix weights_, biases_, y_;
  DeviceArray<const std::byte*> weight_addresses_;
  DeviceArray<const float*> bias_addresses_;
  DeviceArray<int32_t> begin_on_device_, slot_row_on_device_;
};

class GroupedGemmGpuTest : public GpuTest {
 protected:
  void expect_right(const GroupedCase& shape) {
    for (const DType dtype : {DType::kF16, DType::kBf16}) {
      SCOPED_TRACE(str(shape, " in ", dtype));
      const OnDevice operands(shape, dtype, stream_);
      grouped_gemm(context_, operands.gemm(), operands.y().matrix());
      operands.expect_right();
      if (HasFatalFailure()) return;
    }
  }
};

/// Sizes of a few slots an expert.
const std::vector<std::vector<int32_t>> kNarrowGroups = {{1},  {2, 0, 1},     {0, 16, 17, 0},
                                                         {24}, {0, 0, 40, 1}, {0, 0, 0, 32, 33}};
/// Sizes for the wide tiles.
const std::vector<std::vector<int32_t>> kWideGroups = {
    {65}, {25, 26}, {0, 300}, {128, 0, 129}, {0, 64, 90}};

TEST_F(GroupedGemmGpuTest, AgreesWithTheDefinition) {
  for (const auto* groups : {&kNarrowGroups, &kWideGroups}) {
    for (const std::vector<int32_t>& sizes : *groups) {
      for (const int64_t N : {1, 8, 65, 130}) {
        for (const int64_t K : {1, 63, 64, 200}) {
          for (const auto epilogue :
               {GroupedEpilogue::kNone, GroupedEpilogue::kActivation, GroupedEpilogue::kGated}) {
            const GroupedCase shape = {sizes, N, K, epilogue, (N + K) % 2 == 1, K % 2 == 0};
            const bool is_narrow = shape.num_slots() <= kNarrowSlotsMax * shape.num_experts();
            ASSERT_EQ(is_narrow, groups == &kNarrowGroups);
            expect_right(shape);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(GroupedGemmGpuTest, ActivationsAreRight) {
  for (const auto activation : {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu}) {
    for (const auto epilogue : {GroupedEpilogue::kActivation, GroupedEpilogue::kGated}) {
      GroupedCase shape = {{3, 5}, 40, 72, epilogue};
      shape.activation = activation;
      expect_right(shape);
      shape.group_sizes = {70, 5};
      expect_right(shape);
    }
  }
}

/// More tiles than blocks, and more stages than the pipeline has.
TEST_F(GroupedGemmGpuTest, BlocksTakeSeveralTiles) {
  std::vector<int32_t> sizes(48);
  for (size_t e = 0; e < sizes.size(); ++e) sizes[e] = static_cast<int32_t>(e * 7 % 5);
  expect_right({sizes, 304, 704, GroupedEpilogue::kGated});
  expect_right({sizes, 400, 40, GroupedEpilogue::kNone, true, true});
  expect_right({{400, 0, 90, 257}, 4000, 72, GroupedEpilogue::kNone});
}

TEST_F(GroupedGemmGpuTest, AsManyExpertsAsThereCanBe) {
  std::vector<int32_t> sizes(1024);
  for (size_t e = 0; e < sizes.size(); ++e) sizes[e] = static_cast<int32_t>(e % 3);
  expect_right({sizes, 40, 64, GroupedEpilogue::kGated});
}

TEST_F(GroupedGemmGpuTest, ARowsBitsDoNotDependOnTheTile) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    const GroupedCase wide = {{3, 300}, 130, 1000, GroupedEpilogue::kGated};
    const OnDevice operands(wide, dtype, stream_);
    grouped_gemm(context_, operands.gemm(), operands.y().matrix());
    const std::vector<float> all = operands.y().get(stream_);
    // One row alone, of expert 1.
    const DeviceArray<int32_t> begin(std::vector<int32_t>{0, 0, 1});
    for (const int64_t slot : {3, 77, 200, 302}) {
      const DeviceMatrix alone(dtype, 1, wide.N);
      GroupedGemm gemm = operands.gemm();
      gemm.x = gemm.x.rows(slot, slot + 1);
      gemm.expert_begin = begin.data();
      grouped_gemm(context_, gemm, alone.matrix());
      const std::vector<float> got = alone.get(stream_);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + slot * wide.N))
          << name_of(dtype) << " slot " << slot;
    }
  }
}

}  // namespace
}  // namespace halley::cuda
