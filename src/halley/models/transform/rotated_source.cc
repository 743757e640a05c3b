#include "halley/models/transform/rotated_source.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/sorted_tensors.h"
#include "halley/checkpoint/safetensors/tensor_store.h"
#include "halley/models/transform/hadamard.h"
#include "halley/models/transform/layer_tensors.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

/// The change of a tensor.
struct Change {
  enum class Kind : uint8_t {
    kUnitNorm,  // a norm's weight: gain 1
    kRows,      // [N, K] that reads the stream or is a row of it: each row times H
    kColumns,   // [N, K] that writes to the stream: each column times H
    kVector,    // [N], a bias of what writes to the stream
  };
  Kind kind = Kind::kRows;
  const TensorInfo* from = nullptr;  // of the source
  const TensorInfo* gain = nullptr;  // kRows: of the norm before, to be folded in
};

/// y [K, N] = x [N, K] transposed.
void transpose(ExecContext& context, ConstMatrix x, Matrix y) {
  constexpr int64_t kTileRows = 16;  // a cache line of y
  context.pool.run((x.num_rows + kTileRows - 1) / kTileRows, [&](int64_t task, int /*thread*/) {
    const int64_t begin = task * kTileRows, end = std::min(begin + kTileRows, x.num_rows);
    for (int64_t k = 0; k < x.num_cols; ++k) {
      for (int64_t n = begin; n < end; ++n) y.row<float>(k)[n] = x.row<float>(n)[k];
    }
  });
}

class RotatedSource : public TensorSource {
 public:
  RotatedSource(ExecContext& context, DecoderConfig& config, const TensorSource& source)
      : context_(context), source_(source), norm_offset_(config.norm_weight_offset) {
    add_table(config.embedding_name, config.vocab_size, config.hidden_size);
    for (const LayerSpec& layer : config.layers) add_layer(layer, config.hidden_size);
    const TensorInfo& gain = add_norm(config.final_norm, config.hidden_size);
    if (config.lm_head) {
      add_reader(*config.lm_head, gain);
    } else {
      untie(config, gain);
    }
    list_tensors();
  }

  std::string description() const override { return source_.description(); }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override { return find_sorted(infos_, name); }

  TensorView view(const TensorInfo& info) const override {
    const auto change = changes_.find(info.name);
    if (change == changes_.end()) return source_.view(*source_.find(info.name));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (computed_.find(info.name) == nullptr) compute(info, change->second);
    return computed_.view(info);
  }

