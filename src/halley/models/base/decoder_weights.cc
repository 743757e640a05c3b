#include "halley/models/base/decoder_weights.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/models/base/kv_scales.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/self_check.h"
#include "halley/quant/base/stored_outputs.h"

namespace halley {
namespace {

std::optional<LinearSpec> quantized_table(const DecoderConfig& config, const TensorSource& source,
                                          const DecoderPart& part) {
  return quantized_table(config, source, part.table_name, {part.num_rows, part.rows});
}

LinearPlan plan_dense(const TensorInfo& info, int64_t num_rows, int64_t num_columns) {
  LinearPlan plan;
  plan.name = info.name;
  plan.weight.stored_dtype = info.dtype;
  plan.weight.bits = bits_of(info.dtype);
  plan.out_features = num_rows;
  plan.in_features = num_columns;
  plan.stored_bytes = static_cast<double>(info.num_bytes);
  plan.bits_per_weight = bits_of(info.dtype);
  return plan;
}

LinearPlan plan_table(const DecoderConfig& config, const DecoderPart& part,
                      const LinearLoading& loading) {
  const TensorInfo& info =
      find_dense_tensor(loading.source, part.table_name, {part.num_rows, config.hidden_size});
  const int64_t num_rows = part.rows.size();
  LinearPlan plan = plan_dense(info, num_rows, config.hidden_size);
  plan.stored_bytes *= static_cast<double>(num_rows) / static_cast<double>(part.num_rows);
  plan.weight.layout = dense_layout_for(info.dtype);
  plan.packed_bytes = packed_bytes(plan.weight.layout, num_rows, config.hidden_size);
  if (part.kind == PartKind::kEmbedding && !config.lm_head && loading.has_cpu_kernels) {
    KernelChoice choice = choose_gemm_kernel(
        {.w_layout = plan.weight.layout, .N = num_rows, .K = config.hidden_size}, loading.demands);
    plan.kernel = choice.kernel;
    plan.rejections = std::move(choice.rejections);
  }
  return plan;
}

LinearPlan plan_norm(const DecoderPart& part, const TensorSource& source) {
  const TensorInfo& weight = find_dense_tensor(source, part.norm->weight_name, {part.num_rows});
  LinearPlan plan = plan_dense(weight, part.num_rows, 1);
  plan.weight.layout = PackedLayout::kF32RowMajor;
  plan.packed_bytes = static_cast<size_t>(part.num_rows) * sizeof(float);
  if (!part.norm->bias_name.empty()) {
    find_dense_tensor(source, part.norm->bias_name, {part.num_rows});
    plan.packed_bytes *= 2;
  }
  return plan;
}

bool has_ignored_suffix(const DecoderConfig& config, std::string_view name) {
  return std::any_of(config.ignored_suffixes.begin(), config.ignored_suffixes.end(),
                     [&](const std::string& suffix) { return name.ends_with(suffix); });
}

bool has_ignored_prefix(const DecoderConfig& config, std::string_view name) {
  return std::any_of(config.ignored_prefixes.begin(), config.ignored_prefixes.end(),
                     [&](const std::string& prefix) { return name.starts_with(prefix); });
}

std::set<std::string> used_tensor_names(const DecoderConfig& config, const LinearLoading& loading) {
  std::set<std::string> used;
  for (const DecoderPart& part : list_decoder_parts(config)) {
    if (part.kind == PartKind::kLinear) {
      for (std::string& name : linear_tensor_names(loading, *part.linear)) {
        used.insert(std::move(name));
      }
    } else if (part.kind == PartKind::kNorm) {
      used.insert(part.norm->weight_name);
      used.insert(part.norm->bias_name);
    } else if (const auto table = quantized_table(config, loading.source, part)) {
      for (std::string& name : linear_tensor_names(loading, *table)) used.insert(std::move(name));
    } else {
      used.insert(part.table_name);
    }
  }
  if (!config.lm_head) used.insert(config.tied_output_name);
  for (std::string& name : read_kv_scales(config, loading).tensor_names) {
    used.insert(std::move(name));
  }
  return used;
}

/// Low precision reads the first half of each panel of a weight in two precisions.
void add_upper_planes(const PackedWeight& weight, std::vector<WeightMemory::Bytes>& memory) {
  const size_t panel_bytes = packed_bytes(weight.layout, kPanelRows, weight.K);
  for (size_t begin = 0; begin < weight.data.num_bytes(); begin += panel_bytes) {
    memory.emplace_back(weight.data.data() + begin, panel_bytes / 2);
  }
}

void add_memory(const LinearOp& op, Precision precision, std::vector<WeightMemory::Bytes>& memory) {
  for (const LinearOp::Section& section : op.sections()) {
    const PackedWeight& weight = section.weight;
    if (precision == Precision::kLow && section.low_kernel != nullptr) {
      add_upper_planes(weight, memory);
      continue;
    }
    memory.emplace_back(weight.data.data(), weight.data.num_bytes());
    if (is_quantized(weight.layout)) {
      memory.emplace_back(weight.quant.groups.data(), weight.quant.groups.num_bytes());
    }
  }
}

/// One walk over the specification, part by part in the order of list_decoder_parts().
class Loader {
 public:
  Loader(ExecContext& context, const DecoderConfig& config, const LinearLoading& loading,
         const PartLoaded& on_part)
      : context_(context), config_(config), loading_(loading), on_part_(on_part) {}

