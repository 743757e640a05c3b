#include "halley/models/cuda/cuda_weights.h"

#include <algorithm>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/tensor.h"
#include "halley/cuda/attention/attention_plan.h"
#include "halley/cuda/ops/join_columns.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/models/cuda/cuda_self_check.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/open_section.h"
#include "halley/quant/base/stored_outputs.h"
#include "halley/sampling/cuda/cuda_sampler.h"

namespace halley::cuda {
namespace {

/// Small f32 arrays of all layers, copied together.
class SmallArrays {
 public:
  /// Sets `*pointer`, whose address must stay valid, once all arrays have been copied.
  void add(const std::vector<float>& values, const float** pointer) {
    constexpr size_t kAlignment = DeviceArena::kAlignment / sizeof(float);
    const size_t begin = round_up(values_.size(), kAlignment);
    values_.resize(begin);
    values_.insert(values_.end(), values.begin(), values.end());
    places_.emplace_back(begin, pointer);
  }

  DeviceBuffer copy(const CudaStream& stream) const {
    DeviceBuffer memory(values_.size() * sizeof(float), "norms");
    check_cuda(cudaMemcpyAsync(memory.data(), values_.data(), values_.size() * sizeof(float),
                               cudaMemcpyHostToDevice, stream.get()),
               "copy of norms");
    stream.synchronize();
    for (const auto& [begin, pointer] : places_) {
      *pointer = reinterpret_cast<const float*>(memory.data()) + begin;
    }
    return memory;
  }

 private:
  std::vector<float> values_;
  std::vector<std::pair<size_t, const float**>> places_;
};

/// Walks the specification part by part, in the order of list_decoder_parts().
class Loader {
 public:
  Loader(const CudaLoading& target, CudaWeightLoader& loader, const DecoderConfig& config,
         const LinearLoading& loading, const PartLoaded& on_part)
      : target_(target),
        loader_(loader),
        config_(config),
        loading_(loading),
        on_part_(on_part),
        self_check_(target.device) {}

  CudaDecoderWeights load() {
    CudaDecoderWeights weights;
    weights.layers.resize(config_.layers.size());
    weights.ropes.resize(config_.ropes.size());
    if (config_.has_embedding() && config_.lm_head) {
      weights.embedding =
          load_table(config_.embedding_name, config_.vocab_size, config_.vocabulary());
    } else if (config_.has_embedding()) {
      check_tied_output(config_, loading_.source);
      weights.output = load_tied_output();
      weights.is_output_tied = true;
    }
    if (config_.share.is_first() && !config_.position_embedding_name.empty()) {
      const int64_t num_rows = config_.num_stored_positions + config_.position_offset;
      weights.positions = load_table(config_.position_embedding_name, num_rows, {0, num_rows});
    }
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      load_layer(config_.layers[i], weights.layers[i]);
    }
    if (config_.share.is_last()) {
      load_norm(config_.final_norm, weights.final_norm);
      if (config_.lm_head) weights.output = load_linear(*config_.lm_head, DType::kF32);
    }
    for (size_t i = 0; i < config_.ropes.size(); ++i) load_rope(config_.ropes[i], weights.ropes[i]);
    weights.small = small_.copy(target_.device.stream);
    if (loading_.times != nullptr) loading_.times->self_check += self_check_.seconds();
    return weights;
  }

 private:
  void report(size_t num_bytes) const {
    if (on_part_) on_part_(num_bytes);
  }

  /// The rows `own` of a table. `stored`, where set, gets some of them, read before the table's
  /// pages are released.
  CudaLinear::Section load_table(const std::string& name, int64_t num_rows, const InputRange& own,
                                 StoredSections* stored = nullptr) {
    if (const auto spec = quantized_table(config_, loading_.source, name, {num_rows, own})) {
      return load_decoded_table(name, *spec, stored);
    }
    const TensorInfo& info =
        find_dense_tensor(loading_.source, name, {num_rows, config_.hidden_size});
    const TensorView view = loading_.source.view(info).rows(own.begin, own.end);
    CudaLinear::Section section = loader_.load_dense(name, {&view, 1}, {}, 0);
    if (stored != nullptr) {
      stored->push_back(read_outputs(view, checked_outputs(own.size(), kStoredOutputs)));
    }
    loading_.source.release(info);
    report(section.device_bytes());
    return section;
  }

