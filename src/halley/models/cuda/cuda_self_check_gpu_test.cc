// The self-check of layers on the GPU: it passes every format, and notices wrong packing.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/thread_pool.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/models/cuda/cuda_self_check.h"
#include "halley/quant/all/formats.h"
#include "halley/quant/base/testing/golden_checkpoint.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// A layer on the GPU, and what the checkpoint says of it.
struct LoadedLayer {
  CudaLinear linear;
  StoredSections stored;
};

class CudaSelfCheckTest : public testing::TestWithParam<DType> {
 protected:
  /// All layers of testdata/quantized/<name>.
  std::vector<LoadedLayer> load(const std::string& name) {
    CudaWeightLoader loader(host_, context_, lt_, GetParam());
    const GoldenCheckpoint golden(name);
    const auto scheme = detect_quant_scheme(golden.quant, *golden.source);
    std::vector<LoadedLayer> layers;
    for (const Json& json : golden.expected.at("linears")) {
      LoadedLayer layer;
      layer.linear = loader.load(*scheme, *golden.source, linear_spec_of(json), LinearUse::kAlone,
                                 &layer.stored);
      layers.push_back(std::move(layer));
    }
    return layers;
  }

  void check(const LoadedLayer& layer) {
    self_check(context_, layer.linear, GetParam(), layer.stored);
    self_check(context_, layer.linear, DType::kF32, layer.stored);
  }

  /// Reverses the bytes of the first `num_bytes` of a buffer.
  void reverse_bytes(const DeviceBuffer& buffer, size_t num_bytes) {
    std::vector<std::byte> bytes(num_bytes);
    check_cuda(cudaMemcpy(bytes.data(), buffer.data(), num_bytes, cudaMemcpyDeviceToHost), "copy");
    std::reverse(bytes.begin(), bytes.end());
    check_cuda(cudaMemcpy(const_cast<std::byte*>(buffer.data()), bytes.data(), num_bytes,
                          cudaMemcpyHostToDevice),
               "copy");
    check_cuda(cudaDeviceSynchronize(), "copy");
  }

  CudaDeviceInfo device_ = use_cuda_device(0);
  CudaStream stream_;
  DeviceArena workspace_{size_t{256} << 20, "a test's workspace"};
  CudaContext context_{device_, stream_, workspace_};
  CublasLtGemm lt_{context_, {}};
  ThreadPool pool_{2};
  ExecContext host_{pool_};
};

TEST_P(CudaSelfCheckTest, PassesEveryGoldenLayer) {
  const auto dir = std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata" / "quantized";
  int num_layers = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    for (const LoadedLayer& layer : load(name)) {
      EXPECT_NO_THROW(check(layer)) << name << "\n" << layer.linear.describe();
      ++num_layers;
    }
  }
  EXPECT_GT(num_layers, 50);
}

/// The kernel and an unpacking of the same memory would agree: only the checkpoint tells.
TEST_P(CudaSelfCheckTest, NoticesWrongPacking) {
  for (const char* name :
       {"gptq_4bit_g128_sym", "gptq_8bit_g128_asym", "gptq_3bit_g128_asym", "qoq_channel",
        "fmpq_natural", "fp8_block", "ct_int8_token", "ct_fp8_channel_token"}) {
    const std::vector<LoadedLayer> layers = load(name);
    const CudaLinear::Section& section = layers.at(0).linear.sections().at(0);
    ASSERT_NO_THROW(check(layers[0])) << name;
    // A packed tile begins with quantized values; parameters of groups follow.
    const DeviceBuffer& values = *section.weight->buffers(Precision::kFull).front();
    ASSERT_GT(values.num_bytes(), 0U) << name;
    reverse_bytes(values, std::min<size_t>(values.num_bytes(), 4096));
    EXPECT_THAT([&] { check(layers[0]); },
                ThrowsMessage<DeviceError>(HasSubstr("self-check on the GPU: row ")))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaSelfCheckTest, testing::Values(DType::kF16, DType::kBf16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace halley::cuda
