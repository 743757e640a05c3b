#include "halley/models/base/decoder_parts.h"

#include <map>
#include <utility>

#include "halley/base/str.h"
#include "halley/quant/base/dense_weight.h"

namespace halley {
namespace {

class PartList {
 public:
  void add_norm(const std::string& name, const NormSpec& norm, int64_t size) {
    parts_.push_back(
        {.name = name, .kind = PartKind::kNorm, .norm = &norm, .table_name = {}, .num_rows = size});
  }
  void add_norm(const std::string& name, const std::optional<NormSpec>& norm, int64_t size) {
    if (norm) add_norm(name, *norm, size);
  }
  void add_linear(const std::string& name, const LinearSpec& linear, bool is_expert = false) {
    parts_.push_back({.name = name,
                      .kind = PartKind::kLinear,
                      .linear = &linear,
                      .is_expert = is_expert,
                      .table_name = {}});
  }
  void add_table(const std::string& name, PartKind kind, const std::string& table, int64_t num_rows,
                 const InputRange& rows) {
    parts_.push_back(
        {.name = name, .kind = kind, .table_name = table, .num_rows = num_rows, .rows = rows});
  }
  std::vector<DecoderPart> take() { return std::move(parts_); }

 private:
  std::vector<DecoderPart> parts_;
};

void add_mlp(const std::string& prefix, const MlpSpec& mlp, PartList& list) {
  if (!mlp.router) {
    list.add_linear(prefix + "gate_up", mlp.gate_up[0]);
    list.add_linear(prefix + "down", mlp.down[0]);
    return;
  }
  list.add_linear(prefix + "router", *mlp.router);
  for (size_t expert = 0; expert < mlp.gate_up.size(); ++expert) {
    const std::string of_expert =
        str(prefix, "experts.", mlp.first_expert + static_cast<int64_t>(expert), ".");
    list.add_linear(of_expert + "gate_up", mlp.gate_up[expert], true);
    list.add_linear(of_expert + "down", mlp.down[expert], true);
  }
}

void add_layer(const DecoderConfig& config, size_t index, PartList& list) {
  const LayerSpec& layer = config.layers[index];
  const std::string prefix =
      str("layers.", config.share.first_layer + static_cast<int64_t>(index), ".");
  list.add_norm(prefix + "input_norm", layer.input_norm, config.hidden_size);
  list.add_linear(prefix + "qkv", layer.qkv);
  list.add_norm(prefix + "q_norm", layer.q_norm, config.q_norm_size());
  list.add_norm(prefix + "k_norm", layer.k_norm, config.k_norm_size());
  list.add_linear(prefix + "o", layer.o);
  list.add_norm(prefix + "attention_out_norm", layer.attention_out_norm, config.hidden_size);
  list.add_norm(prefix + "mlp_norm", layer.mlp_norm, config.hidden_size);
  add_mlp(prefix, layer.mlp, list);
  list.add_norm(prefix + "mlp_out_norm", layer.mlp_out_norm, config.hidden_size);
}

/// Tensors by name, sorted.
class TensorList {
 public:
  explicit TensorList(DType dtype) : dtype_(dtype) {}

  void add(TensorInfo info) {
    const auto count = static_cast<size_t>(num_elements_of(info.shape).value_or(0));
    info.num_bytes = count * static_cast<size_t>(bits_of(info.dtype)) / 8;
    infos_[info.name] = std::move(info);
  }
  void add_dense(const std::string& name, Shape shape) {
    add({.name = name, .dtype = dtype_, .shape = std::move(shape)});
  }
  void add_linear(const LinearSpec& linear, const QuantScheme* scheme) {
    for (const LinearSpec::Part& part : linear.parts) {
      if (scheme == nullptr || part.is_usually_dense) {
        add(expected_dense_tensor(part, linear.in_features, dtype_));
      } else {
        for (TensorInfo& info : scheme->expected_tensors(part, linear.in_features)) {
          add(std::move(info));
        }
      }
      if (linear.has_bias) add_dense(part.name + ".bias", {part.stored_rows});
    }
  }
  std::vector<TensorInfo> take() {
    std::vector<TensorInfo> infos;
    for (auto& [name, info] : infos_) infos.push_back(std::move(info));
    return infos;
  }

 private:
  DType dtype_;
  std::map<std::string, TensorInfo> infos_;
};

}  // namespace

std::vector<DecoderPart> list_decoder_parts(const DecoderConfig& config) {
  PartList list;
  if (config.has_embedding()) {
    list.add_table("embedding", PartKind::kEmbedding, config.embedding_name, config.vocab_size,
                   config.vocabulary());
  }
  if (config.share.is_first() && !config.position_embedding_name.empty()) {
    const int64_t num_rows = config.num_stored_positions + config.position_offset;
    list.add_table("positions", PartKind::kPositions, config.position_embedding_name, num_rows,
                   {0, num_rows});
  }
  for (size_t i = 0; i < config.layers.size(); ++i) add_layer(config, i, list);
  if (!config.share.is_last()) return list.take();
  list.add_norm("final_norm", config.final_norm, config.hidden_size);
  if (config.lm_head) list.add_linear("lm_head", *config.lm_head);
  return list.take();
}

std::vector<TensorInfo> list_decoder_tensors(const DecoderConfig& config,
                                             const QuantScheme* scheme) {
  TensorList tensors(config.dtype);
  for (const DecoderPart& part : list_decoder_parts(config)) {
    switch (part.kind) {
      case PartKind::kLinear:
        tensors.add_linear(*part.linear, scheme);
        break;
      case PartKind::kNorm:
        tensors.add_dense(part.norm->weight_name, {part.num_rows});
        if (!part.norm->bias_name.empty()) {
          tensors.add_dense(part.norm->bias_name, {part.num_rows});
        }
        break;
      case PartKind::kEmbedding:
      case PartKind::kPositions:
        tensors.add_dense(part.table_name, {part.num_rows, config.hidden_size});
        break;
    }
  }
  return tensors.take();
}

}  // namespace halley
