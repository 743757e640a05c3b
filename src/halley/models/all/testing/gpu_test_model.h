// For tests: models from testdata on a GPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"

namespace halley {

/// A loaded model with what it needs.
class GpuTestModel {
 public:
  /// A checkpoint of testdata; absent dtype: its own.
  explicit GpuTestModel(const std::filesystem::path& folder,
                        std::optional<DType> dtype = std::nullopt)
      : GpuTestModel(HfConfig::load(folder), open_checkpoint_weights(folder),
                     with_dtype(options_of(folder), dtype)) {}
  GpuTestModel(HfConfig config, std::unique_ptr<TensorSource> source, LoadOptions options)
      : config_(std::move(config)), source_(std::move(source)) {
    loaded_ = load_model(context_, config_, *source_, {}, on_gpu(std::move(options)));
  }
  /// With a configuration that was changed.
  GpuTestModel(HfConfig config, DecoderConfig decoder, std::unique_ptr<TensorSource> source,
               DType dtype)
      : config_(std::move(config)), source_(std::move(source)) {
    loaded_ = load_decoder(context_, config_, std::move(decoder), *source_, {},
                           on_gpu(with_dtype({}, dtype)));
  }

  CausalLm& model() const { return *loaded_.model; }
  /// Sets the precision of all later steps.
  void set_precision(Precision precision) { context_.precision = precision; }
  const ModelPlan& plan() const { return loaded_.plan; }
  TestCache make_cache(int64_t num_sequences, int64_t num_tokens_max) const {
    return make_cache(model().shape().kv_dtype_default, num_sequences, num_tokens_max);
  }
  TestCache make_cache(KvDType dtype, int64_t num_sequences, int64_t num_tokens_max) const {
    return {model(), dtype, num_sequences, num_tokens_max, [](std::byte* data, size_t num_bytes) {
              check_cuda(cudaMemset(data, 0xFF, num_bytes), "filling of a test's cache");
              check_cuda(cudaDeviceSynchronize(), "filling of a test's cache");
            }};
  }

  static LoadOptions options_of(const std::filesystem::path& folder) {
    LoadOptions options;
    options.quant = read_quant_config(HfConfig::load(folder), folder);
    return options;
  }
  static LoadOptions with_dtype(LoadOptions options, std::optional<DType> dtype) {
    options.activation_dtype = dtype;
    return options;
  }

 private:
  static LoadOptions on_gpu(LoadOptions options) {
    options.device = "cuda";
    options.gpu_memory_utilization = 0.5;
    return options;
  }

  ThreadPool pool_{2};
  ExecContext context_{pool_};
  HfConfig config_;
  std::unique_ptr<TensorSource> source_;
  LoadedDecoder loaded_;
};

inline double deviation_of(std::span<const float> row) {
  const auto count = static_cast<double>(row.size());
  const double mean = std::accumulate(row.begin(), row.end(), 0.0) / count;
  double squares = 0;
  for (const float value : row) squares += (double{value} - mean) * (double{value} - mean);
  return std::sqrt(squares / count);
}

/// The largest difference of two sets of rows, in standard deviations of the second's row.
inline double row_difference(std::span<const float> rows, std::span<const float> reference,
                             size_t vocab_size) {
  double largest = rows.size() == reference.size() ? 0 : INFINITY;
  for (size_t begin = 0; begin < rows.size() && std::isfinite(largest); begin += vocab_size) {
    const double unit = deviation_of(reference.subspan(begin, vocab_size));
    for (size_t i = begin; i < begin + vocab_size; ++i) {
      const double difference = std::abs(double{rows[i]} - double{reference[i]}) / unit;
      largest = difference <= largest ? largest : difference;  // NaN stays
    }
  }
  return largest;
}

}  // namespace halley