  /// The same of a table that is not in full precision: its values go to the activations' type.
  CudaLinear::Section load_decoded_table(const std::string& name, const LinearSpec& spec,
                                         StoredSections* stored) {
    const std::vector<OpenSection> sections = open_sections(loading_.scheme, loading_.source, spec);
    const PackedWeight packed = pack_section(target_.host, sections.at(0));
    std::vector<float> values(static_cast<size_t>(packed.N * packed.K));
    target_.host.pool.run(
        packed.N, [&](int64_t n, int) { unpack_row(packed, n, values.data() + n * packed.K); });
    const TensorView view = {
        reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {packed.N, packed.K}};
    CudaLinear::Section section = loader_.load_dense(name, {&view, 1}, {}, 0);
    section.form = str(packed.layout, ", decoded to ", target_.activation_dtype,
                       ": embeddings are looked up in it");
    if (stored != nullptr) {
      const auto indices = checked_outputs(packed.N, kStoredOutputs);
      stored->push_back(read_outputs(target_.host, sections[0], indices));
    }
    release_tensors(loading_.source, sections[0]);
    report(section.device_bytes());
    return section;
  }

  CudaLinear load_tied_output() {
    StoredSections stored;
    std::vector<CudaLinear::Section> sections;
    sections.push_back(load_table(config_.embedding_name, config_.vocab_size, config_.vocabulary(),
                                  loading_.has_self_check ? &stored : nullptr));
    CudaLinear output(config_.embedding_name, target_.activation_dtype, std::move(sections),
                      target_.lt);
    if (loading_.has_self_check) self_check_.check(output, DType::kF32, stored);
    return output;
  }

  /// `y_dtype` is the type of the outputs that a step asks for.
  CudaLinear load_linear(const LinearSpec& spec, DType y_dtype, LinearUse use) {
    StoredSections stored;
    CudaLinear linear = loader_.load(loading_.scheme, loading_.source, spec, use,
                                     loading_.has_self_check ? &stored : nullptr);
    if (loading_.has_self_check && (use == LinearUse::kAlone || is_turn(linear))) {
      self_check_.check(linear, y_dtype, stored);
    }
    report(linear.device_bytes());
    return linear;
  }
  CudaLinear load_linear(const LinearSpec& spec, DType y_dtype) {
    return load_linear(spec, y_dtype, LinearUse::kAlone);
  }
  CudaLinear load_linear(const LinearSpec& spec, LinearUse use = LinearUse::kAlone) {
    return load_linear(spec, target_.activation_dtype, use);
  }

  /// Some of the experts' layers are checked where they run together: then they have one kernel and
  /// one shape. The step is odd, so that gate_up and down both have their turn.
  bool is_turn(const CudaLinear& expert) {
    constexpr int64_t kStep = 31;
    for (const CudaLinear::Section& section : expert.sections()) {
      const RowsWeight* rows = section.weight->rows();
      if (rows == nullptr || rows->w().dtype != target_.activation_dtype) return true;
    }
    return num_expert_layers_++ % kStep == 0;
  }

  NormWeights load_values(const NormSpec& spec, int64_t size) const {
    NormWeights values = load_norm_weights(loading_.source, spec, size);
    report((values.weight.size() + values.bias.size()) * sizeof(float));
    return values;
  }

  void load_norm(const NormSpec& spec, NormParams& norm) {
    const NormWeights values = load_values(spec, config_.hidden_size);
    norm.is_layer_norm = config_.norm_kind == NormKind::kLayer;
    norm.weight_offset = norm.is_layer_norm ? 0 : config_.norm_weight_offset;
    norm.epsilon = config_.norm_epsilon;
    small_.add(values.weight, &norm.weight);
    if (norm.is_layer_norm && !values.bias.empty()) small_.add(values.bias, &norm.bias);
  }
  void load_norm(const std::optional<NormSpec>& spec, std::optional<NormParams>& norm) {
    if (spec) load_norm(*spec, norm.emplace());
  }
  void load_qk_norm(const std::optional<NormSpec>& spec, int64_t size, const float** weight) {
    if (spec) small_.add(load_values(*spec, size).weight, weight);
  }

  void load_rope(const RopeSpec& spec, RopeTable& rope) {
    rope.num_angles = static_cast<int64_t>(spec.inv_freq.size());
    rope.attention_factor = spec.attention_factor;
    small_.add(spec.inv_freq, &rope.inv_freq);
  }

  void load_layer(const LayerSpec& spec, CudaLayerWeights& layer) {
    load_norm(spec.input_norm, layer.input_norm);
    layer.qkv = load_linear(spec.qkv);
    load_qk_norm(spec.q_norm, config_.q_norm_size(), &layer.q_norm);
    load_qk_norm(spec.k_norm, config_.k_norm_size(), &layer.k_norm);
    layer.o = load_linear(spec.o);
    load_norm(spec.attention_out_norm, layer.attention_out_norm);
    load_norm(spec.mlp_norm, layer.mlp_norm);
    if (spec.mlp.router) {
      load_experts(spec.mlp, layer);
    } else {
      layer.gate_up = load_linear(spec.mlp.gate_up[0]);
      layer.down = load_linear(spec.mlp.down[0]);
    }
    load_norm(spec.mlp_out_norm, layer.mlp_out_norm);
  }

