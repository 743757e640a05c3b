#include "halley/cli/simulated_model.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/cli/bench_model.h"
#include "halley/cli/model_options.h"
#include "halley/cli/named_model.h"
#include "halley/core/packed_weight.h"
#include "halley/models/base/decoder.h"
#include "halley/models/base/step_cost.h"
#include "halley/simulation/simulated_device.h"
#include "halley/simulation/step_ratios.h"

namespace halley::cli {
namespace {

constexpr size_t kRatioBytesMax = size_t{1} << 20;
constexpr const char* kAuto = "auto";
constexpr const char* kUnquantized = "f16";

bool is_in_two_precisions(const LinearPlan& linear) {
  return has_low_precision(linear.weight.layout);
}

// The other operand of a GEMM: "a8" for INT8.
std::string activation_name_of(ActivationQuant activation) {
  switch (activation) {
    case ActivationQuant::kNone:
      return "a16";
    case ActivationQuant::kS8Token:
    case ActivationQuant::kS8Static:
      return "a8";
    case ActivationQuant::kE4m3Token:
    case ActivationQuant::kE4m3Static:
      return "af8";
    case ActivationQuant::kE4m3Group128:
      return "af8_block";
    case ActivationQuant::kS4S8Block128:
      return "ax";
  }
  HALLEY_CHECK(false, static_cast<int>(activation));
  return {};
}

std::string ratio_name_of(const LinearPlan& linear) {
  const WeightDesc& weight = linear.weight;
  if (!is_quantized(weight.layout)) return kUnquantized;
  const std::string activation = activation_name_of(weight.activation);
  if (weight.layout == PackedLayout::kF8E4M3Quad) {
    return activation == "af8" ? "fp8" : str("f8", activation);
  }
  if (weight.layout == PackedLayout::kE2m1Quad) return str("f4", activation);
  const bool is_grouped = activation == "a8" && weight.group_size < linear.in_features;
  return str("w", weight.bits, activation, is_grouped ? "_group" : "");
}

// Bytes of the weights that steps read.
struct ReadBytes {
  double always = 0, experts = 0, expert_share = 0;
};

ReadBytes read_bytes_of(const ModelPlan& plan, Precision precision) {
  ReadBytes bytes;
  for (const ModelPart& part : plan.parts) {
    const bool is_output = part.name == "embedding" && !plan.config.lm_head;
    if (part.kind != "linear" && !is_output) continue;
    const bool is_expert = part.name.find(".experts.") != std::string::npos;
    for (const LinearPlan& linear : part.plans) {
      // Low precision reads the upper one of two equal planes.
      const bool is_half = precision == Precision::kLow && is_in_two_precisions(linear);
      (is_expert ? bytes.experts : bytes.always) += linear.stored_bytes / (is_half ? 2 : 1);
    }
  }
  for (const LayerSpec& layer : plan.config.layers) {
    if (!layer.mlp.router) continue;
    bytes.expert_share = static_cast<double>(layer.mlp.num_experts_per_token) /
                         static_cast<double>(layer.mlp.down.size());
  }
  return bytes;
}

DecoderCost cost_of(const ModelPlan& plan, KvDType kv_dtype, Precision precision) {
  const GemmType type = precision == Precision::kLow ? GemmType::kE4m3 : linear_type_of(plan);
  DecoderCost cost = decoder_cost(plan.config, WeightMemory{}, kv_dtype, type);
  const ReadBytes bytes = read_bytes_of(plan, precision);
  cost.always_bytes = bytes.always;
  cost.expert_bytes = bytes.experts;
  cost.expert_share = bytes.expert_share;
  return cost;
}

// A device sets memory aside for the activations of its largest step: the residual stream in f32,
// everything between operations in 16 bits, logits in f32.
double step_bytes_of(const DecoderConfig& config, const StepLimits& limits) {
  double row = 0;
  for (const LayerSpec& layer : config.layers) {
    const MlpSpec& mlp = layer.mlp;
    const double num_experts = mlp.router ? static_cast<double>(mlp.num_experts_per_token) : 1;
    const auto widest = static_cast<double>(layer.qkv.out_features() + layer.o.in_features) +
                        num_experts * static_cast<double>(mlp.gate_up.front().out_features() +
                                                          mlp.down.front().in_features);
    row = std::max(row, 2 * widest);
  }
  const auto hidden = static_cast<double>(config.hidden_size);
  row += (4 + 2 + 2) * hidden;  // the stream, a norm's output, a block's output
  const double logit_row = 4 * static_cast<double>(config.vocab_size) + (4 + 2) * hidden;
  return static_cast<double>(limits.num_rows) * row +
         static_cast<double>(limits.num_logit_rows) * logit_row;
}

KvRoom kv_room_of(const SimulatedModelOptions& options, const ModelPlan& plan,
                  const StepLimits& limits) {
  const SimulatedDevice& device = simulated_device(options.device);
  const double memory = static_cast<double>(device.memory_bytes) * options.gpu_memory_utilization;
  const double weights = static_cast<double>(plan.stored_bytes);
  const double steps = step_bytes_of(plan.config, limits);
  if (weights + steps >= memory) {
    throw InputError(str("device: expected a model that fits ", format_bytes(memory), " of a ",
                         device.name, ", got ", format_bytes(weights), " of weights and ",
                         format_bytes(steps),
                         " for the largest step. Use fewer bits a weight, or set "
                         "--max-num-batched-tokens lower."));
  }
  return device_kv_room(static_cast<int64_t>(memory - weights - steps));
}

RatioTable ratios_of(const SimulatedModelOptions& options) {
  if (options.ratios_file.empty()) return RatioTable::built_in();
  return RatioTable::parse(read_text_file(options.ratios_file, kRatioBytesMax),
                           options.ratios_file);
}

}  // namespace

void add_simulated_model_options(CLI::App& app, SimulatedModelOptions& options) {
  app.add_option(
      "MODEL", options.model,
      "Model directory, GGUF file or ORG/NAME, of which the configuration alone is read");
  add_lookup_options(app, options.lookup);
  app.add_option("--config", options.config_name,
                 "A built-in shape instead of MODEL (llama-1b, llama-3.1-8b, ...)");
  app.add_option("--quant-config", options.quant_config,
                 str("Format of the weights: ", kUnquantized, ", ", quant_config_names_in_words(),
                     ", a quantization_config (a JSON object or a file), or auto: the model's"))
      ->capture_default_str();
  add_kv_option(app, "--kv-dtype", options.kv_dtype, "Type of the KV cache");
  app.add_option("--device", options.device, "GPU that is simulated")
      ->check(CLI::IsMember(simulated_device_names()))
      ->capture_default_str();
  app.add_option("--gpu-memory-utilization", options.gpu_memory_utilization,
                 "Fraction of the GPU's memory for weights, workspace and KV cache")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  app.add_option("--ratios", options.ratios_file,
                 "JSON of measured times of steps over their roofline times; default: those of "
                 "bench/results, on an H200");
}

ModelPlan plan_simulated_model(const SimulatedModelOptions& options) {
  if (options.config_name.empty() == options.model.empty()) {
    throw InputError("simulate: expected either MODEL or --config NAME. See --help.");
  }
  ModelOptions model;
  model.load_format = "dummy";
  model.model = options.model;
  model.config_name = options.config_name;
  model.dtype = "float16";
  if (options.quant_config != kAuto && options.quant_config != kUnquantized) {
    model.quant_config = options.quant_config;
  }
  const ModelFiles files = open_model_files(model);
  LoadOptions load;
  load.quant = files.quant;
  ModelPlan plan = plan_model(files.config, *files.source, load);
  if (options.quant_config == kUnquantized && ratio_names_of(plan).front() != kUnquantized) {
    throw InputError(str("--quant-config: expected a model that is not quantized for ",
                         kUnquantized, ", got one of format ", plan.format, ". Use auto."));
  }
  return plan;
}

std::vector<std::string> ratio_names_of(const ModelPlan& plan) {
  std::map<std::string, double> num_bytes;
  for (const ModelPart& part : plan.parts) {
    if (part.kind != "linear" || part.name == "lm_head") continue;
    for (const LinearPlan& linear : part.plans) {
      if (is_in_two_precisions(linear)) return {"nested_full", "nested_low"};
      num_bytes[ratio_name_of(linear)] += linear.stored_bytes;
    }
  }
  std::pair<std::string, double> most;
  for (const auto& entry : num_bytes) {
    if (entry.second > most.second) most = entry;
  }
  return {most.first};
}

std::vector<PrecisionLevel> levels_of(const ModelPlan& plan, KvDType kv_dtype) {
  DecoderCost full = cost_of(plan, kv_dtype, Precision::kFull);
  std::vector<PrecisionLevel> levels =
      nested_levels(full, cost_of(plan, kv_dtype, Precision::kLow));
  if (levels.empty()) {
    levels.push_back({.name = ratio_names_of(plan).front(), .cost = std::move(full)});
  }
  return levels;
}

SimulatedEngine make_simulated_engine(const ModelPlan& plan, const SimulatedModelOptions& options,
                                      const EngineConfig& config) {
  const ModelShape shape = shape_of(plan.config);
  EngineConfig engine_config = config;
  engine_config.kv_dtype = parse_kv_dtype(options.kv_dtype);
  engine_config.has_prefix_caching = false;  // a trace does not say what prompts begin with
  const EngineConfig full = with_defaults(engine_config, shape, /*is_on_host=*/false);
  SimulatedEngine engine = {
      .plan = plan_engine(full, shape, kv_room_of(options, plan, step_limits(full, shape))),
      .levels = levels_of(plan, *full.kv_dtype),
      .ratios = {},
      .rates = simulated_device(options.device).rates};
  const std::vector<std::string> names = ratio_names_of(plan);
  const RatioTable ratios = ratios_of(options);
  for (size_t level = 0; level < engine.levels.size(); ++level) {
    engine.ratios.push_back(ratios.of(names.at(level)));
  }
  return engine;
}

}  // namespace halley::cli