  DecoderWeights load() {
    DecoderWeights weights;
    if (config_.has_embedding() && config_.lm_head) {
      weights.embedding =
          load_table(config_.embedding_name, config_.vocab_size, config_.vocabulary());
    } else if (config_.has_embedding()) {
      check_tied_output(config_, loading_.source);
      weights.output = load_tied_output();
    }
    if (config_.share.is_first() && !config_.position_embedding_name.empty()) {
      const int64_t num_rows = config_.num_stored_positions + config_.position_offset;
      weights.positions = load_table(config_.position_embedding_name, num_rows, {0, num_rows});
    }
    for (const LayerSpec& layer : config_.layers) weights.layers.push_back(load_layer(layer));
    if (!config_.share.is_last()) return weights;
    weights.final_norm = load_norm(config_.final_norm, config_.hidden_size);
    if (config_.lm_head) weights.output = load_layer_part(*config_.lm_head);
    return weights;
  }

  LayerWeights load_attention(const LayerSpec& spec) const {
    LayerWeights layer;
    layer.input_norm = load_norm(spec.input_norm, config_.hidden_size);
    layer.qkv = load_layer_part(spec.qkv);
    layer.q_norm = load_norm(spec.q_norm, config_.q_norm_size());
    layer.k_norm = load_norm(spec.k_norm, config_.k_norm_size());
    layer.o = load_layer_part(spec.o);
    layer.attention_out_norm = load_norm(spec.attention_out_norm, config_.hidden_size);
    return layer;
  }

  LayerWeights load_layer(const LayerSpec& spec) const {
    LayerWeights layer = load_attention(spec);
    layer.mlp_norm = load_norm(spec.mlp_norm, config_.hidden_size);
    if (spec.mlp.router) layer.mlp.router = load_layer_part(*spec.mlp.router);
    for (size_t i = 0; i < spec.mlp.gate_up.size(); ++i) {
      layer.mlp.gate_up.push_back(load_layer_part(spec.mlp.gate_up[i]));
      layer.mlp.down.push_back(load_layer_part(spec.mlp.down[i]));
    }
    layer.mlp_out_norm = load_norm(spec.mlp_out_norm, config_.hidden_size);
    return layer;
  }

 private:
  void report(size_t num_bytes) const {
    if (on_part_) on_part_(num_bytes);
  }

