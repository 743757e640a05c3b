// For tests of a layer's experts on the GPU: experts with known weights, their outputs in f64, and
// those of their layers one by one.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/experts/cuda_experts.h"
#include "halley/cuda/ops/activation.h"
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

// f32 sums of the tensor cores, in parts of the sum of magnitudes.
inline constexpr double kSumError = 5e-5;
// |f'| of the activations is at most this.
inline constexpr double kSlopeMax = 1.15;

struct ExpertsCase {
  int64_t E = 0, per_token = 0, M = 0;
  int64_t K = 0, F = 0;
  bool is_gated = true;
  bool is_normalized = true;
  Activation activation = Activation::kSilu;
  bool has_bias = false;
};

inline std::ostream& operator<<(std::ostream& out, const ExpertsCase& shape) {
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

inline Bounded output_of(const HostLayer& layer, int64_t n, const std::vector<Bounded>& x) {
  const double bias = layer.bias.empty() ? 0 : layer.bias[static_cast<size_t>(n)];
  Bounded sum = {bias, kSumError * std::fabs(bias)};
  for (size_t k = 0; k < x.size(); ++k) {
    const double w = layer.w[static_cast<size_t>(n * layer.K) + k];
    sum.value += w * x[k].value;
    sum.error += std::fabs(w) * (x[k].error + kSumError * std::fabs(x[k].value));
  }
  return sum;
}

inline Bounded rounded(DType dtype, Bounded x) {
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

  ExpertsSpec spec_of(const ExpertsCase& shape, DType dtype) const {
    return {.num_experts_per_token = shape.per_token,
            .is_normalized = shape.is_normalized,
            .activation = shape.activation,
            .is_gated = shape.is_gated,
            .activation_dtype = dtype,
            .is_batch_invariant = is_batch_invariant_};
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
        const float size = part.layout == PackedLayout::kU8Quad ? 1024 : 64;
        const float zero = part.layout == PackedLayout::kF8E4M3Quad ? 0.0f : 8.0f;
        groups[i] = i / kPanelRows % 2 == 0 ? std::fabs(groups[i]) / size : zero;
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

  /// y of run(), and of by_layers().
  std::pair<std::vector<float>, std::vector<float>> both_outputs(const ExpertsCase& shape,
                                                                 DType dtype,
                                                                 const Experts& experts) {
    DeviceMatrix x(dtype, shape.M, shape.K), logits(DType::kF32, shape.M, shape.E);
    const DeviceMatrix y(DType::kF32, shape.M, shape.K);
    x.fill_normal(21);
    logits.fill_normal(22);
    run(experts, x, logits, y);
    std::vector<float> got = y.get(stream_);
    EXPECT_TRUE(y.guards_are_intact(stream_));
    return {std::move(got), by_layers(shape, dtype, experts, x, logits)};
  }

  /// Where inputs are quantized between the two GEMMs, a value near the middle of two may become
  /// either: the layers round gate and up to 16 bits first.
  void expect_near_its_layers(const ExpertsCase& shape, DType dtype, const Experts& experts) {
    const auto [got, expected] = both_outputs(shape, dtype, experts);
    // A step of s8 is 1/127 of a row's largest value, of e4m3 1/8 of a value.
    const bool is_e4m3 = experts.down[0].quant.activation == ActivationQuant::kE4m3Token;
    expect_near(got, expected, is_e4m3 ? 0.03 : 0.015, is_e4m3 ? 0.09 : 0.05);
  }

  /// Errors in parts of the root of the mean square, and of the largest value.
  static void expect_near(const std::vector<float>& got, const std::vector<float>& expected,
                          double of_rms, double of_most) {
    double squares = 0, errors = 0, most = 0, worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = std::fabs(double{got[i]} - expected[i]);
      squares += double{expected[i]} * expected[i];
      errors += error * error;
      most = std::max(most, std::fabs(double{expected[i]}));
      worst = std::max(worst, error);
    }
    EXPECT_LT(std::sqrt(errors), of_rms * std::sqrt(squares));
    EXPECT_LT(worst, of_most * most);
  }

  void expect_as_its_layers(const ExpertsCase& shape, DType dtype, const Experts& experts) {
    const auto [got, expected] = both_outputs(shape, dtype, experts);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 1e-3 * (1 + std::fabs(expected[i]))) << i;
    }
  }

  bool is_batch_invariant_ = false;
  CublasLtGemm lt_{context_, {}};
  std::mt19937 random_{17};
};

}  // namespace halley::cuda
