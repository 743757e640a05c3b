#include "halley/models/lora/load_adapter.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/exec_context.h"
#include "halley/core/thread_pool.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/models/lora/adapter_config.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

constexpr size_t kConfigBytesMax = 1'000'000;
/// PEFT's names are its own module's, then the model's.
constexpr std::string_view kPrefix = "base_model.model.";

/// Outputs of a linear layer that one tensor of the checkpoint has, and so one pair of the adapter.
struct StoredOutputs {
  std::string name;          // of the checkpoint's tensor without ".weight"
  int64_t first_output = 0;  // of the layer
  int64_t first_row = 0;     // of the tensor
  int64_t num_outputs = 0, stored_rows = 0;
};

/// The layer's outputs, tensor by tensor: fused q, k and v are one, where they lie in this order.
std::vector<StoredOutputs> stored_outputs_of(const LinearSpec& spec) {
  std::vector<StoredOutputs> all;
  int64_t output = 0;
  for (const LinearSpec::Part& part : spec.parts) {
    StoredOutputs* last = all.empty() ? nullptr : &all.back();
    if (last != nullptr && last->name == part.name &&
        last->first_row + last->num_outputs == part.row_begin) {
      last->num_outputs += part.out_features;
    } else {
      all.push_back({part.name, output, part.row_begin, part.out_features, part.stored_rows});
    }
    output += part.out_features;
  }
  return all;
}

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

/// Makes an adapter, pair by pair.
class AdapterBuilder {
 public:
  AdapterBuilder() : pool_(1), context_{pool_} {}

  /// a: [rank, K], b: [N, rank] with the adapter's factor; N outputs from `first_output` on.
  void add_pair(const LinearSpec& spec, int64_t rank, int64_t first_output,
                std::span<const float> a, std::span<const float> b) {
    LowRankPart part = {first_output, op_of(a, rank, spec.in_features),
                        op_of(b, static_cast<int64_t>(b.size()) / rank, rank)};
    adapter_.rank_max = std::max(adapter_.rank_max, rank);
    adapter_.num_bytes += part.a.packed_bytes() + part.b.packed_bytes();
    adapter_.layers[spec.parts.front().name].push_back(std::move(part));
  }

  std::shared_ptr<const Adapter> build(const std::string& name) {
    adapter_.name = name;
    adapter_.id = next_id();
    return std::make_shared<Adapter>(std::move(adapter_));
  }
  bool is_empty() const { return adapter_.layers.empty(); }

 private:
  LinearOp op_of(std::span<const float> values, int64_t num_rows, int64_t num_cols) {
    const TensorView view = {
        reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {num_rows, num_cols}};
    LinearOp::Section section;
    section.weight = pack_dense(context_, {&view, 1});
    section.kernel = &find_gemm_kernel(problem_of(section.weight));
    std::vector<LinearOp::Section> sections;
    sections.push_back(std::move(section));
    return LinearOp(std::move(sections), {});
  }

  ThreadPool pool_;  // the model's is in use
  ExecContext context_;
  Adapter adapter_;
};

/// Calls body(layer) for the linear layers that adapters may have, each once.
template <typename Body>
void for_each_layer(const DecoderConfig& config, const Body& body) {
  for (const LayerSpec& layer : config.layers) {
    body(layer.qkv);
    body(layer.o);
    if (layer.mlp.router) continue;
    for (const LinearSpec& spec : layer.mlp.gate_up) body(spec);
    for (const LinearSpec& spec : layer.mlp.down) body(spec);
  }
}

class AdapterLoader {
 public:
  AdapterLoader(const TensorSource& source, const AdapterConfig& config)
      : source_(source), config_(config) {}

  void load_layer(const LinearSpec& spec, AdapterBuilder& adapter) {
    for (const StoredOutputs& outputs : stored_outputs_of(spec)) {
      const std::string a_name = str(kPrefix, outputs.name, ".lora_A.weight");
      const std::string b_name = str(kPrefix, outputs.name, ".lora_B.weight");
      if (source_.find(a_name) == nullptr && source_.find(b_name) == nullptr) continue;
      const int64_t rank = config_.rank_of(outputs.name);
      const std::vector<float> a = read(a_name, {rank, spec.in_features});
      std::vector<float> b = read(b_name, {outputs.stored_rows, rank});
      const auto factor = static_cast<float>(config_.factor_of(outputs.name));
      for (float& value : b) value *= factor;
      adapter.add_pair(
          spec, rank, outputs.first_output, a,
          std::span<const float>(b).subspan(static_cast<size_t>(outputs.first_row * rank),
                                            static_cast<size_t>(outputs.num_outputs * rank)));
    }
  }

  void check_all_used() const {
    for (const TensorInfo& info : source_.tensors()) {
      if (used_.contains(info.name)) continue;
      throw UnsupportedError(
          str(source_.description(), ": tensor ", quote(info.name), ": expected lora_A and lora_B ",
              "of this model's attention and MLP layers alone (not of experts, embeddings or the ",
              "output layer), got another. Check that the adapter belongs to this model, or merge ",
              "it into its base model with PEFT's merge_and_unload()."));
    }
  }

 private:
  std::vector<float> read(const std::string& name, const Shape& shape) {
    const TensorInfo& info = find_dense_tensor(source_, name, shape);
    used_.insert(name);
    std::vector<float> values = to_f32(source_.view(info));
    if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
      throw CheckpointError(str(source_.description(), ": tensor ", quote(name),
                                ": expected finite numbers, got NaN or infinity."));
    }
    return values;
  }

  const TensorSource& source_;
  const AdapterConfig& config_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace

std::shared_ptr<const Adapter> load_adapter(const fs::path& folder, const DecoderConfig& config,
                                            const std::string& name) {
  const fs::path config_path = folder / "adapter_config.json";
  const AdapterConfig lora = read_adapter_config(
      HfConfig::parse(read_text_file(config_path, kConfigBytesMax), config_path.string()));
  const auto source = open_safetensors_file(folder / "adapter_model.safetensors");
  AdapterBuilder adapter;
  AdapterLoader loader(*source, lora);
  for_each_layer(config, [&](const LinearSpec& spec) { loader.load_layer(spec, adapter); });
  loader.check_all_used();
  if (adapter.is_empty()) {
    throw CheckpointError(
        str(source->description(), ": expected the tensors of an adapter, got none."));
  }
  return adapter.build(name);
}

std::shared_ptr<const Adapter> make_random_adapter(const DecoderConfig& config, int64_t rank,
                                                   uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-0.01f, 0.01f);
  const auto numbers = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = number(random);
    return values;
  };
  AdapterBuilder adapter;
  for_each_layer(config, [&](const LinearSpec& spec) {
    for (const StoredOutputs& outputs : stored_outputs_of(spec)) {
      adapter.add_pair(spec, rank, outputs.first_output, numbers(rank * spec.in_features),
                       numbers(outputs.num_outputs * rank));
    }
  });
  return adapter.build(str("random", seed));
}

std::string why_no_adapters(const CausalLm& model) {
  if (model.takes_adapters()) return {};
  return str("expected a model on one CPU, without other ranks, got one on ", model.device_name(),
             " or in several ranks. Use the CPU, or merge the adapter into its base model.");
}

}  // namespace halley
