#include "halley/models/options/model_options.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/weights/model_weights.h"
#include "halley/models/parallel/load_ranked_model.h"
#include "halley/quant/all/builtin_quant_configs.h"
#include "halley/quant/at_load/at_load.h"

namespace halley {
namespace {

constexpr const char* kDeviceExpected = "expected auto, cpu, cuda or cuda:N, got ";

bool is_device(const std::string& text) {
  const bool is_numbered = text.size() > 5 && text.size() < 9 && text.starts_with("cuda:") &&
                           text.find_first_not_of("0123456789", 5) == std::string::npos;
  return text == "auto" || text == "cpu" || text == "cuda" || is_numbered;
}

constexpr size_t kQuantConfigBytesMax = 1 << 20;

}  // namespace

std::string device_name_error(const std::string& device) {
  return is_device(device) ? std::string() : str(kDeviceExpected, quote(device));
}

DeviceChoice choose_device(const std::string& device) {
  if (!is_device(device)) {
    throw InputError(str("HALLEY_DEVICE: ", kDeviceExpected, quote(device), "."));
  }
  if (device == "cpu") return {};
  const int ordinal = device.starts_with("cuda:") ? std::stoi(device.substr(5)) : 0;
  std::string reason = why_no_gpu(ordinal);
  if (reason.empty()) return {.device = "cuda", .gpu_ordinal = ordinal};
  if (device == "auto") {
    if (!is_built_with_cuda()) reason.clear();
    return {.why_not_gpu = std::move(reason)};
  }
  if (!is_built_with_cuda()) throw UnsupportedError(reason);
  throw DeviceError(reason);
}

int num_threads_of(int threads) { return threads > 0 ? threads : num_usable_cores(); }

namespace {

QuantConfig dummy_quant_config(const ModelOptions& options, const HfConfig& config) {
  if (options.quant_config.empty()) return read_quant_config(config, options.model);
  if (const char* text = builtin_quant_config(options.quant_config)) {
    return quant_config_of(HfConfig::parse(text, "--quant-config"));
  }
  const bool is_json = options.quant_config.front() == '{';
  return quant_config_of(HfConfig::parse(
      is_json ? options.quant_config : read_text_file(options.quant_config, kQuantConfigBytesMax),
      is_json ? "--quant-config" : options.quant_config));
}

/// Replaces the declaration of weights in full precision by that of --quantization.
void quantize_at_load(const ModelOptions& options, QuantConfig* quant) {
  if (options.quantization.empty()) return;
  if (quant->fields) {
    throw InputError(str("--quantization: expected weights in full precision, got ",
                         quote(quant->method), " of ", quant->where(),
                         ". Leave the option out, or give the unquantized model."));
  }
  *quant = at_load_config(options.quantization);
}

constexpr const char* kAutoDtype = "auto";

// torch and vLLM have two names for some types.
std::string dtype_name_of(const ModelOptions& options) {
  if (options.dtype == "half") return "float16";
  return options.dtype == "float" ? "float32" : options.dtype;
}

ModelFiles open_dummy_files(const ModelOptions& options) {
  if (options.config_name.empty() == options.model.empty()) {
    throw InputError("--load-format dummy: expected either MODEL or --config NAME for the shape.");
  }
  HfConfig config =
      options.model.empty() ? builtin_config(options.config_name) : HfConfig::load(options.model);
  if (options.dtype != kAutoDtype) {
    Json json = config.json();
    json.erase("torch_dtype");
    json["dtype"] = dtype_name_of(options);
    config = HfConfig::parse(json.dump(), config.where());
  }
  QuantConfig quant = dummy_quant_config(options, config);
  quantize_at_load(options, &quant);
  const DecoderConfig decoder = read_decoder_config(config);
  auto source = make_dummy_weights(quant.fields ? list_quantized_tensors(decoder, quant)
                                                : list_dense_tensors(decoder));
  return {std::move(config), std::move(quant), std::move(source)};
}

}  // namespace

ModelFiles open_model_files(const ModelOptions& options) {
  if (options.load_format == "dummy") return open_dummy_files(options);
  if (!options.config_name.empty() || !options.quant_config.empty()) {
    throw InputError(
        "--config and --quant-config: expected --load-format dummy with them; a checkpoint has "
        "its own.");
  }
  if (options.model.empty()) {
    throw InputError(
        "expected MODEL, a directory with a Hugging Face checkpoint or a GGUF file. See --help.");
  }
  HfConfig config = HfConfig::load(options.model);
  QuantConfig quant = read_quant_config(config, options.model);
  quantize_at_load(options, &quant);
  auto source = open_model_weights(options.model);
  return {std::move(config), std::move(quant), std::move(source)};
}

namespace {

/// --dtype for a checkpoint; nothing for dummy weights, which are stored in that type.
std::optional<DType> activation_dtype_of(const ModelOptions& options, const DeviceChoice& device) {
  if (options.dtype == kAutoDtype || options.load_format == "dummy") return std::nullopt;
  if (device.device == "cpu") {
    throw InputError(
        "--dtype: expected --load-format dummy or a GPU with it; on the CPU activations are "
        "float32, and a checkpoint has its own type of weights.");
  }
  const std::string dtype = dtype_name_of(options);
  if (dtype == "float16") return DType::kF16;
  if (dtype == "bfloat16") return DType::kBf16;
  throw InputError(str("--dtype: expected float16 or bfloat16 on a GPU, got ", options.dtype,
                       ". Use --device cpu for float32."));
}

}  // namespace

LoadOptions load_options_of(const ModelOptions& options, const ModelFiles& files,
                            const DeviceChoice& device) {
  LoadOptions load;
  load.device = device.device;
  load.gpu_ordinal = device.gpu_ordinal;
  load.gpu_memory_utilization = options.gpu_memory_utilization;
  load.is_batch_invariant = options.is_batch_invariant;
  load.activation_dtype = activation_dtype_of(options, device);
  if (device.device == "cpu" && (options.tune || !options.tuned_plans.empty())) {
    throw UnsupportedError(str(options.tune ? "--tune" : "--tuned-plans",
                               ": expected a model on a GPU, it runs on the CPU. ",
                               "Leave the option out."));
  }
  load.tuned_plans = options.tuned_plans;
  load.tune = options.tune;
  load.quant = files.quant;
  for (const std::string& text : options.quant_overrides) {
    load.overrides.push_back(parse_quant_override(text));
  }
  load.kernels.forced = env_string("HALLEY_KERNEL").value_or("");
  load.kernels.required = options.required_kernels;
  load.has_self_check = options.has_self_check;
  load.max_length = options.max_model_len;
  load.share.has_whole_experts = options.ranks.has_whole_experts;
  return load;
}

LoadedModel load_model_by(const ModelOptions& options, const DeviceChoice& device,
                          int num_local_ranks, const LoadStep& step) {
  const auto start = std::chrono::steady_clock::now();
  const ModelFiles files = open_model_files(options);
  const LoadOptions load = load_options_of(options, files, device);
  LoadedModel loaded;
  const int num_threads = num_threads_of(options.threads) / num_local_ranks;
  loaded.pool = std::make_unique<ThreadPool>(std::max(1, num_threads));
  loaded.context = std::make_unique<ExecContext>(ExecContext{.pool = *loaded.pool});
  LoadedDecoder decoder = step(*loaded.context, files, load);
  loaded.model = std::move(decoder.model);
  loaded.plan = std::move(decoder.plan);
  loaded.times = decoder.times;
  loaded.generation = options.model.empty() ? GenerationConfig{}
                                            : load_generation_config(options.model, files.config);
  loaded.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

Precision precision_of(const ModelOptions& options, const ModelPlan& plan) {
  if (options.precision == "full") return Precision::kFull;
  const bool is_on_gpu = plan.device != "cpu";
  for (const ModelPart& part : plan.parts) {
    for (const GpuLinearPlan& linear : part.gpu_plans) {
      if (!linear.low_kernel.empty()) return Precision::kLow;
    }
    for (const LinearPlan& linear : part.plans) {
      if (!is_on_gpu && linear.low_kernel != nullptr) return Precision::kLow;
    }
  }
  throw InputError(str("--precision low: expected a model with weights in two precisions, got ",
                       plan.format, is_on_gpu ? " on a GPU, which keeps two with f16 alone" : "",
                       ". Leave the option out, or convert the model."));
}

int num_thread_ranks(const RankOptions& options) {
  return std::max(1, options.tensor_parallel_size) * options.pipeline_parallel_size;
}

void prepare_thread_ranks(int num_ranks) {
  if (num_ranks > 1) load_kernels_eagerly();
}

LoadedDecoder load_here(ExecContext& context, const RankOptions& options, const ModelFiles& files,
                        const LoadProgress& progress, const LoadOptions& load) {
  const int num_ranks = num_thread_ranks(options);
  if (num_ranks == 1) return load_model(context, files.config, *files.source, progress, load);
  return load_ranked_model(
      context,
      {.num_ranks = num_ranks,
       .num_stages = options.pipeline_parallel_size,
       .timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000))},
      files.config, *files.source, progress, load);
}

}  // namespace halley
