// Routing, gathering and the weighted sum on the GPU against those of the CPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/moe/moe_rows.h"
#include "halley/cuda/moe/testing/read_routing.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"
#include "halley/kernels/moe/moe.h"

namespace halley::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// exp() of the GPU and of the CPU differ by some units in the last place.
constexpr float kWeightTolerance = 1e-6f;

struct RoutingCase {
  int64_t M = 0, E = 0, per_token = 0;
  bool is_normalized = true;
};

class MoeGpuTest : public GpuTest {
 protected:
  DeviceRouting route(const RoutingCase& shape, const DeviceMatrix& logits) {
    const DeviceRouting routing = take_routing(workspace_, shape.M, shape.E, shape.per_token);
    EXPECT_LE(workspace_.mark(), routing_bytes(shape.M, shape.E, shape.per_token));
    route_rows(context_, logits.matrix(), shape.is_normalized, routing);
    return routing;
  }

  void expect_as_on_the_cpu(const RoutingCase& shape, const std::vector<float>& values) {
    SCOPED_TRACE(str("M = ", shape.M, ", E = ", shape.E, ", ", shape.per_token, " a token"));
    DeviceMatrix logits(DType::kF32, shape.M, shape.E);
    logits.set(values);
    const MoeRouting got = read_routing(stream_, route(shape, logits));
    workspace_.release(0);
    const MoeRouting expected = route_tokens(f32_matrix(values.data(), shape.M, shape.E),
                                             shape.per_token, shape.is_normalized);
    ASSERT_EQ(got.expert_of, expected.expert_of);
    ASSERT_EQ(got.expert_begin, expected.expert_begin);
    ASSERT_EQ(got.slot_row, expected.slot_row);
    ASSERT_EQ(got.row_slots, expected.row_slots);
    for (size_t i = 0; i < got.weight_of.size(); ++i) {
      if (std::isnan(expected.weight_of[i])) {
        ASSERT_TRUE(std::isnan(got.weight_of[i])) << i;
      } else {
        ASSERT_NEAR(got.weight_of[i], expected.weight_of[i], kWeightTolerance) << i;
      }
    }
  }
};

std::vector<float> normal_values(int64_t count, uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

TEST_F(MoeGpuTest, RoutesAsTheCpuDoes) {
  uint32_t seed = 0;
  for (const int64_t E : {1, 2, 8, 31, 33, 60, 128, 1000, 1024}) {
    for (const int64_t per_token : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{8}, E}) {
      if (per_token > E || (per_token == E && E > 128)) continue;
      for (const int64_t M : {0, 1, 2, 33, 64, 65, 300}) {
        const RoutingCase shape = {M, E, per_token, seed % 2 == 0};
        expect_as_on_the_cpu(shape, normal_values(M * E, ++seed, 2.0f));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MoeGpuTest, TheLowerExpertWinsATie) {
  std::mt19937 random(9);
  for (const int64_t M : {7, 200}) {
    std::vector<float> values(static_cast<size_t>(M * 70));
    for (float& value : values) value = static_cast<float>(random() % 3);
    expect_as_on_the_cpu({M, 70, 6, true}, values);
    std::fill(values.begin(), values.end(), -2.5f);
    expect_as_on_the_cpu({M, 70, 6, false}, values);
  }
}

TEST_F(MoeGpuTest, ARowWithoutASoftmaxGoesToTheLowestExpertsWithNan) {
  constexpr int64_t kExperts = 40;
  for (const int64_t M : {5, 100}) {
    std::vector<float> values = normal_values(M * kExperts, 3, 1.0f);
    values[kExperts * 0 + 35] = kNan;
    values[kExperts * 1 + 0] = kInfinity;
    values[kExperts * 2 + 39] = -kInfinity;
    std::fill_n(values.begin() + kExperts * 3, kExperts, -kInfinity);
    std::fill_n(values.begin() + kExperts * 4, kExperts - 1, -kInfinity);
    expect_as_on_the_cpu({M, kExperts, 4, true}, values);
    expect_as_on_the_cpu({M, kExperts, 4, false}, values);
  }
}

TEST_F(MoeGpuTest, AllRowsToOneExpertAreRouted) {
  for (const int64_t M : {3, 300}) {
    std::vector<float> values(static_cast<size_t>(M * 128), 0.0f);
    for (int64_t m = 0; m < M; ++m) values[static_cast<size_t>(m * 128 + 77)] = 5.0f;
    expect_as_on_the_cpu({M, 128, 1, true}, values);
  }
}

TEST_F(MoeGpuTest, CombinesToTheBitsOfTheCpu) {
  for (const int64_t per_token : {1, 3, 8}) {
    const RoutingCase shape = {19, 9, per_token, true};
    DeviceMatrix logits(DType::kF32, shape.M, shape.E);
    logits.fill_normal(4);
    const DeviceRouting routing = route(shape, logits);
    const MoeRouting host = read_routing(stream_, routing);
    for (const DType from : {DType::kF32, DType::kF16, DType::kBf16}) {
      for (const DType to : {DType::kF32, DType::kF16, DType::kBf16}) {
        for (const int64_t K : {1, 65, 256}) {
          DeviceMatrix slots(from, routing.num_slots(), K);
          const DeviceMatrix y(to, shape.M, K);
          slots.fill_normal(5);
          combine_rows(context_, routing, slots.matrix(), y.matrix());
          const std::vector<float> values = slots.get(stream_), got = y.get(stream_);
          std::vector<float> expected(got.size());
          combine_slots(host, f32_matrix(values.data(), routing.num_slots(), K),
                        f32_matrix(expected.data(), shape.M, K));
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(got[i], rounded_to(to, expected[i]))
                << name_of(from) << " to " << name_of(to) << " K = " << K << " element " << i;
          }
          EXPECT_TRUE(y.guards_are_intact(stream_));
        }
      }
    }
    workspace_.release(0);
  }
}

TEST_F(MoeGpuTest, AGraphRoutesWhatIsThereWhenItRuns) {
  for (const int64_t M : {6, 90}) {
    const RoutingCase shape = {M, 16, 4, true};
    DeviceMatrix logits(DType::kF32, M, shape.E);
    const DeviceRouting routing = take_routing(workspace_, M, shape.E, shape.per_token);
    const CudaGraph graph = CudaGraph::capture(
        stream_, [&] { route_rows(context_, logits.matrix(), shape.is_normalized, routing); });
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      const std::vector<float> values = normal_values(M * shape.E, seed, 1.0f);
      logits.set(values);
      graph.launch(stream_);
      const MoeRouting got = read_routing(stream_, routing);
      const MoeRouting expected =
          route_tokens(f32_matrix(values.data(), M, shape.E), shape.per_token, true);
      EXPECT_EQ(got.expert_of, expected.expert_of);
      EXPECT_EQ(got.row_slots, expected.row_slots);
      EXPECT_EQ(got.expert_begin, expected.expert_begin);
    }
    workspace_.release(0);
  }
}

}  // namespace
}  // namespace halley::cuda
