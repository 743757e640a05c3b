// The one decoder that runs every family, on a GPU.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/core/exec_context.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/runtime/pinned_buffer.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/models/base/stage_exchange.h"
#include "halley/models/cuda/cuda_step_runner.h"
#include "halley/models/cuda/cuda_weights.h"
#include "halley/models/cuda/device_ranks.h"
#include "halley/models/cuda/op_timer.h"
#include "halley/models/cuda/step_memory.h"
#include "halley/models/cuda/step_ops.h"
#include "halley/models/cuda/step_trials.h"
#include "halley/quant/base/linear_loader.h"

namespace halley::cuda {

struct CudaDecoderOptions {
  int ordinal = 0;
  /// Type of activations, and of weights that run dequantized: f16 or bf16.
  DType activation_dtype = DType::kF16;
  /// Fraction of the GPU's memory that the process may use, (0, 1].
  double memory_utilization = 0.9;
  /// A row's logits then have the same bits in any batch of decodes, and in any batch of prefills.
  /// The fixed GEMM plans and attention splits are slower for some batch sizes.
  bool is_batch_invariant = false;
  /// This rank's end of the ranks that divide every layer, which outlives the decoder; null: one.
  Communicator* ranks = nullptr;
  /// This rank's end to the stages around its own, by way of the host; null: one stage.
  StageExchange* stages = nullptr;
};

/// The residual stream is f32, tensors between operations have the activations' type, logits are
/// f32. Any thread may call, one at a time.
class CudaDecoder final : public CausalLm {
 public:
  /// Loads the weights. `host` must outlive the model: each step runs in its precision at the
  /// step's begin. Throws DeviceError where the GPU is unusable, UnsupportedError where it cannot
  /// run the model, and as load_cuda_weights().
  CudaDecoder(ExecContext& host, DecoderConfig config, const LinearLoading& loading,
              const CudaDecoderOptions& options, const PartLoaded& on_part);
  ~CudaDecoder() override;

  const ModelShape& shape() const override { return shape_; }
  /// As Decoder::forward(), with the cache in device memory and logits in host memory. The last
  /// bits of a row's logits may depend on the other rows of the batch unless
  /// CudaDecoderOptions::is_batch_invariant, and may differ between a decode and a prefill
  /// (cuda_attention.h). Steps beyond the limits of prepare() allocate more memory.
  void forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) override;
  std::vector<OpTime> profile(const ForwardBatch& batch, const KvCacheView& cache,
                              Matrix logits) override;

  /// Only for steps that can be captured.
  std::vector<OpTime> op_costs(const ForwardBatch& batch, const KvCacheView& cache,
                               Matrix logits) override;

  std::optional<int64_t> prepare(const StepLimits& limits) override;
  std::unique_ptr<KvMemory> make_kv_memory(size_t num_bytes) const override;
  /// Null where there are several stages too: their caller samples.
  StepRunner* step_runner() override { return runner_.get(); }
  /// Null before prepare().
  CudaStepRunner* cuda_step_runner() { return runner_.get(); }
  std::string device_name() const override { return device_.name; }
  std::vector<PrecisionLevel> precision_levels(KvDType kv_dtype) const override;
  WeightMemory weight_memory() const override;

  const CudaDecoderWeights& weights() const { return weights_; }

 private:
  CudaDecoderWeights load_weights(ExecContext& host, const LinearLoading& loading,
                                  const PartLoaded& on_part);
  WeightMemory memory_of(Precision precision) const;
  void exchange_shares();
  bool is_capturable() const;
  void use_device() const;
  void synchronize() const;
  CudaContext context() { return {device_, stream_, memory_->scratch()}; }
  void check_prepared(const StepLimits& limits) const;
  void set_aside(const StepLimits& limits);
  void grow(const ForwardBatch& batch, const KvCacheView& cache);
  DeviceStep upload(const ForwardBatch& batch, const KvCacheView& cache);
  void queue(const DeviceStep& step, Matrix logits, OpTimer* timer);
  void receive_hidden(DeviceStep& step);
  Matrix staged_hidden(int64_t num_rows);

  const ExecContext& host_;
  DecoderConfig config_;
  CudaDecoderOptions options_;
  ModelShape shape_;
  CudaDeviceInfo device_;
  CudaStream stream_;
  std::unique_ptr<DeviceRanks> ranks_;  // null: one rank
  DeviceArena lt_memory_;
  CublasLtGemm lt_;
  CudaDecoderWeights weights_;
  std::unique_ptr<StepMemory> memory_;
  PinnedBuffer staging_;
  PinnedBuffer hidden_;  // of a step, from or to other stages
  StepTrials trials_;
  std::unique_ptr<CudaStepRunner> runner_;
};

}  // namespace halley::cuda
