// A GEMM with a 4-bit weight by libhalley_kernels, from plain C++:
//   g++ -std=c++20 gemm.cc -I<prefix>/include -L<prefix>/lib -lhalley_kernels -lcudart
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

#include <cuda_runtime_api.h>

#include "device_array.h"
#include "halley_kernels_cpp.h"

namespace {

/// 4-bit quantized values with per-channel scales and zero points.
struct Weight {
  Weight(int64_t num_outputs, int64_t num_inputs) : N(num_outputs), K(num_inputs) {
    std::mt19937 random(1);
    for (int64_t i = 0; i < N * K; ++i) codes.push_back(static_cast<uint8_t>(random() % 16));
    for (int64_t n = 0; n < N; ++n) {
      scales.push_back(0.01f + 0.001f * static_cast<float>(random() % 8));
      zeros.push_back(static_cast<float>(6 + random() % 4));
    }
  }
  double at(int64_t n, int64_t k) const {
    const auto output = static_cast<size_t>(n);
    return scales[output] * (codes[static_cast<size_t>(n * K + k)] - double{zeros[output]});
  }

  int64_t N, K;
  std::vector<uint8_t> codes;
  std::vector<float> scales, zeros;
};

/// The largest error of y relative to the sum of |x w|, with which rounding errors grow.
double largest_error(const Weight& weight, const std::vector<float>& x, const std::vector<float>& y,
                     int64_t M) {
  double largest = 0;
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < weight.N; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < weight.K; ++k) {
        const double term = x[static_cast<size_t>(m * weight.K + k)] * weight.at(n, k);
        sum += term;
        magnitude += std::abs(term);
      }
      const double error = std::abs(y[static_cast<size_t>(m * weight.N + n)] - sum);
      largest = std::max(largest, error / magnitude);
    }
  }
  return largest;
}

int run() {
  constexpr int64_t M = 5, N = 384, K = 1024;
  const Weight weight(N, K);
  std::vector<float> x;
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < M * K; ++i) x.push_back(normal(random));

  const halley_kernels::Context context(0);
  const halley_kernels::Weight packed(context, {.kind = HALLEY_KERNELS_W4A8,
                                                .N = N,
                                                .K = K,
                                                .group_size = K,
                                                .codes = weight.codes.data(),
                                                .scales = weight.scales.data(),
                                                .zeros = weight.zeros.data(),
                                                .group_scales = nullptr});
  const DeviceArray<float> x_device(x);
  const DeviceArray<int8_t> codes(static_cast<size_t>(M * K));
  const DeviceArray<float> scales(static_cast<size_t>(M)), y_device(static_cast<size_t>(M * N));
  const DeviceArray<int32_t> sums(static_cast<size_t>(M));
  const halley_kernels_matrix x_codes = {codes.data, HALLEY_KERNELS_S8, M, K, K};
  context.quantize_rows({x_device.data, HALLEY_KERNELS_F32, M, K, K}, x_codes, scales.data,
                        sums.data, nullptr);
  context.gemm(packed, {.x = x_codes, .scales = scales.data, .sums = sums.data, .bias = nullptr},
               {y_device.data, HALLEY_KERNELS_F32, M, N, N}, nullptr);
  std::vector<float> y(static_cast<size_t>(M * N));
  check(cudaMemcpy(y.data(), y_device.data, y.size() * sizeof(float), cudaMemcpyDeviceToHost));

  const double error = largest_error(weight, x, y, M);
  std::printf("%s\nlargest error %.2g of the terms' magnitudes\n",
              context.describe(packed, M).c_str(), error);
  // Inputs are quantized to 255 steps.
  return error < 0.01 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gemm: %s\n", error.what());
    return 2;
  }
}