  LinearOp load_tied_output() const {
    if (const auto spec = quantized_table(config_, loading_.source, config_.embedding_name,
                                          {config_.vocab_size, config_.vocabulary()})) {
      return load_layer_part(*spec);
    }
    const GemmKernel* kernel = nullptr;
    const auto check = [&](const PackedWeight& table, const TensorView& stored) {
      kernel = choose_gemm_kernel(problem_of(table), loading_.demands).kernel;
      if (!loading_.has_self_check) return;
      const auto outputs = read_outputs(stored, checked_outputs(table.N, kCheckedOutputs));
      self_check(context_, config_.embedding_name, table, *kernel, outputs);
    };
    PackedWeight table =
        load_table(config_.embedding_name, config_.vocab_size, config_.vocabulary(), check);
    std::vector<LinearOp::Section> sections;
    sections.push_back({.weight = std::move(table), .kernel = kernel});
    return {std::move(sections), {}};
  }

  /// `check` sees the packed rows and the stored ones, before the latter's pages are released.
  using TableCheck = std::function<void(const PackedWeight&, const TensorView&)>;
  PackedWeight load_table(const std::string& name, int64_t num_rows, const InputRange& own,
                          const TableCheck& check = {}) const {
    if (const auto spec = quantized_table(config_, loading_.source, name, {num_rows, own})) {
      return load_layer_part(*spec).take_weight();
    }
    const TensorInfo& info =
        find_dense_tensor(loading_.source, name, {num_rows, config_.hidden_size});
    const TensorView view = loading_.source.view(info).rows(own.begin, own.end);
    PackedWeight weight = pack_dense(context_, {&view, 1});
    if (check) check(weight, view);
    loading_.source.release(info);
    report(weight.data.num_bytes());
    return weight;
  }

  LinearOp load_layer_part(const LinearSpec& spec) const {
    LinearOp op = load_linear(context_, loading_, spec);
    report(op.packed_bytes());
    return op;
  }

  NormWeights load_norm(const NormSpec& spec, int64_t size) const {
    NormWeights norm = load_norm_weights(loading_.source, spec, size);
    report((norm.weight.size() + norm.bias.size()) * sizeof(float));
    return norm;
  }
  NormWeights load_norm(const std::optional<NormSpec>& spec, int64_t size) const {
    return spec ? load_norm(*spec, size) : NormWeights{};
  }

