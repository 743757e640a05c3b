// A layer's experts on the GPU against f64, and against their layers one by one.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/experts/cuda_experts.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/kernels/activation/testing/activation_reference.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/testing/synthetic_weights.h"
#include "halley/kernels/moe/moe.h"

namespace halley::cuda {
namespace {

// f32 sums of the tensor cores, in parts of the sum of magnitudes.
constexpr double kSumError = 5e-5;
// |f'| of the activations is at most this.
constexpr double kSlopeMax = 1.15;

struct ExpertsCase {
  int64_t E = 0, per_token = 0, M = 0;
  int64_t K = 0, F = 0;
  bool is_gated = true;
  bool is_normalized = true;
  Activation activation = Activation::kSilu;
  bool has_bias = false;
};

std::ostream& operator<<(std::ostream& out, const ExpertsCase& shape) {
  return out << shape.per_token << " of " << shape.E << " experts, M = " << shape.M
             << ", K = " << shape.K << ", F = " << shape.F << (shape.is_gated ? ", gated" : "");
}

/// A layer as the test knows it.
struct HostLayer {
  int64_t N = 0, K = 0;
  std::vector<float> w;     // [N, K], as it lies on the GPU
  std::vector<float> bias;  // [N] or empty
  QuantParams quant;        // of its activations
};

/// A sum and how far a right result may be from it.
struct Bounded {
  double value = 0, error = 0;
};

Bounded output_of(const HostLayer& layer, int64_t n, const std::vector<Bounded>& x) {
  const double bias = layer.bias.empty() ? 0 : layer.bias[static_cast<size_t>(n)];
  Bounded sum = {bias, kSumError * std::fabs(bias)};
  for (size_t k = 0; k < x.size(); ++k) {
    const double w = layer.w[static_cast<size_t>(n * layer.K) + k];
    sum.value += w * x[k].value;
    sum.error += std::fabs(w) * (x[k].error + kSumError * std::fabs(x[k].value));
  }
  return sum;
}

Bounded rounded(DType dtype, Bounded x) {
  return {x.value, x.error + half_step_of(dtype) * (std::fabs(x.value) + x.error) + 1e-7};
}

class ExpertsGpuTest : public GpuTest {
 protected:
  struct Experts {
    std::vector<HostLayer> gate_up, down;
    CudaExperts on_device;
  };
  /// The parts of a layer, from its sizes and a seed.
  using Part = QuadCase;

  static ExpertsSpec spec_of(const ExpertsCase& shape, DType dtype) {
    return {.num_experts_per_token = shape.per_token,
            .is_normalized = shape.is_normalized,
            .activation = shape.activation,
            .is_gated = shape.is_gated,
            .activation_dtype = dtype};
  }

  std::vector<float> synthetic_bias(bool has_bias, int64_t N) const {
    std::vector<float> bias;
    for (int64_t n = 0; has_bias && n < N; ++n) bias.push_back(0.25f * static_cast<float>(n % 5));
    return bias;
  }

  CudaLinear dense_layer(DType dtype, int64_t N, int64_t K, bool has_bias, HostLayer* host) {
    std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(K)));
    host->N = N;
    host->K = K;
    host->bias = synthetic_bias(has_bias, N);
    for (int64_t i = 0; i < N * K; ++i) host->w.push_back(rounded_to(dtype, normal(random_)));
    const TensorView view = {
        reinterpret_cast<const std::byte*>(host->w.data()), DType::kF32, {N, K}};
    CudaWeightLoader loader(host_, context_, lt_, dtype);
    std::vector<CudaLinear::Section> sections;
    sections.push_back(loader.load_dense("a", std::span(&view, 1), host->bias, 0));
    return {"a", dtype, std::move(sections), lt_};
  }

