// A W4Ax GEMM by libhalley_kernels, from plain C++: 4-bit weights, activations of which some blocks
// have 8 bits and the others 4:
//   g++ -std=c++20 w4ax.cc -I<prefix>/include -L<prefix>/lib -lhalley_kernels -lcudart
#include <algorithm>
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

constexpr int64_t kBlockInputs = 128;

/// 4-bit quantized values with a scale for each block of an output's inputs.
struct Weight {
  Weight(int64_t num_outputs, int64_t num_inputs)
      : N(num_outputs), K(num_inputs), num_blocks((K + kBlockInputs - 1) / kBlockInputs) {
    std::mt19937 random(1);
    for (int64_t i = 0; i < N * K; ++i) codes.push_back(static_cast<uint8_t>(random() % 16));
    for (int64_t i = 0; i < N * num_blocks; ++i) {
      scales.push_back(static_cast<float>(1 + random() % 8) / 1024);
    }
  }
  double at(int64_t n, int64_t k) const {
    return double{scales[static_cast<size_t>(n * num_blocks + k / kBlockInputs)]} *
           (codes[static_cast<size_t>(n * K + k)] - 8);
  }

  int64_t N, K, num_blocks;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

/// Inputs as FMPQ orders them: the outliers are in the first block, which gets 8 bits.
std::vector<float> make_inputs(int64_t M, int64_t K) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (int64_t i = 0; i < M * K; ++i) x.push_back(normal(random) * (i % K < 16 ? 20.0f : 1.0f));
  return x;
}

/// The largest error of y relative to the deviation of a sum of K terms.
double largest_error(const Weight& weight, const std::vector<float>& x, const std::vector<float>& y,
                     int64_t M) {
  double largest = 0;
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < weight.N; ++n) {
      double sum = 0, squares = 0;
      for (int64_t k = 0; k < weight.K; ++k) {
        const double term = x[static_cast<size_t>(m * weight.K + k)] * weight.at(n, k);
        sum += term;
        squares += term * term;
      }
      const double error = std::abs(y[static_cast<size_t>(m * weight.N + n)] - sum);
      largest = std::max(largest, error / std::sqrt(squares));
    }
  }
  return largest;
}

int run() {
  constexpr int64_t M = 5, N = 384, K = 1024, kPitch = 128;
  const Weight weight(N, K);
  const std::vector<float> x = make_inputs(M, K);

  const halley_kernels::Context context(0);
  const halley_kernels::BlockWeight packed(context, N, K, weight.codes.data(),
                                           weight.scales.data());
  const DeviceArray<float> x_device(x), y_device(static_cast<size_t>(M * N));
  const DeviceArray<int8_t> x_codes(static_cast<size_t>(M * K));
  const DeviceArray<float> scales(static_cast<size_t>(weight.num_blocks * kPitch));
  const halley_kernels_block_input input = {.x = {x_codes.data, HALLEY_KERNELS_S8, M, K, K},
                                            .scales = scales.data,
                                            .scales_pitch = kPitch,
                                            .num_s8_inputs = kBlockInputs,
                                            .bias = nullptr};
  context.quantize_blocks({x_device.data, HALLEY_KERNELS_F32, M, K, K}, 1.0f, input, nullptr);
  context.block_gemm(packed, input, {y_device.data, HALLEY_KERNELS_F32, M, N, N}, nullptr);
  std::vector<float> y(static_cast<size_t>(M * N));
  check(cudaMemcpy(y.data(), y_device.data, y.size() * sizeof(float), cudaMemcpyDeviceToHost));

  const double error = largest_error(weight, x, y, M);
  std::printf("W4Ax, %lld of %lld inputs in 8 bits: largest error %.2g deviations\n",
              static_cast<long long>(kBlockInputs), static_cast<long long>(K), error);
  // Most inputs are rounded to 15 steps.
  return error < 0.5 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "w4ax: %s\n", error.what());
    return 2;
  }
}