  void release(const TensorInfo& info) const override {
    if (changes_.count(info.name) == 0) {
      source_.release(*source_.find(info.name));
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    computed_.remove(info.name);
  }

 private:
  void add_table(const std::string& name, int64_t num_rows, int64_t hidden_size) {
    changes_[name] = {.kind = Change::Kind::kRows,
                      .from = &find_dense_tensor(source_, name, {num_rows, hidden_size})};
  }

  const TensorInfo& add_norm(const NormSpec& norm, int64_t hidden_size) {
    const TensorInfo& weight = find_dense_tensor(source_, norm.weight_name, {hidden_size});
    changes_[norm.weight_name] = {.kind = Change::Kind::kUnitNorm, .from = &weight};
    return weight;
  }

  const TensorInfo& find_weight(const LinearSpec& spec, const LinearSpec::Part& part) const {
    return find_dense_tensor(source_, part.name + ".weight", {part.stored_rows, spec.in_features});
  }

  void add_reader(const LinearSpec& spec, const TensorInfo& gain) {
    reject_stacked_experts(source_.description(), spec);
    for (const LinearSpec::Part& part : spec.parts) {
      changes_[part.name + ".weight"] = {
          .kind = Change::Kind::kRows, .from = &find_weight(spec, part), .gain = &gain};
    }
  }

  void add_writer(const LinearSpec& spec) {
    reject_stacked_experts(source_.description(), spec);
    for (const LinearSpec::Part& part : spec.parts) {
      changes_[part.name + ".weight"] = {.kind = Change::Kind::kColumns,
                                         .from = &find_weight(spec, part)};
      if (!spec.has_bias) continue;
      const std::string bias = part.name + ".bias";
      changes_[bias] = {.kind = Change::Kind::kVector,
                        .from = &find_dense_tensor(source_, bias, {part.stored_rows})};
    }
  }

  void add_layer(const LayerSpec& layer, int64_t hidden_size) {
    add_reader(layer.qkv, add_norm(*layer.input_norm, hidden_size));
    add_writer(layer.o);
    const TensorInfo& gain = add_norm(*layer.mlp_norm, hidden_size);
    if (layer.mlp.router) add_reader(*layer.mlp.router, gain);
    for (const LinearSpec& gate_up : layer.mlp.gate_up) add_reader(gate_up, gain);
    for (const LinearSpec& down : layer.mlp.down) add_writer(down);
  }

  /// The output layer gets the final norm's gain, which the embedding must not have.
  void untie(DecoderConfig& config, const TensorInfo& gain) {
    const std::string name = config.tied_output_name.substr(0, config.tied_output_name.rfind('.'));
    LinearSpec head;
    head.parts = {{.name = name,
                   .out_features = config.vocab_size,
                   .stored_rows = config.vocab_size,
                   .is_usually_dense = true}};
    head.in_features = config.hidden_size;
    changes_[name + ".weight"] = {.kind = Change::Kind::kRows,
                                  .from = changes_.at(config.embedding_name).from,
                                  .gain = &gain};
    hidden_name_ = std::exchange(config.tied_output_name, {});
    config.lm_head = std::move(head);
  }

  void list_tensors() {
    for (const auto& [name, change] : changes_) {
      const auto count = static_cast<size_t>(num_elements_of(change.from->shape).value());
      infos_.push_back({.name = name,
                        .dtype = DType::kF32,
                        .shape = change.from->shape,
                        .num_bytes = count * sizeof(float)});
    }
    for (const TensorInfo& info : source_.tensors()) {
      if (changes_.count(info.name) == 0 && info.name != hidden_name_) infos_.push_back(info);
    }
    std::sort(infos_.begin(), infos_.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  }

  void fold_gain(std::span<float> weights, const TensorInfo& norm) const {
    const std::vector<float> gains = to_f32(source_.view(norm));
    for (size_t begin = 0; begin < weights.size(); begin += gains.size()) {
      for (size_t k = 0; k < gains.size(); ++k) weights[begin + k] *= norm_offset_ + gains[k];
    }
  }

  void compute(const TensorInfo& info, const Change& change) const {
    std::vector<float> values = to_f32(source_.view(*change.from));
    source_.release(*change.from);
    const auto count = static_cast<int64_t>(values.size());
    switch (change.kind) {
      case Change::Kind::kUnitNorm:
        std::fill(values.begin(), values.end(), 1 - norm_offset_);
        break;
      case Change::Kind::kRows:
        if (change.gain != nullptr) fold_gain(values, *change.gain);
        apply_hadamard(context_, f32_matrix(values.data(), info.shape[0], info.shape[1]));
        break;
      case Change::Kind::kColumns: {
        std::vector<float> columns(values.size());
        const Matrix rows = f32_matrix(values.data(), info.shape[0], info.shape[1]);
        const Matrix transposed = f32_matrix(columns.data(), info.shape[1], info.shape[0]);
        transpose(context_, rows, transposed);
        apply_hadamard(context_, transposed);
        transpose(context_, transposed, rows);
        break;
      }
      case Change::Kind::kVector:
        apply_hadamard(context_, f32_matrix(values.data(), 1, count));
        break;
    }
    computed_.set_f32(info.name, info.shape, values);
  }

  ExecContext& context_;
  const TensorSource& source_;
  float norm_offset_;
  std::map<std::string, Change, std::less<>> changes_;
  std::string hidden_name_;        // a second copy of what was tied
  std::vector<TensorInfo> infos_;  // sorted by name
  mutable std::mutex mutex_;       // for computed_ and the context
  mutable TensorStore computed_;
};

}  // namespace

std::string why_not_rotate(const DecoderConfig& config) {
  if (config.norm_kind != NormKind::kRms) {
    return "its LayerNorm takes the mean away, which depends on the channels";
  }
  for (const LayerSpec& layer : config.layers) {
    if (layer.attention_out_norm || layer.mlp_out_norm) {
      return "its blocks have norms behind them, whose gains cannot be folded";
    }
    if (!layer.input_norm || !layer.mlp_norm) return "its blocks have no norms before them";
  }
  if (!has_hadamard(config.hidden_size)) {
    return str("there is no Hadamard matrix here of its hidden size ", config.hidden_size,
               " (expected a power of two times 1, 12, 20, 28, 36, 44 or 60)");
  }
  return {};
}

std::unique_ptr<TensorSource> make_rotated_source(ExecContext& context, DecoderConfig& config,
                                                  const TensorSource& source) {
  HALLEY_CHECK(why_not_rotate(config).empty(), why_not_rotate(config));
  return std::make_unique<RotatedSource>(context, config, source);
}

}  // namespace halley