  /// Every part a section of `part.shape.N` outputs.
  CudaLinear packed_layer(DType dtype, const std::vector<Part>& parts, float activation_scale,
                          HostLayer* host) {
    CudaWeightLoader loader(host_, context_, lt_, dtype);
    std::vector<CudaLinear::Section> sections;
    for (const Part& part : parts) {
      PackedWeight weight = make_weight(part, static_cast<uint32_t>(random_()));
      weight.quant.activation_scale = activation_scale;
      // Outputs of about the size of inputs.
      auto groups = weight.quant.groups.as<float>();
      for (size_t i = 0; i < groups.size(); ++i) {
        groups[i] = i / kPanelRows % 2 == 0 ? std::fabs(groups[i]) / 64 : 8.0f;
      }
      std::vector<float> row(static_cast<size_t>(weight.K));
      for (int64_t n = 0; n < weight.N; ++n) {
        unpack_row(weight, n, row.data());
        for (const float value : row) host->w.push_back(rounded_to(dtype, value));
      }
      sections.push_back(loader.load_packed("a", weight, {}, host->N, LinearUse::kGrouped));
      host->N += weight.N;
      host->K = weight.K;
      host->quant.activation = weight.quant.activation;
      host->quant.group_size = weight.quant.group_size;
    }
    return {"a", dtype, std::move(sections), lt_};
  }

  Experts dense_experts(const ExpertsCase& shape, DType dtype) {
    return dense_experts(shape, dtype, 0, shape.E);
  }

  /// Experts [begin, end) of those that the router knows.
  Experts dense_experts(const ExpertsCase& shape, DType dtype, int64_t begin, int64_t end) {
    Experts experts;
    std::vector<CudaLinear> gate_up, down;
    for (int64_t e = 0; e < shape.E; ++e) {
      const int64_t wide = (shape.is_gated ? 2 : 1) * shape.F;
      CudaLinear first =
          dense_layer(dtype, wide, shape.K, shape.has_bias, &experts.gate_up.emplace_back());
      CudaLinear second =
          dense_layer(dtype, shape.K, shape.F, shape.has_bias, &experts.down.emplace_back());
      if (e < begin || e >= end) continue;
      gate_up.push_back(std::move(first));
      down.push_back(std::move(second));
    }
    ExpertsSpec spec = spec_of(shape, dtype);
    spec.num_routed = shape.E;
    spec.first_expert = begin;
    experts.on_device = CudaExperts(context_, spec, std::move(gate_up), std::move(down));
    return experts;
  }

  /// gate_up of `parts` and down like the last of them.
  Experts packed_experts(const ExpertsCase& shape, DType dtype, std::vector<Part> parts,
                         bool has_own_scales = false) {
    Experts experts;
    std::vector<CudaLinear> gate_up, down;
    Part of_down = parts.back();
    of_down.shape = {1, shape.K, shape.F, false};
    if (of_down.group_size == shape.K) of_down.group_size = shape.F;
    for (int64_t e = 0; e < shape.E; ++e) {
      const float scale = has_own_scales ? 0.03f + 0.01f * static_cast<float>(e) : 0.03f;
      gate_up.push_back(packed_layer(dtype, parts, scale, &experts.gate_up.emplace_back()));
      down.push_back(packed_layer(dtype, {of_down}, scale, &experts.down.emplace_back()));
    }
    experts.on_device =
        CudaExperts(context_, spec_of(shape, dtype), std::move(gate_up), std::move(down));
    return experts;
  }

  void run(const Experts& experts, const DeviceMatrix& x, const DeviceMatrix& logits,
           const DeviceMatrix& y) {
    const size_t mark = workspace_.mark();
    experts.on_device.run(context_, x.matrix(), logits.matrix(), y.matrix());
    EXPECT_EQ(workspace_.mark(), mark);
  }