  ExecContext& context_;
  const DecoderConfig& config_;
  const LinearLoading& loading_;
  const PartLoaded& on_part_;
};

}  // namespace

std::optional<LinearSpec> quantized_table(const DecoderConfig& config, const TensorSource& source,
                                          const std::string& table_name, const TableRows& rows) {
  constexpr std::string_view kEnding = ".weight";
  if (source.find(table_name) != nullptr || !table_name.ends_with(kEnding)) return std::nullopt;
  LinearSpec spec;
  spec.in_features = config.hidden_size;
  spec.parts.push_back({.name = table_name.substr(0, table_name.size() - kEnding.size()),
                        .out_features = rows.own.size(),
                        .row_begin = rows.own.begin,
                        .stored_rows = rows.num_rows,
                        .is_usually_dense = true});
  return spec;
}

std::vector<LinearPlan> plan_part(const DecoderConfig& config, const DecoderPart& part,
                                  const LinearLoading& loading) {
  switch (part.kind) {
    case PartKind::kNorm:
      return {plan_norm(part, loading.source)};
    case PartKind::kLinear:
      return plan_linear(loading, *part.linear);
    case PartKind::kEmbedding:
    case PartKind::kPositions:
      break;
  }
  if (const auto table = quantized_table(config, loading.source, part)) {
    return plan_linear(loading, *table);
  }
  return {plan_table(config, part, loading)};
}

void check_all_tensors_used(const DecoderConfig& config, const LinearLoading& loading) {
  const TensorSource& source = loading.source;
  const std::set<std::string> used = used_tensor_names(config, loading);
  std::vector<std::string> unused;
  for (const TensorInfo& info : source.tensors()) {
    if (used.count(info.name) > 0 || has_ignored_suffix(config, info.name)) continue;
    if (!has_ignored_prefix(config, info.name)) unused.push_back(quote(info.name));
  }
  if (unused.empty()) return;
  const size_t num_unused = unused.size();
  unused.resize(std::min(num_unused, size_t{3}));
  throw CheckpointError(str(source.description(), ": expected only tensors that the model ",
                            quote(config.family), " of ", config.where, " uses, got ", num_unused,
                            " more, such as ", unused,
                            ". Check that config.json belongs to these weights."));
}

std::string note_of_left_out(const DecoderConfig& config, const TensorSource& source) {
  int64_t num_left_out = 0;
  std::vector<std::string> found;
  for (const std::string& prefix : config.ignored_prefixes) {
    const auto num_here = std::count_if(
        source.tensors().begin(), source.tensors().end(),
        [&](const TensorInfo& info) { return std::string_view(info.name).starts_with(prefix); });
    num_left_out += num_here;
    if (num_here > 0) found.push_back(prefix + "*");
  }
  if (num_left_out == 0) return {};
  return str("the text model of ", quote(config.family), " alone is loaded: ", num_left_out,
             " tensors of other parts, ", found, ", are left out");
}

NormWeights load_norm_weights(const TensorSource& source, const NormSpec& spec, int64_t size) {
  NormWeights norm;
  norm.weight = to_f32(source.view(find_dense_tensor(source, spec.weight_name, {size})));
  if (!spec.bias_name.empty()) {
    norm.bias = to_f32(source.view(find_dense_tensor(source, spec.bias_name, {size})));
  }
  return norm;
}

void check_tied_output(const DecoderConfig& config, const TensorSource& source) {
  const TensorInfo* copy = source.find(config.tied_output_name);
  if (copy == nullptr) return;
  const TensorInfo& embedding = *source.find(config.embedding_name);
  if (copy->dtype == embedding.dtype && copy->shape == embedding.shape) {
    const InputRange own = config.vocabulary();
    const TensorView rows = source.view(embedding).rows(own.begin, own.end);
    const TensorView others = source.view(*copy).rows(own.begin, own.end);
    if (std::memcmp(others.data, rows.data, rows.num_bytes()) == 0) return;
  }
  throw CheckpointError(str(source.description(), ": tensor ", quote(copy->name),
                            ": expected none or a copy of ", quote(embedding.name),
                            ", since tie_word_embeddings is true, got other values. Set "
                            "tie_word_embeddings to false if the tensor is meant to be used."));
}

DecoderWeights load_decoder_weights(ExecContext& context, const DecoderConfig& config,
                                    const LinearLoading& loading, const PartLoaded& on_part) {
  return Loader(context, config, loading, on_part).load();
}

LayerWeights load_layer_weights(ExecContext& context, const DecoderConfig& config,
                                const LinearLoading& loading, int64_t layer_index) {
  return Loader(context, config, loading, {})
      .load_layer(config.layers.at(static_cast<size_t>(layer_index)));
}

LayerWeights load_attention_weights(ExecContext& context, const DecoderConfig& config,
                                    const LinearLoading& loading, int64_t layer_index) {
  return Loader(context, config, loading, {})
      .load_attention(config.layers.at(static_cast<size_t>(layer_index)));
}

WeightMemory memory_of(const DecoderWeights& weights, const DecoderConfig& config,
                       Precision precision) {
  WeightMemory memory;
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    add_memory(layer.qkv, precision, memory.always_read);
    add_memory(layer.o, precision, memory.always_read);
    auto& mlp = layer.mlp.router ? memory.experts : memory.always_read;
    for (const LinearOp& op : layer.mlp.gate_up) add_memory(op, precision, mlp);
    for (const LinearOp& op : layer.mlp.down) add_memory(op, precision, mlp);
    if (layer.mlp.router) {
      add_memory(*layer.mlp.router, precision, memory.always_read);
      memory.expert_share = static_cast<double>(config.layers[i].mlp.num_experts_per_token) /
                            static_cast<double>(layer.mlp.router->out_features());
    }
  }
  add_memory(weights.output, precision, memory.always_read);
  return memory;
}

}  // namespace halley
