#include <cmath>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "halley/cuda/ops/first_rows.h"
#include "halley/cuda/ops/gather_rows.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/kernels/rope/rope.h"

namespace halley::cuda {
namespace {

constexpr int64_t kNumIds = 500, kNumPositions = 40;

/// Token ids on the host; the last ones of some rows are not known yet.
struct Ids {
  std::vector<int32_t> ids = {0, 499, -1, 7, -4};
  std::vector<int32_t> last_tokens = {3, 0, 0, 498};
  std::vector<int32_t> known = {0, 499, 3, 7, 498};
  std::vector<int32_t> position_rows = {39, 0, 2, 2, 17};
};

class FirstRowsGpuTest : public GpuTest {
 protected:
  void compare(DType dtype, int64_t K, int64_t gap, bool has_positions) {
    const Ids host;
    const DeviceArray<int32_t> ids(host.ids), last_tokens(host.last_tokens),
        position_rows(host.position_rows);
    DeviceMatrix table(dtype, kNumIds, K, gap), positions(dtype, kNumPositions, K, gap);
    table.fill_normal(static_cast<uint32_t>(K));
    positions.fill_normal(static_cast<uint32_t>(K) + 1);
    const DeviceMatrix hidden(DType::kF32, 5, K, gap);
    FirstRows rows = {.table = table.matrix(),
                      .scale = 1.5f,
                      .ids = ids.data(),
                      .last_tokens = last_tokens.data()};
    if (has_positions) {
      rows.position_table = positions.matrix();
      rows.position_rows = position_rows.data();
    }
    first_rows(context_, rows, hidden.matrix());
    const std::vector<float> of_ids = table.get(stream_), of_positions = positions.get(stream_);
    std::vector<float> expected;
    for (size_t m = 0; m < host.known.size(); ++m) {
      for (int64_t k = 0; k < K; ++k) {
        float x = of_ids[static_cast<size_t>(host.known[m] * K + k)] * 1.5f;
        if (has_positions) x += of_positions[static_cast<size_t>(host.position_rows[m] * K + k)];
        expected.push_back(x);
      }
    }
    EXPECT_EQ(hidden.get(stream_), expected) << name_of(dtype) << ", K " << K << ", gap " << gap;
    EXPECT_TRUE(hidden.guards_are_intact(stream_));
  }
};

TEST_F(FirstRowsGpuTest, ReadTheRowsOfTheIds) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int64_t K : {1, 33, 512, 4096, 4098}) {
      for (const int64_t gap : {16, 1}) {  // 1: rows are not aligned for vectors of 4
        for (const bool has_positions : {false, true}) compare(dtype, K, gap, has_positions);
      }
    }
  }
}

/// A part of a vocabulary: ids outside it have zeros, and positions nevertheless.
TEST_F(FirstRowsGpuTest, OtherIdsThanTheTablesHaveZeros) {
  constexpr int64_t kFirstId = 100;
  const std::vector<int32_t> ids = {99, 100, 103, 104, 0};
  const DeviceArray<int32_t> device_ids(ids), position_rows(std::vector<int32_t>{0, 1, 2, 0, 1});
  for (const int64_t K : {8, 33}) {
    DeviceMatrix table(DType::kF16, 4, K), positions(DType::kF16, 3, K);
    table.fill_normal(1);
    positions.fill_normal(2);
    const DeviceMatrix hidden(DType::kF32, 5, K);
    first_rows(context_,
               {.table = table.matrix(),
                .first_id = kFirstId,
                .ids = device_ids.data(),
                .position_table = positions.matrix(),
                .position_rows = position_rows.data()},
               hidden.matrix());
    const std::vector<float> of_ids = table.get(stream_), of_positions = positions.get(stream_);
    std::vector<float> expected;
    for (size_t m = 0; m < ids.size(); ++m) {
      const int64_t row = ids[m] - kFirstId;
      const auto position = static_cast<int64_t>(m) % 3;
      for (int64_t k = 0; k < K; ++k) {
        const float x = row >= 0 && row < 4 ? of_ids[static_cast<size_t>(row * K + k)] : 0.0f;
        expected.push_back(x + of_positions[static_cast<size_t>(position * K + k)]);
      }
    }
    EXPECT_EQ(hidden.get(stream_), expected) << K;
    EXPECT_TRUE(hidden.guards_are_intact(stream_));
  }
}