  /// One expert's result for a row, in f64.
  std::vector<Bounded> expert_output(const ExpertsCase& shape, DType dtype, const Experts& experts,
                                     size_t e, const std::vector<float>& x) const {
    const HostLayer &wide = experts.gate_up[e], &narrow = experts.down[e];
    std::vector<float> rounded_x(x.size());
    round_activations(wide.quant, x, rounded_x.data());
    std::vector<Bounded> inputs;
    for (const float value : rounded_x) inputs.push_back({rounded_to(dtype, value), 0});
    std::vector<Bounded> activated;
    for (int64_t f = 0; f < shape.F; ++f) {
      const Bounded gate = rounded(dtype, output_of(wide, f, inputs));
      const double value = activation_reference(shape.activation, gate.value);
      Bounded result = {value, kSlopeMax * gate.error + 4e-6 * std::max(1.0, std::fabs(value))};
      if (shape.is_gated) {
        const Bounded up = rounded(dtype, output_of(wide, shape.F + f, inputs));
        result = {result.value * up.value, result.error * (std::fabs(up.value) + up.error) +
                                               std::fabs(result.value) * up.error};
      }
      result = rounded(dtype, result);
      // A code of e4m3 more or less where a number lies between two.
      if (narrow.quant.activation != ActivationQuant::kNone) {
        result.error += std::fabs(result.value) / 8 + 1e-4;
      }
      activated.push_back(result);
    }
    std::vector<Bounded> outputs;
    for (int64_t n = 0; n < shape.K; ++n) {
      outputs.push_back(rounded(dtype, output_of(narrow, n, activated)));
    }
    return outputs;
  }

  void expect_right(const ExpertsCase& shape, DType dtype, const Experts& experts, DType x_dtype,
                    DType y_dtype) {
    SCOPED_TRACE(str(shape, " in ", dtype, ", x ", x_dtype, ", y ", y_dtype, "\n",
                     experts.on_device.describe()));
    DeviceMatrix x(x_dtype, shape.M, shape.K), logits(DType::kF32, shape.M, shape.E);
    const DeviceMatrix y(y_dtype, shape.M, shape.K);
    x.fill_normal(11);
    logits.fill_normal(12, 2.0f);
    run(experts, x, logits, y);
    const std::vector<float> x_values = x.get(stream_), got = y.get(stream_);
    const std::vector<float> logit_values = logits.get(stream_);
    EXPECT_TRUE(y.guards_are_intact(stream_));
    const MoeRouting routing = route_tokens(f32_matrix(logit_values.data(), shape.M, shape.E),
                                            shape.per_token, shape.is_normalized);
    for (int64_t m = 0; m < shape.M; ++m) {
      const std::vector<float> row(x_values.begin() + m * shape.K,
                                   x_values.begin() + (m + 1) * shape.K);
      std::vector<Bounded> expected(static_cast<size_t>(shape.K));
      for (int64_t i = 0; i < shape.per_token; ++i) {
        const auto at = static_cast<size_t>(m * shape.per_token + i);
        const double weight = routing.weight_of[at];
        const auto outputs =
            expert_output(shape, dtype, experts, static_cast<size_t>(routing.expert_of[at]), row);
        for (size_t n = 0; n < outputs.size(); ++n) {
          expected[n].value += weight * outputs[n].value;
          expected[n].error += weight * outputs[n].error + 1e-5 * std::fabs(outputs[n].value);
        }
      }
      for (size_t n = 0; n < expected.size(); ++n) {
        const Bounded right = rounded(y_dtype, expected[n]);
        ASSERT_NEAR(got[static_cast<size_t>(m * shape.K) + n], right.value, right.error)
            << "row " << m << " output " << n;
      }
    }
  }

