// The MLP of a mixture of experts by libhalley_kernels, from plain C++: FP8 weights, the GEMMs of
// all experts in one launch each, tokens routed by arrays on the GPU:
//   g++ -std=c++20 experts.cc -I<prefix>/include -L<prefix>/lib -lhalley_kernels -lcudart
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <vector>

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include "device_array.h"
#include "halley_kernels_cpp.h"

namespace {

constexpr int64_t kExperts = 4, kTokens = 6, kHidden = 256, kInner = 128;
constexpr float kScale = 1.0f / 64;

/// [N, K] of e4m3 with one scale.
struct Weight {
  Weight(int64_t num_outputs, int64_t num_inputs, std::mt19937& random)
      : N(num_outputs), K(num_inputs), scales(static_cast<size_t>(N), kScale) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < N * K; ++i) codes.push_back(__nv_fp8_e4m3(normal(random)).__x);
  }
  double at(int64_t n, int64_t k) const {
    __nv_fp8_e4m3 value;
    value.__x = codes[static_cast<size_t>(n * K + k)];
    return static_cast<float>(value) * double{kScale};
  }
  halley_kernels::Weight packed(const halley_kernels::Context& context) const {
    return {context,
            {.kind = HALLEY_KERNELS_FP8,
             .N = N,
             .K = K,
             .group_size = K,
             .codes = codes.data(),
             .scales = scales.data(),
             .zeros = nullptr,
             .group_scales = nullptr}};
  }
  double product(int64_t n, const double* x) const {
    double sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += at(n, k) * x[k];
    return sum;
  }

  int64_t N, K;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

/// Gate and other factor in one weight [2 * inner, hidden], and the way back.
struct Expert {
  explicit Expert(std::mt19937& random)
      : up(2 * kInner, kHidden, random), down(kHidden, kInner, random) {}
  /// y += factor * down(silu(gate x) * (other x)), in f64.
  void add(const double* x, double factor, double* y) const {
    std::vector<double> inner;
    for (int64_t n = 0; n < kInner; ++n) {
      const double gate = up.product(n, x);
      inner.push_back(gate / (1 + std::exp(-gate)) * up.product(kInner + n, x));
    }
    for (int64_t n = 0; n < kHidden; ++n) y[n] += factor * down.product(n, inner.data());
  }
  Weight up, down;
};

/// The weights of one layer in all experts, packed and joined.
struct Layer {
  Layer(const halley_kernels::Context& context, const std::vector<const Weight*>& plain,
        bool is_gated)
      : weights(pack(context, plain)), joined(context, pointers(), is_gated) {}

  static std::vector<halley_kernels::Weight> pack(const halley_kernels::Context& context,
                                                  const std::vector<const Weight*>& plain) {
    std::vector<halley_kernels::Weight> packed;
    for (const Weight* weight : plain) packed.push_back(weight->packed(context));
    return packed;
  }
  std::vector<const halley_kernels::Weight*> pointers() const {
    std::vector<const halley_kernels::Weight*> all;
    for (const halley_kernels::Weight& weight : weights) all.push_back(&weight);
    return all;
  }

  std::vector<halley_kernels::Weight> weights;
  halley_kernels::Experts joined;
};

/// Each token has two experts; slots are ordered by expert.
struct Routing {
  Routing() {
    begin.push_back(0);
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      for (int64_t token = 0; token < kTokens; ++token) {
        const bool is_chosen = token % kExperts == expert || (token * 3 + 1) % kExperts == expert;
        if (!is_chosen) continue;
        rows.push_back(static_cast<int32_t>(token));
        factors.push_back(token % kExperts == expert ? 0.75 : 0.25);
      }
      begin.push_back(static_cast<int32_t>(rows.size()));
    }
  }
  std::vector<int32_t> begin, rows;
  std::vector<double> factors;  // of slots
};

/// By the root of sums of squares.
double relative_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

