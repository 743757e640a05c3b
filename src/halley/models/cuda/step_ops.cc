#include "halley/models/cuda/step_ops.h"

#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/normed_gemm.h"
#include "halley/cuda/gemm/streamed_gemm.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/ops/first_rows.h"
#include "halley/cuda/ops/gather_rows.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/rope_kv.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/weights/linear_input.h"

namespace halley::cuda {
namespace {

/// Releases on destruction what was taken from the workspace in its lifetime.
class ScratchMark {
 public:
  explicit ScratchMark(DeviceArena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ScratchMark() { arena_.release(mark_); }
  ScratchMark(const ScratchMark&) = delete;
  ScratchMark& operator=(const ScratchMark&) = delete;

 private:
  DeviceArena& arena_;
  size_t mark_;
};

}  // namespace

StepOps::StepOps(const CudaContext& context, const DecoderConfig& config,
                 const CudaDecoderWeights& weights, DType activation_dtype, const DeviceStep& step,
                 OpTimer* timer)
    : context_(context),
      config_(config),
      weights_(weights),
      dtype_(activation_dtype),
      step_(step),
      timer_(timer),
      activations_(plan_activations(config, {step.num_rows, step.num_logit_rows_at_once})),
      arrays_(plan_arrays({step.num_rows, step.num_logit_rows})),
      hidden_(activation(activations_.hidden, DType::kF32, step.num_rows, config.hidden_size)),
      normed_(activation(activations_.normed, dtype_, step.num_rows, config.hidden_size)),
      block_(activation(activations_.block, dtype_, step.num_rows, config.hidden_size)),
      qkv_(activation(activations_.qkv, dtype_, step.num_rows,
                      (config.num_heads + 2 * config.num_kv_heads) * config.head_dim)),
      other_hidden_{step.other_hidden, DType::kF32, 1, config.hidden_size,
                    row_stride(DType::kF32, config.hidden_size)} {}

template <typename Launch>
void StepOps::op(const char* name, const Launch& launch) {
  if (step_.left_out == name) return;
  if (timer_ == nullptr) return launch();
  timer_->begin(layer_ < 0 ? std::string(name)
                           : str("layers.", config_.share.first_layer + layer_, ".", name));
  launch();
  timer_->end();
}

template <typename T>
const T* StepOps::array(size_t begin) const {
  return reinterpret_cast<const T*>(step_.arrays + begin);
}

Matrix StepOps::activation(size_t begin, DType dtype, int64_t num_rows, int64_t num_cols) const {
  return {step_.activations + begin, dtype, num_rows, num_cols, row_stride(dtype, num_cols)};
}

void StepOps::queue_embedding() {
  // Behind the first stage, whose hidden states follow, a table without rows.
  const ConstMatrix no_rows = {nullptr, dtype_, 0, config_.hidden_size, config_.hidden_size};
  FirstRows rows = {.table = config_.share.is_first() ? weights_.embedding_table() : no_rows,
                    .first_id = config_.vocabulary().begin,
                    .scale = config_.embedding_scale,
                    .ids = array<int32_t>(arrays_.token_ids),
                    .last_tokens = step_.last_tokens,
                    .num_ropes = static_cast<int>(weights_.ropes.size()),
                    .positions = array<int32_t>(arrays_.positions),
                    .span = step_.span};
  HALLEY_CHECK(rows.num_ropes <= FirstRows::kNumRopesMax, rows.num_ropes);
  for (size_t i = 0; i < weights_.ropes.size(); ++i) {
    const ActivationPlan::Rope& place = activations_.ropes[i];
    rows.ropes[i] = {.table = weights_.ropes[i],
                     .cos = reinterpret_cast<float*>(step_.activations + place.cos),
                     .sin = reinterpret_cast<float*>(step_.activations + place.sin)};
  }
  // The ranks' rows are added: one of them has the positions.
  if (weights_.positions && config_.share.rank == 0) {
    rows.position_table = weights_.positions->weight->rows()->w();
    rows.position_rows = array<int32_t>(arrays_.position_rows);
  }
  op("embedding", [&] { first_rows(context_, rows, hidden_); });
  if (!config_.share.is_first()) copy_hidden(step_.received);
  if (!exchanges() || !config_.share.is_first()) return;
  op("embedding_sum", [&] { step_.ranks->sum(context_, hidden_); });
}

/// Those of the stage before.
void StepOps::copy_hidden(ConstMatrix from) {
  const auto row_bytes = static_cast<size_t>(from.num_cols) * sizeof(float);
  check_cuda(cudaMemcpy2DAsync(
                 hidden_.data, static_cast<size_t>(hidden_.row_stride) * sizeof(float), from.data,
                 static_cast<size_t>(from.row_stride) * sizeof(float), row_bytes,
                 static_cast<size_t>(from.num_rows), cudaMemcpyHostToDevice, context_.stream.get()),
             "copy of hidden states");
}

/// Adds what the ranks have made of attention or an MLP, where that was not done with the norm.
void StepOps::finish_block() {
  if (!std::exchange(is_part_, false) || !exchanges()) return;
  op("rank_sum", [&] { step_.ranks->sum(context_, block_); });
}

/// Adds the block's output to the residual stream before the norm.
void StepOps::add_norm(const char* name, const NormParams& norm, const LinearInput& y) {
  const bool is_part = std::exchange(is_part_, false) && exchanges();
  op(name, [&] {
    if (is_part) return step_.ranks->sum_add_norm_rows(context_, norm, block_, hidden_, y);
    add_norm_rows(context_, norm, block_, hidden_, y);
  });
}

/// normed_ = the residual stream, after the addition of the block's output where there is one.
void StepOps::add_round(const char* name, bool has_block) {
  finish_block();
  op(name, [&] {
    const ConstMatrix block = has_block ? ConstMatrix(block_) : ConstMatrix();
    add_round_rows(context_, block, hidden_, normed_);
  });
}

/// The inputs of a block's first layer, after that addition; the caller marks the workspace.
LinearInput StepOps::queue_input(const char* name, const std::optional<NormParams>& norm,
                                 const CudaLinear& linear, bool has_block) {
  if (!norm) {
    add_round(name, has_block);
    return {.numbers = normed_};
  }
  const LinearInput x = take_linear_input(context_, linear, normed_);
  if (has_block) {
    add_norm(name, *norm, x);
  } else {
    op(name, [&] { norm_rows(context_, *norm, hidden_, x); });
  }
  return x;
}

/// The inputs of all ranks, in the workspace.
Matrix StepOps::gather_inputs(const ColumnShares& shares, Matrix own) {
  const GatherPlan plan = plan_gather(shares, own.num_rows);
  std::byte* parts = context_.workspace.take(plan.part_bytes);
  const Matrix all = {context_.workspace.take(plan.all_bytes), dtype_, own.num_rows,
                      shares.num_columns(), plan.all_stride};
  step_.ranks->place_columns(context_, own, parts, plan.part_stride);
  if (exchanges()) step_.ranks->gather_columns(context_, shares, parts, plan.part_stride, all);
  return all;
}

/// block_ = linear(x), of the last layer of attention or of an MLP; this rank's part of it.
void StepOps::queue_last_of_block(const char* name, const CudaLinear& linear,
                                  const std::optional<ColumnShares>& inputs, Matrix x) {
  is_part_ = step_.ranks != nullptr;
  if (!inputs && run_row(name, linear, {.x = x}, block_)) return;
  op(name, [&] {
    const ScratchMark mark(context_.workspace);
    linear.run(context_, inputs ? gather_inputs(*inputs, x) : x, block_, step_.precision);
  });
}

/// M = 1: fuses the operation that makes the row with the GEMV into one launch. Returns false where
/// no such kernel fits. The caller leaves the members of `row` unset that the layer determines
/// (quant, bias).
bool StepOps::run_row(const char* name, const CudaLinear& linear, RowOperands row, Matrix y) {
  const bool is_gated = row.gate.has_value(), has_norm = row.norm.has_value();
  const ConstMatrix inputs = row.x.data == nullptr ? ConstMatrix(normed_) : row.x;
  if (step_.num_rows != 1 || (has_norm && row.norm->is_layer_norm)) return false;
  const CudaLinear::Section* section = linear.row_section(inputs);
  if (section == nullptr) return false;
  const MixedWeight* mixed = section->weight->mixed();
  const W4axWeight* w4ax = section->weight->w4ax();
  if (mixed != nullptr || w4ax != nullptr) {
    row.quant = section->activation;
    row.bias = section->bias;
    const RowShape shape = w4ax != nullptr ? row_shape(*w4ax, row) : row_shape(*mixed, row);
    if (!plan_row(shape, mixed_device(context_))) return false;
    op(name, [&] {
      if (w4ax != nullptr) return row_gemm(context_, *w4ax, row, y);
      row_gemm(context_, *mixed, row, y);
    });
    return true;
  }
  const RowsWeight& rows = *section->weight->rows();
  const StreamedShape shape = {
      .dtype = rows.w().dtype, .M = 1, .N = section->N, .K = section->K, .is_gated = is_gated};
  if (!plan_normed(shape, has_norm, streamed_device(context_))) return false;
  const NormedOperands operands = {.x = row.x,
                                   .norm = row.norm,
                                   .hidden = row.hidden,
                                   .sum = row.sum,
                                   .w = rows.w(),
                                   .quant = section->activation,
                                   .scales = rows.scales(),
                                   .bias = section->bias,
                                   .gate = row.gate};
  op(name, [&] { normed_gemm(context_, operands, y); });
  return true;
}

/// The same after the addition to the residual stream and a norm.
bool StepOps::run_normed(const char* name, const std::optional<NormParams>& norm,
                         const CudaLinear& linear, std::optional<Activation> gate, Matrix y) {
  if (!norm) return false;
  RowOperands row = {.norm = norm, .hidden = hidden_, .gate = gate};
  // The first norm of the model has no block output to add.
  const bool has_block = layer_ > 0 || gate.has_value();
  if (step_.num_rows == 1) finish_block();
  if (has_block) {
    row.x = block_;
    row.sum = other_hidden_;
  }
  if (!run_row(name, linear, row, y)) return false;
  if (has_block) std::swap(hidden_, other_hidden_);
  return true;
}

void StepOps::queue_qkv(size_t index) {
  const CudaLayerWeights& layer = weights_.layers[index];
  if (run_normed("qkv", layer.input_norm, layer.qkv, std::nullopt, qkv_)) return;
  const ScratchMark mark(context_.workspace);
  // All layers but the first add the block output before them to the residual stream.
  const LinearInput x = queue_input("input_norm", layer.input_norm, layer.qkv, index > 0);
  op("qkv", [&] { run_linear(context_, layer.qkv, x, qkv_, step_.precision); });
}

/// Norms over all heads of a row together, in place.
void StepOps::queue_qk_norms(const CudaLayerWeights& layer) {
  const int64_t k_begin = config_.num_heads * config_.head_dim;
  const auto norm_columns = [&](const float* weight, int64_t begin, int64_t size) {
    if (weight == nullptr) return;
    const Matrix columns = qkv_.cols(begin, begin + size);
    const NormParams norm = {.weight = weight,
                             .weight_offset = config_.norm_weight_offset,
                             .epsilon = config_.norm_epsilon};
    op("qk_norm", [&] { norm_rows(context_, norm, columns, columns); });
  };
  norm_columns(layer.q_norm, 0, config_.q_norm_size());
  norm_columns(layer.k_norm, k_begin, config_.k_norm_size());
}

void StepOps::queue_attention(size_t index) {
  const LayerSpec& spec = config_.layers[index];
  const CudaLayerWeights& layer = weights_.layers[index];
  const KvLayerView& cache = step_.cache[index];
  const bool norms_heads = config_.qk_norm_extent == QkNormExtent::kHead;
  if (!norms_heads) queue_qk_norms(layer);
  RopeKvParams params = {.num_heads = config_.num_heads,
                         .q_norm = norms_heads ? layer.q_norm : nullptr,
                         .k_norm = norms_heads ? layer.k_norm : nullptr,
                         .weight_offset = config_.norm_weight_offset,
                         .epsilon = config_.norm_epsilon,
                         .kv_slots = array<int64_t>(arrays_.kv_slots)};
  if (spec.rope_index >= 0) {
    const auto rope = static_cast<size_t>(spec.rope_index);
    params.cos = reinterpret_cast<const float*>(step_.activations + activations_.ropes[rope].cos);
    params.sin = reinterpret_cast<const float*>(step_.activations + activations_.ropes[rope].sin);
    params.num_angles = weights_.ropes[rope].num_angles;
    params.is_interleaved = config_.ropes[rope].is_interleaved;
  }
  op("rope_kv", [&] { rope_and_write_kv(context_, params, cache, qkv_); });
  const AttentionProblem problem = attention_problem(config_, spec);
  const CudaAttentionBatch& batch = step_.attention->of_layer(index);
  const int64_t num_columns = config_.num_heads * config_.head_dim;
  const Matrix q = qkv_.cols(0, num_columns);
  const Matrix attended = activation(activations_.attended, dtype_, step_.num_rows, num_columns);
  op("attention", [&] {
    if (step_.has_decodes) cuda_decode_attention(context_, problem, cache, batch, q, attended);
    if (step_.has_prefills) cuda_prefill_attention(context_, problem, cache, batch, q, attended);
  });
  queue_last_of_block("o", layer.o, layer.o_inputs, attended);
  if (layer.attention_out_norm) {
    finish_block();
    op("attention_out_norm",
       [&] { norm_rows(context_, *layer.attention_out_norm, block_, block_); });
  }
}

void StepOps::queue_mlp(size_t index) {
  const CudaLayerWeights& layer = weights_.layers[index];
  const int64_t M = step_.num_rows;
  const Matrix wide = activation(activations_.gate_up, dtype_, M, layer.gate_up.out_features());
  if (config_.is_gated) {
    const Matrix y = activation(activations_.activated, dtype_, M, layer.down.in_features());
    if (run_normed("gate_up", layer.mlp_norm, layer.gate_up, config_.activation, y)) {
      return queue_last_of_block("down", layer.down, layer.down_inputs, y);
    }
  }
  {
    const ScratchMark mark(context_.workspace);
    const LinearInput x = queue_input("mlp_norm", layer.mlp_norm, layer.gate_up, true);
    if (config_.is_gated && !x.is_codes && layer.gate_up.can_run_gated(x.numbers)) {
      const Matrix y = activation(activations_.activated, dtype_, M, layer.down.in_features());
      op("gate_up", [&] { layer.gate_up.run_gated(context_, config_.activation, x.numbers, y); });
      return queue_last_of_block("down", layer.down, layer.down_inputs, y);
    }
    op("gate_up", [&] { run_linear(context_, layer.gate_up, x, wide, step_.precision); });
  }
  if (!config_.is_gated) {
    op("activation", [&] { apply_activation(context_, config_.activation, wide); });
    return queue_last_of_block("down", layer.down, layer.down_inputs, wide);
  }
  if (layer.down_inputs) {
    const Matrix y = activation(activations_.activated, dtype_, M, layer.down.in_features());
    op("activation", [&] { gated_activation(context_, config_.activation, wide, y); });
    return queue_last_of_block("down", layer.down, layer.down_inputs, y);
  }
  const ScratchMark mark(context_.workspace);
  const LinearInput x =
      take_linear_input(context_, layer.down,
                        activation(activations_.activated, dtype_, M, layer.down.in_features()));
  op("activation", [&] { gated_activation(context_, config_.activation, wide, x); });
  op("down", [&] { run_linear(context_, layer.down, x, block_, step_.precision); });
  is_part_ = step_.ranks != nullptr;
}

void StepOps::queue_experts(size_t index) {
  const CudaLayerWeights& layer = weights_.layers[index];
  const Matrix logits = activation(activations_.router_logits, DType::kF32, step_.num_rows,
                                   layer.experts->num_routed());
  if (layer.mlp_norm) {
    add_norm("mlp_norm", *layer.mlp_norm, {.numbers = normed_});
  } else {
    add_round("mlp_norm", true);
  }
  op("router", [&] { layer.router->run(context_, normed_, logits, step_.precision); });
  op("experts", [&] { layer.experts->run(context_, normed_, logits, block_); });
  is_part_ = step_.ranks != nullptr;
}

void StepOps::queue_layers() {
  queue_embedding();
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    layer_ = static_cast<int64_t>(i);
    const CudaLayerWeights& layer = weights_.layers[i];
    queue_qkv(i);
    queue_attention(i);
    if (layer.experts) {
      queue_experts(i);
    } else {
      queue_mlp(i);
    }
    if (layer.mlp_out_norm) {
      finish_block();
      op("mlp_out_norm", [&] { norm_rows(context_, *layer.mlp_out_norm, block_, block_); });
    }
  }
  layer_ = -1;
  if (!config_.share.is_last() || (!step_.wants_all_rows && step_.num_logit_rows > 0)) {
    finish_block();
    op("final_add", [&] { add_rows(context_, block_, hidden_); });
  }
}

/// Each rank computes those of its part of the vocabulary.
void StepOps::queue_shared_logits(const LinearInput& x, Matrix logits) {
  const int64_t stride = row_stride(DType::kF32, vocabulary_width(config_));
  std::byte* parts = step_.activations + activations_.logit_parts;
  const auto part_floats = static_cast<size_t>(config_.share.rank * logits.num_rows * stride);
  const Matrix own = {parts + part_floats * sizeof(float), DType::kF32, logits.num_rows,
                      config_.vocabulary().size(), stride};
  op("output", [&] { run_linear(context_, weights_.output, x, own, step_.precision); });
  op("output_gather",
     [&] { step_.ranks->gather_columns(context_, weights_.vocabulary, parts, stride, logits); });
}

Matrix StepOps::queue_logits(int64_t begin, int64_t end) {
  const int64_t count = end - begin;
  HALLEY_CHECK(count >= 1 && count <= step_.num_logit_rows_at_once, begin, end);
  const ScratchMark mark(context_.workspace);
  const LinearInput x =
      take_linear_input(context_, weights_.output,
                        activation(activations_.last_normed, dtype_, count, config_.hidden_size));
  if (step_.wants_all_rows) {
    HALLEY_CHECK(count == step_.num_rows, count, step_.num_rows);
    add_norm("final_norm", weights_.final_norm, x);
  } else {
    const Matrix last = activation(activations_.last, DType::kF32, count, config_.hidden_size);
    op("final_norm", [&] {
      gather_rows(context_, hidden_, array<int32_t>(arrays_.logit_rows) + begin, last);
      norm_rows(context_, weights_.final_norm, last, x);
    });
  }
  const Matrix logits = activation(activations_.logits, DType::kF32, count, config_.vocab_size);
  if (step_.ranks == nullptr) {
    op("output", [&] { run_linear(context_, weights_.output, x, logits, step_.precision); });
  } else {
    queue_shared_logits(x, logits);
  }
  if (config_.logits_scale != 1) {
    op("logits_scale", [&] { scale_rows(context_, config_.logits_scale, logits); });
  }
  if (config_.logits_soft_cap > 0) {
    op("soft_cap", [&] { apply_soft_cap(context_, config_.logits_soft_cap, logits); });
  }
  return logits;
}

}  // namespace halley::cuda