  /// y of the layers' own run(), expert by expert.
  std::vector<float> by_layers(const ExpertsCase& shape, DType dtype, const Experts& experts,
                               const DeviceMatrix& x, const DeviceMatrix& logits) {
    const std::vector<float> values = x.get(stream_), logit_values = logits.get(stream_);
    const MoeRouting routing = route_tokens(f32_matrix(logit_values.data(), shape.M, shape.E),
                                            shape.per_token, shape.is_normalized);
    std::vector<float> slots;
    for (size_t e = 0; e < static_cast<size_t>(shape.E); ++e) {
      std::vector<float> rows;
      for (int64_t s = routing.expert_begin[e]; s < routing.expert_begin[e + 1]; ++s) {
        const auto first = values.begin() + routing.slot_row[static_cast<size_t>(s)] * shape.K;
        rows.insert(rows.end(), first, first + shape.K);
      }
      const int64_t count = routing.expert_begin[e + 1] - routing.expert_begin[e];
      if (count == 0) continue;
      DeviceMatrix in(dtype, count, shape.K);
      const DeviceMatrix wide(dtype, count, 2 * shape.F), activated(dtype, count, shape.F),
          out(dtype, count, shape.K);
      in.set(rows);
      experts.on_device.gate_up()[e].run(context_, in.matrix(), wide.matrix());
      gated_activation(context_, shape.activation, wide.matrix(), activated.matrix());
      experts.on_device.down()[e].run(context_, activated.matrix(), out.matrix());
      const std::vector<float> results = out.get(stream_);
      slots.insert(slots.end(), results.begin(), results.end());
    }
    std::vector<float> y(static_cast<size_t>(shape.M * shape.K));
    combine_slots(routing, f32_matrix(slots.data(), shape.M * shape.per_token, shape.K),
                  f32_matrix(y.data(), shape.M, shape.K));
    return y;
  }

  void expect_as_its_layers(const ExpertsCase& shape, DType dtype, const Experts& experts) {
    DeviceMatrix x(dtype, shape.M, shape.K), logits(DType::kF32, shape.M, shape.E);
    const DeviceMatrix y(DType::kF32, shape.M, shape.K);
    x.fill_normal(21);
    logits.fill_normal(22);
    run(experts, x, logits, y);
    const std::vector<float> got = y.get(stream_);
    const std::vector<float> expected = by_layers(shape, dtype, experts, x, logits);
    EXPECT_TRUE(y.guards_are_intact(stream_));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 1e-3 * (1 + std::fabs(expected[i]))) << i;
    }
  }

  CublasLtGemm lt_{context_, {}};
  std::mt19937 random_{17};
};

const ExpertsCase kCases[] = {{8, 2, 1, 64, 96},
                              {8, 2, 33, 72, 40},
                              {16, 8, 5, 130, 65, true, false},
                              {128, 8, 70, 48, 24},
                              {4, 1, 300, 64, 40, true, true, Activation::kGeluTanh},
                              {3, 3, 17, 33, 31, false, true, Activation::kGeluErf, true},
                              {2, 1, 90, 64, 72, true, true, Activation::kSilu, true},
                              {1, 1, 3, 16, 8}};