int run() {
  std::mt19937 random(1);
  std::vector<Expert> experts;
  for (int64_t e = 0; e < kExperts; ++e) experts.emplace_back(random);
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (int64_t i = 0; i < kTokens * kHidden; ++i) x.push_back(normal(random));
  const Routing routing;
  const auto num_slots = static_cast<int64_t>(routing.rows.size());

  const halley_kernels::Context context(0);
  std::vector<const Weight*> ups, downs;
  for (const Expert& expert : experts) {
    ups.push_back(&expert.up);
    downs.push_back(&expert.down);
  }
  const Layer up(context, ups, /*is_gated=*/true), down(context, downs, /*is_gated=*/false);
  const DeviceArray<float> x_device(x), scales(static_cast<size_t>(kTokens)),
      inner_scales(static_cast<size_t>(num_slots));
  const DeviceArray<int32_t> begin(routing.begin), rows(routing.rows);
  const DeviceArray<uint8_t> x_codes(x.size()),
      inner_codes(static_cast<size_t>(num_slots * kInner));
  const DeviceArray<__half> inner(static_cast<size_t>(num_slots * kInner)),
      y(static_cast<size_t>(num_slots * kHidden));
  const halley_kernels_matrix quantized = {x_codes.data, HALLEY_KERNELS_E4M3, kTokens, kHidden,
                                           kHidden};
  const halley_kernels_matrix middle = {inner.data, HALLEY_KERNELS_F16, num_slots, kInner, kInner};
  const halley_kernels_matrix quantized_middle = {inner_codes.data, HALLEY_KERNELS_E4M3, num_slots,
                                                  kInner, kInner};
  context.quantize(up.weights[0], {x_device.data, HALLEY_KERNELS_F32, kTokens, kHidden, kHidden},
                   {.x = quantized, .scales = scales.data, .sums = nullptr}, nullptr);
  context.grouped_gemm(
      up.joined, {.x = quantized, .scales = scales.data, .sums = nullptr, .bias = nullptr},
      {.expert_begin = begin.data, .slot_rows = rows.data, .activation = HALLEY_KERNELS_SILU},
      middle, nullptr);
  context.quantize(down.weights[0], middle,
                   {.x = quantized_middle, .scales = inner_scales.data, .sums = nullptr}, nullptr);
  context.grouped_gemm(
      down.joined,
      {.x = quantized_middle, .scales = inner_scales.data, .sums = nullptr, .bias = nullptr},
      {.expert_begin = begin.data,
       .slot_rows = nullptr,
       .activation = HALLEY_KERNELS_NO_ACTIVATION},
      {y.data, HALLEY_KERNELS_F16, num_slots, kHidden, kHidden}, nullptr);
  std::vector<__half> of_slots(static_cast<size_t>(num_slots * kHidden));
  check(cudaMemcpy(of_slots.data(), y.data, of_slots.size() * sizeof(__half),
                   cudaMemcpyDeviceToHost));

  const std::vector<double> exact_x(x.begin(), x.end());
  std::vector<double> got(x.size()), expected(x.size());
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    const int64_t token = routing.rows[static_cast<size_t>(slot)];
    const double factor = routing.factors[static_cast<size_t>(slot)];
    const auto expert = std::upper_bound(routing.begin.begin(), routing.begin.end(), slot) -
                        routing.begin.begin() - 1;
    experts[static_cast<size_t>(expert)].add(&exact_x[static_cast<size_t>(token * kHidden)], factor,
                                             &expected[static_cast<size_t>(token * kHidden)]);
    for (int64_t n = 0; n < kHidden; ++n) {
      got[static_cast<size_t>(token * kHidden + n)] +=
          factor * __half2float(of_slots[static_cast<size_t>(slot * kHidden + n)]);
    }
  }
  const double relative = relative_error(got, expected);
  std::printf("%lld experts in FP8, %lld tokens: error %.2g of the result\n",
              static_cast<long long>(kExperts), static_cast<long long>(kTokens), relative);
  // Activations are rounded to three bits behind the first.
  return relative < 0.08 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "experts: %s\n", error.what());
    return 2;
  }
}
