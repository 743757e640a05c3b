#include "halley/models/cuda/cuda_self_check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/element.h"
#include "halley/core/float16.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/kernels/gemm/activation_quant.h"

namespace halley::cuda {
namespace {

using Section = CudaLinear::Section;

constexpr int64_t kNumRows = 2;
// Tolerance of f32 accumulation; FP8 MMAs accumulate with 14 bits. Both are far below the error of
// a wrong index.
constexpr double kSumError = 1e-3;
constexpr double kFp8SumError = 1e-2;
// Absolute tolerance where the reference is nearly zero.
constexpr double kAbsoluteError = 1e-5;

size_t bytes_of(DType dtype) { return static_cast<size_t>(bits_of(dtype)) / 8; }

/// `count` elements at `from`, as f32.
std::vector<float> fetch(const CudaStream& stream, DType dtype, const std::byte* from,
                         size_t count) {
  std::vector<std::byte> bytes(count * bytes_of(dtype));
  check_cuda(
      cudaMemcpyAsync(bytes.data(), from, bytes.size(), cudaMemcpyDeviceToHost, stream.get()),
      "copy of what a self-check compares");
  stream.synchronize();
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = element_to_f32(dtype, bytes.data() + i * bytes_of(dtype));
  }
  return values;
}

int64_t stride_of(DType dtype, int64_t num_cols) {
  return round_up<int64_t>(num_cols, 128 / bits_of(dtype));
}

Matrix take_rows(const CudaContext& context, DType dtype, int64_t num_cols) {
  const int64_t stride = stride_of(dtype, num_cols);
  return {context.workspace.take(static_cast<size_t>(kNumRows * stride) * bytes_of(dtype)), dtype,
          kNumRows, num_cols, stride};
}

/// Multiples of 1/16 up to 1, which all types have.
std::vector<float> make_inputs(int64_t num_inputs) {
  std::mt19937 random(static_cast<uint32_t>(num_inputs));
  std::uniform_int_distribution<int> small(-16, 16);
  std::vector<float> x(static_cast<size_t>(kNumRows * num_inputs));
  for (float& value : x) value = static_cast<float>(small(random)) / 16.0f;
  return x;
}

void upload(const CudaStream& stream, const std::vector<float>& values, Matrix rows) {
  const auto K = static_cast<size_t>(rows.num_cols);
  for (int64_t m = 0; m < rows.num_rows; ++m) {
    std::vector<uint16_t> bits(K);
    for (size_t k = 0; k < K; ++k) {
      const float value = values[static_cast<size_t>(m) * K + k];
      bits[k] = rows.dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    }
    check_cuda(cudaMemcpyAsync(rows.row<uint16_t>(m), bits.data(), K * sizeof(uint16_t),
                               cudaMemcpyHostToDevice, stream.get()),
               "copy of a self-check's inputs");
    stream.synchronize();
  }
}

/// All rows, each as the section's weight has its inputs.
std::vector<float> round_inputs(const QuantParams& quant, const std::vector<float>& x, int64_t K) {
  std::vector<float> rounded(x.size());
  for (int64_t m = 0; m < kNumRows; ++m) {
    const auto begin = static_cast<size_t>(m * K);
    round_activations(quant, std::span(x).subspan(begin, static_cast<size_t>(K)),
                      rounded.data() + begin);
  }
  return rounded;
}

QuantParams quant_of(const CudaStream& stream, const Section& section) {
  QuantParams quant;
  quant.activation = section.activation.kind;
  quant.activation_scale = section.activation.scale;
  quant.num_s8_inputs = section.activation.num_s8_inputs;
  quant.s4_clip = section.activation.s4_clip;
  if (section.activation.input_perm != nullptr) {
    quant.input_perm.resize(static_cast<size_t>(section.K));
    check_cuda(cudaMemcpyAsync(quant.input_perm.data(), section.activation.input_perm,
                               quant.input_perm.size() * sizeof(int32_t), cudaMemcpyDeviceToHost,
                               stream.get()),
               "copy of an order of inputs");
    stream.synchronize();
  }
  return quant;
}

double half_step(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-11;
  return dtype == DType::kBf16 ? 0x1p-8 : 0x1p-24;
}

/// The value that an output must have, and how far from it the layer's may be.
struct Expected {
  double y = 0;
  double error_max = 0;
};

/// `sum_error`: of the kernel, relative to the sum of magnitudes. Inputs, scales and weights may
/// each have been rounded to the activations' type. These errors have either sign, so that their
/// sum stays within some standard deviations; it never exceeds half a step of each term.
Expected multiply(std::span<const float> x, const StoredOutput& output, double sum_error,
                  double number_half_step) {
  constexpr double kRoundings = 3, kDeviations = 8;
  Expected expected = {.y = output.bias};
  double terms = std::fabs(output.bias), magnitude = terms, squares = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    const double term = double{x[k]} * output.w[k];
    expected.y += term;
    terms += std::fabs(term);
    squares += term * term;
    magnitude += std::fabs(double{x[k]}) * (std::fabs(output.w[k]) + output.zero_magnitude);
  }
  const double rounding =
      std::min(terms, kDeviations * std::sqrt(squares) + std::fabs(output.bias));
  expected.error_max =
      sum_error * magnitude + kRoundings * number_half_step * rounding + kAbsoluteError;
  return expected;
}

}  // namespace