TEST_F(ExpertsGpuTest, GroupedAgreesWithTheDefinition) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const ExpertsCase& shape : kCases) {
      const Experts experts = dense_experts(shape, dtype);
      EXPECT_TRUE(experts.on_device.is_capturable());
      EXPECT_THAT(experts.on_device.describe(), testing::HasSubstr("grouped: all experts"));
      expect_right(shape, dtype, experts, dtype, DType::kF32);
      expect_right(shape, dtype, experts, DType::kF32, dtype);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ExpertsGpuTest, InF32TheyRunOneAfterTheOther) {
  for (const ExpertsCase& shape : kCases) {
    const Experts experts = dense_experts(shape, DType::kF32);
    EXPECT_FALSE(experts.on_device.is_capturable());
    EXPECT_THAT(experts.on_device.describe(),
                testing::AllOf(testing::HasSubstr("one after the other, with a wait"),
                               testing::HasSubstr("activations are f32")));
    expect_right(shape, DType::kF32, experts, DType::kF32, DType::kF32);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ExpertsGpuTest, DecodedWeightsAreGrouped) {
  const ExpertsCase shape = {6, 2, 40, 96, 64};
  const Part joined = {{1, 128, 96, false}, PackedLayout::kU4Quad, 32};
  const Experts experts = packed_experts(shape, DType::kBf16, {joined});
  EXPECT_TRUE(experts.on_device.is_capturable()) << experts.on_device.describe();
  expect_right(shape, DType::kBf16, experts, DType::kBf16, DType::kF32);
}

/// Gate and up that could not be joined, since each has an order of inputs of its own.
TEST_F(ExpertsGpuTest, TwoPartsOfALayerAreGrouped) {
  const ExpertsCase shape = {5, 2, 40, 96, 64};
  const Part part = {{1, 64, 96, false}, PackedLayout::kU4Quad, 32, ZeroKind::kPoint, true};
  const Experts experts = packed_experts(shape, DType::kBf16, {part, part});
  EXPECT_TRUE(experts.on_device.is_capturable()) << experts.on_device.describe();
  expect_right(shape, DType::kBf16, experts, DType::kBf16, DType::kF32);
}

TEST_F(ExpertsGpuTest, InputsThatAllExpertsRoundAlikeAreGrouped) {
  const ExpertsCase shape = {5, 2, 40, 256, 128};
  const Part part = {
      {1, 256, 256, false},          PackedLayout::kU4Quad, 32, ZeroKind::kPoint, false,
      ActivationQuant::kE4m3Group128};
  const Experts experts = packed_experts(shape, DType::kBf16, {part});
  EXPECT_TRUE(experts.on_device.is_capturable()) << experts.on_device.describe();
  expect_right(shape, DType::kBf16, experts, DType::kBf16, DType::kF32);
}

TEST_F(ExpertsGpuTest, CodesRunOneAfterTheOther) {
  const ExpertsCase shape = {6, 2, 40, 96, 64};
  const Part part = {{1, 128, 96, false},      PackedLayout::kU8Quad, 96, ZeroKind::kPoint, false,
                     ActivationQuant::kS8Token};
  const Experts experts = packed_experts(shape, DType::kBf16, {part});
  EXPECT_FALSE(experts.on_device.is_capturable());
  EXPECT_THAT(experts.on_device.describe(),
              testing::HasSubstr("weights of expert 0 are i8, activations bf16"));
  expect_as_its_layers(shape, DType::kBf16, experts);
}

TEST_F(ExpertsGpuTest, ScalesOfTheirOwnForInputsRunOneAfterTheOther) {
  const ExpertsCase shape = {4, 2, 20, 96, 64};
  const Part part = {{1, 128, 96, false},       PackedLayout::kU4Quad, 32, ZeroKind::kPoint, false,
                     ActivationQuant::kS8Static};
  const Experts experts = packed_experts(shape, DType::kBf16, {part}, true);
  EXPECT_FALSE(experts.on_device.is_capturable());
  EXPECT_THAT(experts.on_device.describe(),
              testing::HasSubstr("expert 1 rounds its inputs otherwise than expert 0"));
  expect_as_its_layers(shape, DType::kBf16, experts);
}

TEST_F(ExpertsGpuTest, ARowsBitsDoNotDependOnTheBatch) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    // The batch takes the wide tiles, rows alone the narrow ones.
    const ExpertsCase shape = {4, 2, 300, 128, 200};
    const Experts experts = dense_experts(shape, dtype);
    DeviceMatrix x(dtype, shape.M, shape.K), logits(DType::kF32, shape.M, shape.E);
    const DeviceMatrix y(dtype, shape.M, shape.K);
    x.fill_normal(1);
    logits.fill_normal(2);
    run(experts, x, logits, y);
    const std::vector<float> all = y.get(stream_);
    for (const int64_t m : {0, 1, 77, 299}) {
      const DeviceMatrix alone(dtype, 1, shape.K);
      experts.on_device.run(context_, x.matrix().rows(m, m + 1), logits.matrix().rows(m, m + 1),
                            alone.matrix());
      const std::vector<float> got = alone.get(stream_);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + m * shape.K))
          << name_of(dtype) << " row " << m;
    }
  }
}

