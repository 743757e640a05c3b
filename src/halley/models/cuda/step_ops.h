// The operations of a decoder's step on the GPU, in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "halley/core/dtype.h"
#include "halley/core/matrix.h"
#include "halley/core/precision.h"
#include "halley/cuda/row_gemm/row_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_span.h"
#include "halley/cuda/weights/linear_input.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/cuda/attention_batches.h"
#include "halley/models/cuda/cuda_weights.h"
#include "halley/models/cuda/device_ranks.h"
#include "halley/models/cuda/op_timer.h"
#include "halley/models/cuda/step_plan.h"

namespace halley::cuda {

/// A step whose small arrays are on the device, or will be when its operations run.
struct DeviceStep {
  int64_t num_rows = 0;
  int64_t num_logit_rows = 0;         // of `arrays`
  const std::byte* arrays = nullptr;  // laid out by plan_arrays()
  std::byte* activations = nullptr;   // laid out by plan_activations()
  int64_t num_logit_rows_at_once = 0;
  /// All rows have logits.
  bool wants_all_rows = false;
  bool has_decodes = false, has_prefills = false;
  /// Precision of layers whose weights hold two.
  Precision precision = Precision::kFull;
  /// Last token of each slot, for ids below 0; null where there are none.
  const int32_t* last_tokens = nullptr;
  DeviceSpan* span = nullptr;  // starts with the step; may be null
  std::span<const KvLayerView> cache;
  const AttentionBatches* attention = nullptr;
  std::byte* other_hidden = nullptr;  // as StepMemory has it
  DeviceRanks* ranks = nullptr;       // null: one rank
  /// Nothing passes between ranks, and the results are of no use: a trial that loads the kernels.
  bool is_trial = false;
  /// Hidden states of the stage before, [num_rows, hidden_size] f32 on the host; of the first stage
  /// empty.
  ConstMatrix received = {};
  /// Operations of this name are skipped, for measurements.
  std::string_view left_out = {};
};

/// All arguments must outlive it. Queues operations, which can be captured if the step has no
/// prefills.
class StepOps {
 public:
  /// `timer` gets the begin and end of each operation; may be null.
  StepOps(const CudaContext& context, const DecoderConfig& config,
          const CudaDecoderWeights& weights, DType activation_dtype, const DeviceStep& step,
          OpTimer* timer = nullptr);

  /// Queues everything up to the residual stream after the last layer; new keys and values go to
  /// the cache.
  void queue_layers();
  /// Queues the logits of logit rows [begin, end), at most num_logit_rows_at_once: [end - begin, V]
  /// f32, valid until the next call of any member. After queue_layers(); with wants_all_rows once,
  /// for all.
  Matrix queue_logits(int64_t begin, int64_t end);
  /// Behind queue_layers() of a stage before the last: [num_rows, hidden_size] f32.
  ConstMatrix hidden() const { return hidden_; }

 private:
  template <typename Launch>
  void op(const char* name, const Launch& launch);
  template <typename T>
  const T* array(size_t begin) const;
  Matrix activation(size_t begin, DType dtype, int64_t num_rows, int64_t num_cols) const;

  bool exchanges() const { return step_.ranks != nullptr && !step_.is_trial; }
  void queue_embedding();
  void copy_hidden(ConstMatrix from);
  void queue_qkv(size_t layer);
  void queue_qk_norms(const CudaLayerWeights& layer);
  void queue_attention(size_t layer);
  void queue_mlp(size_t layer);
  bool run_normed(const char* name, const std::optional<NormParams>& norm, const CudaLinear& linear,
                  std::optional<Activation> gate, Matrix y);
  bool run_row(const char* name, const CudaLinear& linear, RowOperands row, Matrix y);
  void queue_experts(size_t layer);
  void queue_last_of_block(const char* name, const CudaLinear& linear,
                           const std::optional<ColumnShares>& inputs, Matrix x);
  void finish_block();
  void add_norm(const char* name, const NormParams& norm, const LinearInput& y);
  void add_round(const char* name, bool has_block);
  LinearInput queue_input(const char* name, const std::optional<NormParams>& norm,
                          const CudaLinear& linear, bool has_block);
  Matrix gather_inputs(const ColumnShares& shares, Matrix own);
  void queue_shared_logits(const LinearInput& x, Matrix logits);

  const CudaContext& context_;
  const DecoderConfig& config_;
  const CudaDecoderWeights& weights_;
  const DType dtype_;
  const DeviceStep step_;
  OpTimer* const timer_;
  const ActivationPlan activations_;
  const ArrayPlan arrays_;
  Matrix hidden_, normed_, block_, qkv_;
  Matrix other_hidden_;
  int64_t layer_ = -1;    // for names
  bool is_part_ = false;  // block_ is this rank's part of a sum
};

}  // namespace halley::cuda