TEST_F(FirstRowsGpuTest, AnglesAreThoseOfTheHost) {
  const std::vector<int32_t> positions = {0, 1, 17, 8191, 131071}, ids(5, 2);
  const DeviceArray<int32_t> device_positions(positions), device_ids(ids);
  DeviceMatrix table(DType::kF16, 3, 8);
  table.fill_normal(1);
  const DeviceMatrix hidden(DType::kF32, 5, 8);
  std::vector<std::vector<float>> frequencies;
  for (const int64_t num_angles : {64, 3}) {
    auto& of_rope = frequencies.emplace_back();
    for (int64_t i = 0; i < num_angles; ++i) {
      of_rope.push_back(
          std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(num_angles)));
    }
  }
  const DeviceArray<float> first(frequencies[0]), second(frequencies[1]);
  const DeviceMatrix cos(DType::kF32, 5, 64, 0), sin(DType::kF32, 5, 64, 0),
      second_cos(DType::kF32, 5, 3, 0), second_sin(DType::kF32, 5, 3, 0);
  FirstRows rows = {.table = table.matrix(), .ids = device_ids.data()};
  rows.num_ropes = 2;
  rows.positions = device_positions.data();
  rows.ropes[0] = {.table = {first.data(), 64, 0.5f},
                   .cos = cos.matrix().row<float>(0),
                   .sin = sin.matrix().row<float>(0)};
  rows.ropes[1] = {.table = {second.data(), 3, 1.25f},
                   .cos = second_cos.matrix().row<float>(0),
                   .sin = second_sin.matrix().row<float>(0)};
  first_rows(context_, rows, hidden.matrix());
  const auto expect_near = [&](const DeviceMatrix& got, const std::vector<float>& expected) {
    const std::vector<float> values = got.get(stream_);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 2e-6f) << i;
    EXPECT_TRUE(got.guards_are_intact(stream_));
  };
  RopeAngles angles;
  compute_rope_angles(host_, positions, frequencies[0], 0.5f, angles);
  expect_near(cos, angles.cos);
  expect_near(sin, angles.sin);
  compute_rope_angles(host_, positions, frequencies[1], 1.25f, angles);
  expect_near(second_cos, angles.cos);
  expect_near(second_sin, angles.sin);
}

TEST_F(FirstRowsGpuTest, ASpanBegins) {
  const DeviceArray<int32_t> ids(std::vector<int32_t>{1});
  DeviceMatrix table(DType::kF16, 3, 8);
  table.fill_normal(1);
  const DeviceMatrix hidden(DType::kF32, 1, 8);
  const DeviceArray<DeviceSpan> span(std::vector<DeviceSpan>{{.begin_ns = 0, .end_ns = 7}});
  first_rows(context_, {.table = table.matrix(), .ids = ids.data(), .span = span.data()},
             hidden.matrix());
  stream_.synchronize();
  DeviceSpan got;
  check_cuda(cudaMemcpy(&got, span.data(), sizeof(got), cudaMemcpyDeviceToHost), "copy of a span");
  EXPECT_GT(got.begin_ns, 0u);
  EXPECT_EQ(got.end_ns, 0u);
}

TEST_F(FirstRowsGpuTest, GathersRowsOfEveryTypeAndAlignment) {
  const std::vector<int32_t> rows = {4, 0, 4};
  const DeviceArray<int32_t> device_rows(rows);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16, DType::kI8}) {
    for (const int64_t K : {1, 7, 30, 64, 1027}) {
      for (const int64_t gap : {16, 1}) {
        DeviceMatrix x(dtype, 5, K, gap);
        x.fill_normal(2, dtype == DType::kI8 ? 40.0f : 1.0f);
        const DeviceMatrix y(dtype, 3, K);
        gather_rows(context_, x.matrix(), device_rows.data(), y.matrix());
        const std::vector<float> from = x.get(stream_);
        std::vector<float> expected;
        for (const int32_t row : rows) {
          expected.insert(expected.end(), from.begin() + row * K, from.begin() + (row + 1) * K);
        }
        EXPECT_EQ(y.get(stream_), expected) << dtype << " K = " << K << " gap " << gap;
        EXPECT_TRUE(y.guards_are_intact(stream_));
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