TEST_F(ExpertsGpuTest, AGraphRunsWithAnotherRouting) {
  for (const int64_t M : {1, 5, 200}) {
    const ExpertsCase shape = {8, 2, M, 64, 48};
    const Experts experts = dense_experts(shape, DType::kBf16);
    DeviceMatrix x(DType::kBf16, M, shape.K), logits(DType::kF32, M, shape.E);
    const DeviceMatrix y(DType::kF32, M, shape.K), expected(DType::kF32, M, shape.K);
    x.fill_normal(1);
    logits.fill_normal(2);
    const CudaGraph graph = CudaGraph::capture(stream_, [&] { run(experts, x, logits, y); });
    for (uint32_t seed = 3; seed < 6; ++seed) {
      x.fill_normal(seed);
      logits.fill_normal(seed + 10, 3.0f);
      graph.launch(stream_);
      stream_.synchronize();
      run(experts, x, logits, expected);
      EXPECT_EQ(y.get(stream_), expected.get(stream_)) << "M = " << M << ", seed " << seed;
    }
  }
}

TEST_F(ExpertsGpuTest, WorkspaceIsWhatItSays) {
  const ExpertsCase shape = {6, 2, 0, 130, 65};
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    const Experts experts = dense_experts(shape, dtype);
    for (const int64_t M : {1, 33, 200}) {
      DeviceArena small(experts.on_device.workspace_bytes(M), "a test's workspace");
      const CudaContext context = {device_, stream_, small};
      DeviceMatrix x(DType::kF32, M, shape.K), logits(DType::kF32, M, shape.E);
      const DeviceMatrix y(DType::kF32, M, shape.K);
      x.fill_normal(1);
      // All rows to the same two experts: the most that one expert can get.
      std::vector<float> values(static_cast<size_t>(M * shape.E), 0.0f);
      for (int64_t m = 0; m < M; ++m) {
        values[static_cast<size_t>(m * shape.E + 1)] = 4;
        values[static_cast<size_t>(m * shape.E + 4)] = 5;
      }
      logits.set(values);
      experts.on_device.run(context, x.matrix(), logits.matrix(), y.matrix());
      EXPECT_FALSE(std::isnan(y.get(stream_).back()));
    }
  }
}

TEST_F(ExpertsGpuTest, NoRowsAreNothingToDo) {
  const ExpertsCase shape = {2, 1, 0, 16, 8};
  const Experts experts = dense_experts(shape, DType::kF16);
  const DeviceMatrix x(DType::kF16, 0, 16), logits(DType::kF32, 0, 2), y(DType::kF16, 0, 16);
  run(experts, x, logits, y);
  EXPECT_EQ(experts.on_device.workspace_bytes(0), 0u);
}

TEST_F(ExpertsGpuTest, RejectsMoreExpertsThanItHasBitsFor) {
  EXPECT_THAT(
      [&] {
        CudaExperts(context_, {}, std::vector<CudaLinear>(1025), std::vector<CudaLinear>(1025));
      },
      testing::ThrowsMessage<UnsupportedError>(testing::HasSubstr(
          "experts on the GPU: expected at most 1024, got 1025. Run the model on the CPU.")));
}

/// The ranks of expert parallelism: what each adds for its experts is all.
TEST_F(ExpertsGpuTest, PartsAddUpToAllExperts) {
  const ExpertsCase shape = {.E = 6, .per_token = 2, .M = 33, .K = 64, .F = 96, .has_bias = true};
  for (const DType dtype : {DType::kF16, DType::kF32}) {  // grouped, and one by one
    DeviceMatrix x(dtype, shape.M, shape.K), logits(DType::kF32, shape.M, shape.E);
    x.fill_normal(11);
    logits.fill_normal(12, 2.0f);
    const auto outputs_of = [&](int64_t begin, int64_t end) {
      random_.seed(5);
      const Experts experts = dense_experts(shape, dtype, begin, end);
      const DeviceMatrix y(DType::kF32, shape.M, shape.K);
      run(experts, x, logits, y);
      EXPECT_TRUE(y.guards_are_intact(stream_));
      return y.get(stream_);
    };
    const std::vector<float> all = outputs_of(0, shape.E);
    std::vector<float> sum(all.size());
    for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, 4}, std::pair{4, 6}}) {
      const std::vector<float> part = outputs_of(begin, end);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(sum[i], all[i], 1e-5 * (1 + std::fabs(all[i]))) << name_of(dtype) << " " << i;
    }
  }
}

}  // namespace
}  // namespace halley::cuda
