#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/python/torch_linear.h"

namespace halley::python {
namespace {

constexpr int64_t kM = 3, kN = 128, kK = 256;

/// A weight in 4 bits on the GPU, and operands of it.
class TorchCudaLinear : public ::testing::Test {
 protected:
  TorchCudaLinear() {
    const PackedTensors packed = {memory_of(qweight_), memory_of(groups_), {}};
    std::vector<float> w(static_cast<size_t>(kN * kK));
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& value : w) value = uniform(random);
    with_threads(1, [&](ExecContext& context) {
      round_linear(context, "layer", format_, {}, memory_of(w), packed);
    });
    w_.resize(w.size());
    dequantize_linear(format_, packed, Precision::kFull, memory_of(w_));
    linear_ = load_cuda_linear(0, DType::kF16, format_, packed, {});
    for (uint16_t& value : x_host_) value = f32_to_f16(uniform(random));
    check_cuda(cudaMemcpy(x_.data(), x_host_.data(), x_.num_bytes(), cudaMemcpyHostToDevice), "x");
    workspace_ = DeviceBuffer(linear_->workspace_bytes(kM), "a workspace");
  }

  template <typename T>
  static TensorMemory memory_of(std::vector<T>& values) {
    return {reinterpret_cast<uintptr_t>(values.data()), values.size() * sizeof(T)};
  }
  static TensorMemory memory_of(HostBuffer& buffer) {
    return {reinterpret_cast<uintptr_t>(buffer.data()), buffer.num_bytes()};
  }
  static TensorMemory memory_of(const DeviceBuffer& buffer) {
    return {reinterpret_cast<uintptr_t>(buffer.data()), buffer.num_bytes()};
  }
  DeviceMatrix x() const {
    return {reinterpret_cast<uintptr_t>(x_.data()), DType::kF16, kM, kK, kK};
  }
  DeviceMatrix y() const {
    return {reinterpret_cast<uintptr_t>(y_.data()), DType::kF16, kM, kN, kN};
  }
  std::string error_of(const DeviceMatrix& x, const DeviceMatrix& y, TensorMemory workspace) const {
    try {
      linear_->run(x, y, workspace, 0, Precision::kFull);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing thrown";
  }

  const PackedFormat format_ = {
      .scheme = "int4", .N = kN, .K = kK, .group_size = 128, .num_inputs = kK};
  HostBuffer qweight_{static_cast<size_t>(num_elements_of(qweight_shape(format_)).value())};
  HostBuffer groups_{static_cast<size_t>(num_elements_of(groups_shape(format_)).value()) * 4};
  std::vector<float> w_;
  std::vector<uint16_t> x_host_ = std::vector<uint16_t>(static_cast<size_t>(kM * kK));
  DeviceBuffer x_{static_cast<size_t>(kM * kK) * 2, "x"};
  DeviceBuffer y_{static_cast<size_t>(kM * kN) * 2, "y"};
  DeviceBuffer workspace_;
  std::unique_ptr<CudaLinear> linear_;
};

TEST_F(TorchCudaLinear, MultipliesTheDequantizedWeightOnTheCallersStream) {
  const CudaStream stream;
  linear_->run(x(), y(), memory_of(workspace_), reinterpret_cast<uintptr_t>(stream.get()),
               Precision::kFull);
  stream.synchronize();
  std::vector<uint16_t> got(static_cast<size_t>(kM * kN));
  check_cuda(cudaMemcpy(got.data(), y_.data(), y_.num_bytes(), cudaMemcpyDeviceToHost), "y");
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kN; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < kK; ++k) {
        const double term = double{f16_to_f32(x_host_[static_cast<size_t>(m * kK + k)])} *
                            double{w_[static_cast<size_t>(n * kK + k)]};
        sum += term;
        magnitude += std::fabs(term);
      }
      // Weights and outputs are rounded to f16.
      EXPECT_NEAR(f16_to_f32(got[static_cast<size_t>(m * kN + n)]), sum, 2e-3 * magnitude);
    }
  }
}

TEST_F(TorchCudaLinear, RejectsOperandsThatDoNotFit) {
  const TensorMemory workspace = memory_of(workspace_);
  DeviceMatrix wrong = x();
  wrong.dtype = DType::kBf16;
  EXPECT_EQ(error_of(wrong, y(), workspace),
            "halley.torch: x: expected f16, got bf16. Move the module to that type.");
  wrong = x();
  wrong.num_cols -= 1;
  EXPECT_EQ(error_of(wrong, y(), workspace), "halley.torch: x: expected 256 columns, got 255.");
  wrong = x();
  wrong.address += 2;
  EXPECT_EQ(error_of(wrong, y(), workspace),
            "halley.torch: x: expected rows at multiples of 16 bytes.");
  wrong = y();
  wrong.num_rows += 1;
  EXPECT_EQ(error_of(x(), wrong, workspace), "halley.torch: y: expected 3 rows, got 4.");
  EXPECT_NE(error_of(x(), y(), {workspace.address, 0}).find("halley.torch: workspace: expected "),
            std::string::npos);
}

TEST_F(TorchCudaLinear, KeepsTheThreadsDevice) {
  int device = -1;
  check_cuda(cudaGetDevice(&device), "query of the device");
  linear_->run(x(), y(), memory_of(workspace_), 0, Precision::kFull);
  int after = -1;
  check_cuda(cudaGetDevice(&after), "query of the device");
  EXPECT_EQ(after, device);
  EXPECT_GE(linear_->device_bytes(), static_cast<size_t>(kN * kK / 2));
  EXPECT_NE(linear_->describe().find("kept in 4 bits"), std::string::npos) << linear_->describe();
}

}  // namespace
}  // namespace halley::python
