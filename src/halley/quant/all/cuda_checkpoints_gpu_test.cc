// The golden checkpoint of every format, loaded onto the GPU, against what the CPU loads.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/core/thread_pool.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/weights/cuda_linear_plan.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/quant/all/formats.h"
#include "halley/quant/base/linear_loader.h"
#include "halley/quant/base/testing/golden_checkpoint.h"

namespace halley::cuda {
namespace {

/// Dequantized weights and inputs are rounded to f16 (2^-11 each); FP8 accumulators keep 14 bits
/// between steps.
constexpr double kErrorMax = 2 * 0x1p-11 + 2e-3;
constexpr int64_t kNumRows = 5;

struct Expected {
  double y = 0, magnitude = 0;
};

/// y[m, n] in f64 from the packed weights of the CPU.
std::vector<Expected> multiply(const LinearOp& op, const std::vector<float>& x) {
  const auto K = static_cast<size_t>(op.in_features());
  const auto N = static_cast<size_t>(op.out_features());
  std::vector<Expected> y(static_cast<size_t>(kNumRows) * N);
  std::vector<float> w(K), rounded(K);
  size_t output = 0;
  for (const LinearOp::Section& section : op.sections()) {
    for (int64_t n = 0; n < section.weight.N; ++n, ++output) {
      unpack_row(section.weight, n, w.data());
      for (size_t m = 0; m < static_cast<size_t>(kNumRows); ++m) {
        round_activations(section.weight.quant, std::span(x).subspan(m * K, K), rounded.data());
        Expected& at = y[m * N + output];
        at.y = op.bias().empty() ? 0.0 : double{op.bias()[output]};
        at.magnitude = std::fabs(at.y);
        for (size_t k = 0; k < K; ++k) {
          at.y += double{rounded[k]} * w[k];
          at.magnitude += std::fabs(double{rounded[k]} * w[k]);
        }
      }
    }
  }
  return y;
}

TEST(CudaCheckpoints, EveryGoldenLayerIsWhatTheCpuSays) {
  const CudaDeviceInfo device = use_cuda_device(0);
  const CudaStream stream;
  DeviceArena workspace(size_t{256} << 20, "a test's workspace");
  const CudaContext context = {device, stream, workspace};
  CublasLtGemm lt(context, {});
  ThreadPool pool(2);
  ExecContext host{pool};
  CudaWeightLoader loader(host, context, lt, DType::kF16);
  const auto dir = std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata" / "quantized";
  int num_layers = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const GoldenCheckpoint golden(entry.path().filename().string());
    const auto scheme = detect_quant_scheme(golden.quant, *golden.source);
    const KernelDemands demands;
    for (const Json& json : golden.expected.at("linears")) {
      const LinearSpec spec = linear_spec_of(json);
      const LinearOp op = load_linear(host, {*scheme, *golden.source, demands}, spec);
      const CudaLinear linear = loader.load(*scheme, *golden.source, spec);
      SCOPED_TRACE(linear.describe());
      DeviceMatrix x(DType::kF16, kNumRows, op.in_features());
      DeviceMatrix y(DType::kF32, kNumRows, op.out_features());
      x.fill_normal(static_cast<uint32_t>(++num_layers));
      linear.run(context, x.matrix(), y.matrix());
      const std::vector<float> got = y.get(stream);
      EXPECT_TRUE(y.guards_are_intact(stream));
      const std::vector<Expected> expected = multiply(op, x.get(stream));
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_LE(std::fabs(got[i] - expected[i].y), kErrorMax * expected[i].magnitude + 1e-6)
            << "element " << i << ": expected " << expected[i].y << ", got " << got[i];
      }
    }
  }
  EXPECT_GT(num_layers, 50);
}

/// The loader makes what a plan says, unless the data reject the planned form.
TEST(CudaCheckpoints, PlansAreWhatIsLoaded) {
  const CudaDeviceInfo device = use_cuda_device(0);
  const CudaStream stream;
  DeviceArena workspace(size_t{256} << 20, "a test's workspace");
  const CudaContext context = {device, stream, workspace};
  CublasLtGemm lt(context, {});
  ThreadPool pool(2);
  ExecContext host{pool};
  CudaWeightLoader loader(host, context, lt, DType::kF16);
  const auto dir = std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata" / "quantized";
  int num_equal = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const GoldenCheckpoint golden(entry.path().filename().string());
    const auto scheme = detect_quant_scheme(golden.quant, *golden.source);
    for (const Json& json : golden.expected.at("linears")) {
      const LinearSpec spec = linear_spec_of(json);
      const auto plans = plan_cuda_linear(*scheme, *golden.source, spec, DType::kF16);
      const CudaLinear linear = loader.load(*scheme, *golden.source, spec);
      ASSERT_EQ(plans.size(), linear.sections().size());
      for (size_t i = 0; i < plans.size(); ++i) {
        const CudaLinear::Section& section = linear.sections()[i];
        if (plans[i].form != section.form) continue;
        ++num_equal;
        // One scale of e4m3 for all outputs brings the static scale of x with it.
        if (plans[i].activation == ActivationQuant::kE4m3Static) continue;
        EXPECT_EQ(plans[i].device_bytes, section.device_bytes()) << section.form;
        EXPECT_EQ(plans[i].kernel, section.weight->kernel_name()) << section.form;
      }
    }
  }
  EXPECT_GT(num_equal, 40);
}

}  // namespace
}  // namespace halley::cuda
