// The grouped GEMM of quantized weights on the GPU against f64.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/grouped_gemm/quantized_grouped_gemm.h"
#include "halley/cuda/grouped_gemm/testing/grouped_operands.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

class QuantizedGroupedGpuTest : public GpuTest {
 protected:
  void expect_right(const GroupedCase& shape, GroupedKind kind, DType y_dtype = DType::kBf16) {
    SCOPED_TRACE(str(shape, " of ", kind));
    const GroupedOperands operands(shape, kind, stream_, y_dtype);
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
  for (const GroupedKind kind : kQuantizedKinds) {
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
  for (const GroupedKind kind : kQuantizedKinds) {
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
  for (const GroupedKind kind : kQuantizedKinds) {
    GroupedCase wide = {{3, 300}, 192, 1000, GroupedEpilogue::kGated};
    wide.is_joined = true;
    wide.is_batch_invariant = true;
    const GroupedOperands operands(wide, kind, stream_);
    GroupedGemm gemm = operands.gemm();
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