  void load_experts(const MlpSpec& spec, CudaLayerWeights& layer) {
    layer.router = load_linear(*spec.router);
    std::vector<CudaLinear> gate_up, down;
    for (size_t i = 0; i < spec.gate_up.size(); ++i) {
      gate_up.push_back(load_linear(spec.gate_up[i], LinearUse::kGrouped));
      down.push_back(load_linear(spec.down[i], LinearUse::kGrouped));
      if (!down.back().picks_inputs()) continue;
      throw UnsupportedError(str("layer ", quote(spec.down[i].display_name()),
                                 ": expected an expert whose inputs are in their own order, got ",
                                 "an order over all ranks. Use one GPU, or --device cpu."));
    }
    layer.experts.emplace(target_.device,
                          ExpertsSpec{.num_experts_per_token = spec.num_experts_per_token,
                                      .is_normalized = spec.is_normalized,
                                      .activation = config_.activation,
                                      .is_gated = config_.is_gated,
                                      .activation_dtype = target_.activation_dtype,
                                      .num_routed = spec.router->out_features(),
                                      .first_expert = spec.first_expert,
                                      .is_batch_invariant = target_.lt.choice().is_batch_invariant},
                          std::move(gate_up), std::move(down));
  }

  const CudaLoading& target_;
  CudaWeightLoader& loader_;
  const DecoderConfig& config_;
  const LinearLoading& loading_;
  const PartLoaded& on_part_;
  CudaSelfCheck self_check_;
  int64_t num_expert_layers_ = 0;
  SmallArrays small_;
};

}  // namespace

std::vector<CudaDecoderWeights::PlacedLinear> CudaDecoderWeights::linears() const {
  std::vector<PlacedLinear> linears;
  if (is_output_tied) linears.push_back({&output});
  for (const CudaLayerWeights& layer : layers) {
    linears.insert(linears.end(), {{&layer.qkv}, {&layer.o}});
    if (!layer.experts) {
      linears.insert(linears.end(), {{&layer.gate_up}, {&layer.down}});
      continue;
    }
    linears.push_back({&*layer.router});
    const CudaExperts& experts = *layer.experts;
    for (size_t i = 0; i < experts.gate_up().size(); ++i) {
      linears.push_back({&experts.gate_up()[i], experts.gate_up_kernel_name()});
      linears.push_back({&experts.down()[i], experts.down_kernel_name()});
    }
  }
  if (!is_output_tied && !output.sections().empty()) linears.push_back({&output});
  return linears;
}

size_t CudaDecoderWeights::device_bytes() const {
  size_t total = small.num_bytes();
  if (embedding) total += embedding->device_bytes();
  if (positions) total += positions->device_bytes();
  for (const PlacedLinear& placed : linears()) total += placed.linear->device_bytes();
  return total;
}

bool CudaDecoderWeights::is_capturable() const {
  return std::all_of(layers.begin(), layers.end(), [](const CudaLayerWeights& layer) {
    return !layer.experts || layer.experts->is_capturable();
  });
}

std::string why_not_on_gpu(const DecoderConfig& config, DType activation_dtype) {
  const AttentionProblem attention = {.num_heads = config.num_heads,
                                      .scale = config.attention_scale};
  const KvPageLayout pages = {.num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
  std::string reason = why_not_cuda_attention(attention, pages, activation_dtype);
  if (!reason.empty()) return "attention: " + reason;
  if (config.hidden_size > kNormColumnsMax) {
    return str("norms of ", config.hidden_size, " columns; at most ", kNormColumnsMax,
               " are served");
  }
  if (config.vocab_size > CudaSampler::kVocabSizeMax) {
    return str("a vocabulary of ", config.vocab_size, " tokens; at most ",
               CudaSampler::kVocabSizeMax, " are served");
  }
  if (config.share.num_ranks > ColumnShares::kNumPartsMax) {
    return str(config.share.num_ranks, " ranks of tensor parallelism; at most ",
               ColumnShares::kNumPartsMax, " are served");
  }
  if (config.vocabulary().size() == 0) {
    return str("a vocabulary of ", config.vocab_size, " tokens for ", config.share.num_ranks,
               " ranks, of which rank ", config.share.rank, " has none");
  }
  return {};
}

CudaDecoderWeights load_cuda_weights(const CudaLoading& target, const DecoderConfig& config,
                                     const LinearLoading& loading, const PartLoaded& on_part) {
  CudaWeightLoader loader(target.host, target.device, target.lt, target.activation_dtype);
  return Loader(target, loader, config, loading, on_part).load();
}

}  // namespace halley::cuda
