#include "halley/quant/base/self_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/kernels/gemm/activation_quant.h"

namespace halley {
namespace {

constexpr int64_t kNumRows = 2;
// Room for the last bits where a sum is nearly zero.
constexpr double kAbsoluteErrorMax = 1e-30;

/// Numbers that every rounding of activations takes as they are: integers of at most 16, each row
/// with one of the largest magnitude of a code; bf16 has them too. So an error is the kernel's own.
std::vector<float> make_inputs(const PackedWeight& weight) {
  std::mt19937 random(static_cast<uint32_t>(weight.N * 31 + weight.K));
  std::uniform_int_distribution<int> small(-16, 16);
  std::vector<float> x(static_cast<size_t>(kNumRows * weight.num_inputs()));
  for (float& value : x) value = static_cast<float>(small(random));
  return x;
}

/// The value that y[n] must have, and the sum of the magnitudes that were added.
struct Expected {
  double y = 0;
  double magnitude = 0;
};

Expected multiply(std::span<const float> x, const StoredOutput& output) {
  Expected expected;
  for (size_t k = 0; k < x.size(); ++k) {
    expected.y += double{x[k]} * output.w[k];
    expected.magnitude +=
        std::fabs(double{x[k]}) * (std::fabs(output.w[k]) + output.zero_magnitude);
  }
  return expected;
}

}  // namespace

void self_check(ExecContext& context, const std::string& layer, const PackedWeight& weight,
                const GemmKernel& kernel, std::span<const StoredOutput> outputs) {
  if (weight.N == 0 || weight.K == 0) return;
  const auto num_inputs = static_cast<size_t>(weight.num_inputs());
  const std::vector<float> x = make_inputs(weight);
  std::vector<float> y(static_cast<size_t>(kNumRows * weight.N));
  kernel.launch(context, weight, nullptr, f32_matrix(x.data(), kNumRows, weight.num_inputs()),
                f32_matrix(y.data(), kNumRows, weight.N));
  std::vector<float> rounded(x.size());
  for (size_t m = 0; m < kNumRows; ++m) {
    round_activations(params_of(weight, kernel.precision),
                      std::span(x).subspan(m * num_inputs, num_inputs),
                      rounded.data() + m * num_inputs);
  }
  for (const StoredOutput& output : outputs) {
    for (size_t m = 0; m < kNumRows; ++m) {
      const auto row = std::span<const float>(rounded).subspan(m * num_inputs, num_inputs);
      const Expected expected = multiply(row, output);
      const double got = y[m * static_cast<size_t>(weight.N) + static_cast<size_t>(output.index)];
      const double error_max = kernel.error_max * expected.magnitude + kAbsoluteErrorMax;
      // Not written as "greater", so that a NaN fails.
      if (std::fabs(got - expected.y) <= error_max) continue;
      throw DeviceError(str("self-check of layer ", quote(layer), ": kernel ", kernel.name,
                            ", row ", m, ", output ", output.index, ": expected ", expected.y,
                            " within ", error_max, ", got ", got,
                            ". Report it, with the processor's name; HALLEY_KERNEL picks another "
                            "kernel."));
    }
  }
}

}  // namespace halley
