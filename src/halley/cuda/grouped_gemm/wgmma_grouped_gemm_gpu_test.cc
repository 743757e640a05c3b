// The grouped GEMM by wgmma on the GPU against f64, and against the other grouped GEMM.
#include <algorithm>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/grouped_gemm/quantized_grouped_gemm.h"
#include "halley/cuda/grouped_gemm/testing/grouped_operands.h"
#include "halley/cuda/grouped_gemm/wgmma_grouped_gemm.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {
namespace {

const std::vector<GroupedKind> kAllKinds = [] {
  std::vector<GroupedKind> all(std::begin(kQuantizedKinds), std::end(kQuantizedKinds));
  all.push_back(GroupedKind::kF16);
  all.push_back(GroupedKind::kBf16);
  return all;
}();

/// That of wgmma: accumulators of e4m3 keep 14 bits between steps, weights of 16-bit kinds are
/// rounded.
double wgmma_error(GroupedKind kind) {
  if (kind == GroupedKind::kE4m3) return 1e-3;
  const bool is_rounded = !is_rows(kind) && !has_scales(kind);
  return kSumError + (is_rounded ? half_step_of(input_dtype(kind)) : 0.0);
}

class WgmmaGroupedGpuTest : public GpuTest {
 protected:
  void expect_right(const GroupedCase& shape, GroupedKind kind, DType y_dtype = DType::kBf16) {
    SCOPED_TRACE(str(shape, " of ", kind));
    const GroupedOperands operands(shape, kind, stream_, y_dtype);
    wgmma_grouped_gemm(context_, operands.wgmma_gemm(), operands.y().matrix());
    operands.expect_right(wgmma_error(kind));
  }
};

/// Tiles of 16, 32, 64 and 128 tokens; half a gate is a multiple of 64 outputs where both halves
/// are in one weight.
TEST_F(WgmmaGroupedGpuTest, AgreesWithTheDefinition) {
  const std::vector<std::vector<int32_t>> groups = {{1},      {12, 0, 17},  {30, 0, 17},
                                                    {40, 33}, {0, 65, 100}, {128, 0, 257, 3}};
  for (const GroupedKind kind : kAllKinds) {
    for (const std::vector<int32_t>& sizes : groups) {
      for (const int64_t N : {1, 64, 96, 200, 320}) {
        for (const int64_t K : {1, 63, 128, 400}) {
          for (const auto epilogue :
               {GroupedEpilogue::kNone, GroupedEpilogue::kActivation, GroupedEpilogue::kGated}) {
            // A part of all, another one for each kind.
            if ((N + K + static_cast<int64_t>(epilogue) + static_cast<int64_t>(kind)) % 3 != 0) {
              continue;
            }
            GroupedCase shape = {sizes, N, K, epilogue};
            shape.has_bias = (N + K) % 2 == 1;
            shape.is_gathered = K % 2 == 0;
            shape.is_joined = N % kHalfOutputs == 0;
            shape.group_size = K == 400 ? 64 : 128;
            expect_right(shape, kind, K == 128 ? DType::kF16 : DType::kBf16);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(WgmmaGroupedGpuTest, HasGroupsOfEverySize) {
  for (const GroupedKind kind : kQuantizedKinds) {
    if (is_rows(kind) || kind == GroupedKind::kU4S8) continue;
    for (const int64_t group_size : {32, 64, 128, 256, 600}) {
      for (const std::vector<int32_t>& sizes :
           {std::vector<int32_t>{9, 11}, std::vector<int32_t>{24, 17}, std::vector<int32_t>{40, 17},
            std::vector<int32_t>{170}}) {
        GroupedCase shape = {sizes, 128, 600, GroupedEpilogue::kGated, group_size};
        shape.is_joined = group_size != 64;
        expect_right(shape, kind);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(WgmmaGroupedGpuTest, ActivationsAreRight) {
  for (const GroupedKind kind : {GroupedKind::kF16, GroupedKind::kBf16, GroupedKind::kU4S8}) {
    for (const auto activation : {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu}) {
      for (const auto epilogue : {GroupedEpilogue::kActivation, GroupedEpilogue::kGated}) {
        for (const std::vector<int32_t>& sizes :
             {std::vector<int32_t>{3, 5}, std::vector<int32_t>{70, 5}}) {
          GroupedCase shape = {sizes, 40, 72, epilogue};
          shape.activation = activation;
          expect_right(shape, kind, input_dtype(kind) == DType::kF16 ? DType::kF16 : DType::kBf16);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// More tiles than CTAs, and more stages than the ring has.
TEST_F(WgmmaGroupedGpuTest, CtasTakeSeveralTiles) {
  for (const GroupedKind kind : kAllKinds) {
    expect_right({{30, 0, 25, 77, 1, 0, 33, 40}, 2000, 1300, GroupedEpilogue::kGated}, kind);
    expect_right({{290, 0, 230, 257}, 4000, 300, GroupedEpilogue::kNone}, kind);
    if (HasFatalFailure()) return;
  }
  std::vector<int32_t> sizes(1024);
  for (size_t e = 0; e < sizes.size(); ++e) sizes[e] = static_cast<int32_t>(e % 3);
  expect_right({sizes, 32, 64, GroupedEpilogue::kGated}, GroupedKind::kS8);
  expect_right({sizes, 32, 64, GroupedEpilogue::kGated}, GroupedKind::kU4F16);
}

/// Accumulators of integers are exact.
TEST_F(WgmmaGroupedGpuTest, HasTheBitsOfTheOtherKernels) {
  for (const GroupedKind kind : {GroupedKind::kU4S8, GroupedKind::kU4GroupS8, GroupedKind::kS8}) {
    for (const auto epilogue : {GroupedEpilogue::kNone, GroupedEpilogue::kGated}) {
      GroupedCase shape = {{3, 300, 40}, 192, 1000, epilogue};
      shape.is_joined = true;
      shape.has_bias = true;
      const GroupedOperands operands(shape, kind, stream_);
      quantized_grouped_gemm(context_, operands.gemm(), operands.y().matrix());
      const std::vector<float> expected = operands.y().get(stream_);
      wgmma_grouped_gemm(context_, operands.wgmma_gemm(), operands.y().matrix());
      EXPECT_EQ(operands.y().get(stream_), expected) << kind;
    }
  }
}

/// One row of x serves all slots: no expert has two.
TEST_F(WgmmaGroupedGpuTest, OneRowNeedsNoOrderOfSlots) {
  for (const GroupedKind kind : kAllKinds) {
    GroupedCase shape = {{1, 0, 1, 1, 0, 1}, 192, 400, GroupedEpilogue::kGated};
    shape.num_rows = 1;
    shape.is_gathered = true;
    SCOPED_TRACE(str(shape, " of ", kind));
    const GroupedOperands operands(shape, kind, stream_);
    GroupedGemm gemm = operands.wgmma_gemm();
    gemm.x = operands.x().matrix();
    wgmma_grouped_gemm(context_, gemm, operands.y().matrix());
    operands.expect_right(wgmma_error(kind));
  }
}

/// Rows of weights, and sums of integers: all tiles add in the same order.
TEST_F(WgmmaGroupedGpuTest, ARowsBitsDoNotDependOnTheTile) {
  for (const GroupedKind kind : kAllKinds) {
    if (!is_rows(kind) && !has_scales(kind)) continue;
    GroupedCase shape = {{3, 300}, 192, 1000, GroupedEpilogue::kGated};
    shape.is_joined = true;
    const GroupedOperands operands(shape, kind, stream_);
    GroupedGemm gemm = operands.wgmma_gemm();
    wgmma_grouped_gemm(context_, gemm, operands.y().matrix());
    const std::vector<float> all = operands.y().get(stream_);
    // Rows of expert 1 alone, in tiles of 64 and 32 tokens; their numbers stay, by which they have
    // scales.
    const ConstMatrix slots = gemm.x;
    for (const int32_t count : {90, 1}) {
      for (const int32_t slot : {3, 77, 200}) {
        std::vector<int32_t> rows(static_cast<size_t>(count));
        for (int32_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = slot + i;
        const DeviceArray<int32_t> begin(std::vector<int32_t>{0, 0, count}), numbers(rows);
        const DeviceMatrix y(operands.y().matrix().dtype, count, shape.N);
        gemm.x = slots.rows(slot, slot + count);
        gemm.slot_row = numbers.data();
        gemm.expert_begin = begin.data();
        wgmma_grouped_gemm(context_, gemm, y.matrix());
        const std::vector<float> got = y.get(stream_);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + slot * shape.N))
            << kind << " slot " << slot << " of " << count;
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