size_t self_check_bytes(const CudaLinear& linear) {
  const auto rows_bytes = [](int64_t num_cols) {  // of f32, the widest type
    return round_up(
        static_cast<size_t>(kNumRows * stride_of(DType::kF32, num_cols)) * sizeof(float),
        DeviceArena::kAlignment);
  };
  return rows_bytes(linear.num_inputs()) + rows_bytes(linear.out_features()) +
         linear.workspace_bytes(kNumRows);
}

void self_check(const CudaContext& context, const CudaLinear& linear, DType y_dtype,
                const StoredSections& stored) {
  const int64_t K = linear.num_inputs();
  if (K == 0 || linear.out_features() == 0) return;
  HALLEY_CHECK(stored.size() == linear.sections().size(), stored.size(), linear.sections().size());
  const size_t mark = context.workspace.mark();
  const std::vector<float> x = make_inputs(K);
  const Matrix x_rows = take_rows(context, linear.dtype(), K);
  const Matrix y_rows = take_rows(context, y_dtype, linear.out_features());
  upload(context.stream, x, x_rows);
  linear.run(context, x_rows, y_rows);
  int64_t begin = 0;
  for (size_t i = 0; i < stored.size(); ++i) {
    const Section& section = linear.sections()[i];
    const bool is_fp8 = section.weight->input(Precision::kFull).dtype == DType::kF8E4M3;
    const std::vector<float> rounded = round_inputs(quant_of(context.stream, section), x, K);
    for (const StoredOutput& output : stored[i]) {
      for (int64_t m = 0; m < kNumRows; ++m) {
        const auto row =
            std::span(rounded).subspan(static_cast<size_t>(m * K), static_cast<size_t>(K));
        const Expected expected =
            multiply(row, output, is_fp8 ? kFp8SumError : kSumError, half_step(linear.dtype()));
        const int64_t n = begin + output.index;
        const std::byte* place =
            y_rows.data + static_cast<size_t>(m * y_rows.row_stride + n) * bytes_of(y_dtype);
        const double got = fetch(context.stream, y_dtype, place, 1)[0];
        const double error_max = expected.error_max + half_step(y_dtype) * std::fabs(expected.y);
        // Not written as "greater", so that a NaN fails.
        if (std::fabs(got - expected.y) <= error_max) continue;
        throw DeviceError(str("self-check on the GPU: row ", m, ", output ", n, ": expected ",
                              expected.y, " within ", error_max, ", got ", got, " of ",
                              linear.describe(),
                              ". Use --device cpu, and report it: the kernel or the packing of its"
                              " weight is wrong."));
      }
    }
    begin += section.N;
  }
  context.workspace.release(mark);
}

void CudaSelfCheck::check(const CudaLinear& linear, DType y_dtype, const StoredSections& stored) {
  const auto start = std::chrono::steady_clock::now();
  const size_t num_bytes = self_check_bytes(linear);
  if (!arena_ || arena_->num_bytes() < num_bytes) {
    arena_.reset();
    arena_.emplace(num_bytes, "the self-check");
  }
  self_check({context_.device, context_.stream, *arena_}, linear, y_dtype, stored);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  seconds_ += seconds.count();
}

}  // namespace halley::cuda
