#include "halley/models/cuda/step_plan.h"

#include <algorithm>
#include <bit>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/core/packed_weight.h"

namespace halley::cuda {
namespace {

constexpr size_t kPieceAlignment = 256;
constexpr size_t kArrayAlignment = 16;

/// Lays out buffers one after the other.
class Pieces {
 public:
  Pieces(size_t begin, size_t alignment) : used_(begin), alignment_(alignment) {}

  size_t add(DType dtype, int64_t num_rows, int64_t num_cols) {
    return add(static_cast<size_t>(num_rows * row_stride(dtype, num_cols)) *
               static_cast<size_t>(bits_of(dtype) / 8));
  }
  size_t add(size_t num_bytes) {
    const size_t begin = used_;
    used_ = round_up(used_ + num_bytes, alignment_);
    return begin;
  }
  size_t used() const { return used_; }

 private:
  size_t used_;
  size_t alignment_;
};

int64_t num_inputs_of(const LinearSpec& spec) {
  return spec.inputs ? spec.inputs->size() : spec.in_features;
}

/// The largest width of all layers.
int64_t widest(const DecoderConfig& config, int64_t (*width)(const LayerSpec&)) {
  int64_t most = 0;
  for (const LayerSpec& layer : config.layers) most = std::max(most, width(layer));
  return most;
}

}  // namespace

int64_t row_stride(DType dtype, int64_t num_cols) {
  return round_up<int64_t>(num_cols, 128 / bits_of(dtype));
}

int64_t vocabulary_width(const DecoderConfig& config) {
  const int64_t num_panels = ceil_div(config.vocab_size, kPanelRows);
  return ceil_div(num_panels, int64_t{config.share.num_ranks}) * kPanelRows;
}

GatherPlan plan_gather(const ColumnShares& shares, int64_t num_rows) {
  constexpr DType k16 = DType::kF16;
  GatherPlan plan;
  plan.part_stride = row_stride(k16, shares.width_max());
  plan.all_stride = row_stride(k16, shares.num_columns());
  const auto bytes = [&](int64_t stride) {
    return static_cast<size_t>(num_rows * stride * bits_of(k16) / 8);
  };
  plan.part_bytes = bytes(plan.part_stride) * static_cast<size_t>(shares.num_parts());
  plan.all_bytes = bytes(plan.all_stride);
  return plan;
}

ActivationPlan plan_activations(const DecoderConfig& config, const StepSize& size) {
  constexpr DType k16 = DType::kF16;  // f16 and bf16 alike
  const int64_t M = size.num_rows, R = size.num_logit_rows, K = config.hidden_size;
  ActivationPlan plan;
  Pieces pieces(0, kPieceAlignment);
  plan.hidden = pieces.add(DType::kF32, M, K);
  plan.normed = pieces.add(k16, M, K);
  plan.block = pieces.add(k16, M, K);
  for (const RopeSpec& rope : config.ropes) {
    const size_t num_bytes = static_cast<size_t>(M) * rope.inv_freq.size() * sizeof(float);
    const size_t cos = pieces.add(num_bytes);
    plan.ropes.push_back({.cos = cos, .sin = pieces.add(num_bytes)});
  }

  const size_t shared = pieces.used();
  Pieces attention(shared, kPieceAlignment);
  plan.qkv = attention.add(k16, M, (config.num_heads + 2 * config.num_kv_heads) * config.head_dim);
  plan.attended = attention.add(k16, M, config.num_heads * config.head_dim);

  Pieces mlp(shared, kPieceAlignment);
  plan.gate_up = mlp.add(k16, M, widest(config, [](const LayerSpec& layer) {
                           return layer.mlp.router ? 0 : layer.mlp.gate_up[0].out_features();
                         }));
  plan.activated = mlp.add(k16, M, widest(config, [](const LayerSpec& layer) {
                             return layer.mlp.router ? 0 : num_inputs_of(layer.mlp.down[0]);
                           }));
  plan.router_logits = mlp.add(DType::kF32, M, widest(config, [](const LayerSpec& layer) {
                                 return layer.mlp.router ? layer.mlp.router->out_features() : 0;
                               }));

  Pieces output(shared, kPieceAlignment);
  plan.last = output.add(DType::kF32, R, K);
  plan.last_normed = output.add(k16, R, K);
  plan.logits = output.add(DType::kF32, R, config.vocab_size);
  if (config.share.num_ranks > 1) {
    plan.logit_parts =
        output.add(DType::kF32, R * config.share.num_ranks, vocabulary_width(config));
  }
  plan.num_bytes = std::max({attention.used(), mlp.used(), output.used()});
  return plan;
}

ArrayPlan plan_arrays(const StepSize& size) {
  const auto M = static_cast<size_t>(size.num_rows);
  Pieces arrays(0, kArrayAlignment);
  ArrayPlan plan;
  plan.kv_slots = arrays.add(M * sizeof(int64_t));
  plan.token_ids = arrays.add(M * sizeof(int32_t));
  plan.positions = arrays.add(M * sizeof(int32_t));
  plan.position_rows = arrays.add(M * sizeof(int32_t));
  plan.logit_rows = arrays.add(static_cast<size_t>(size.num_logit_rows) * sizeof(int32_t));
  plan.choice_slots = arrays.add(static_cast<size_t>(size.num_logit_rows) * sizeof(int32_t));
  plan.num_bytes = arrays.used();
  return plan;
}

int64_t decode_bucket(int64_t num_rows, int64_t num_rows_max) {
  HALLEY_CHECK(num_rows >= 1 && num_rows <= num_rows_max, num_rows, num_rows_max);
  const auto bucket = [&] {
    if (num_rows <= 8) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_rows)));
    if (num_rows <= 256) return round_up<int64_t>(num_rows, 8);
    return round_up<int64_t>(num_rows, num_rows <= 512 ? 32 : 64);
  }();
  return std::min(bucket, num_rows_max);
}

}  // namespace halley::cuda
