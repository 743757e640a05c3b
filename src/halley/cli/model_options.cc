#include "halley/cli/model_options.h"

#include <chrono>
#include <utility>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/cli/progress.h"
#include "halley/models/all/load_model.h"

namespace halley::cli {

void add_source_options(CLI::App& app, ModelOptions& options) {
  app.add_option("MODEL", options.model, "Model directory (a Hugging Face checkpoint)");
  app.add_option("--load-format", options.load_format,
                 "auto: the checkpoint's files; dummy: made-up weights, for speed alone")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->capture_default_str();
  app.add_option(
      "--config", options.config_name,
      "With dummy weights: a built-in shape instead of MODEL (llama-1b, llama-3-8b, ...)");
  app.add_option("--dtype", options.dtype, "With dummy weights: their type")
      ->check(CLI::IsMember({"float16", "bfloat16", "float32"}));
}

void add_model_options(CLI::App& app, ModelOptions& options) {
  add_source_options(app, options);
  app.add_option("--threads", options.threads, "Threads; 0: all cores that the process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--kv-dtype", options.kv_dtype,
                 "Type of the KV cache: f32, f16, bf16, int8, int4 or fp8; auto: that of the "
                 "weights")
      ->check([](const std::string& name) {
        if (name == "auto" || kv_dtype_from_name(name)) return std::string();
        return str("expected auto, f32, f16, bf16, int8, int4 or fp8, got ", quote(name));
      })
      ->capture_default_str();
}

void add_length_option(CLI::App& app, ModelOptions& options) {
  app.add_option("--max-model-len", options.max_model_len,
                 "Longest sequence, prompt and output; 0: what the model allows")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
}

std::optional<KvDType> parse_kv_dtype(const std::string& name) { return kv_dtype_from_name(name); }

namespace {

ModelFiles open_dummy_files(const ModelOptions& options) {
  if (options.config_name.empty() == options.model.empty()) {
    throw InputError("--load-format dummy: expected either MODEL or --config NAME for the shape.");
  }
  HfConfig config =
      options.model.empty() ? builtin_config(options.config_name) : HfConfig::load(options.model);
  if (!options.dtype.empty()) {
    Json json = config.json();
    json.erase("torch_dtype");
    json["dtype"] = options.dtype;
    config = HfConfig::parse(json.dump(), config.where());
  }
  auto source = make_dummy_weights(list_dense_tensors(read_decoder_config(config)));
  return {std::move(config), std::move(source)};
}

}  // namespace

ModelFiles open_model_files(const ModelOptions& options) {
  if (options.load_format == "dummy") return open_dummy_files(options);
  if (!options.config_name.empty() || !options.dtype.empty()) {
    throw InputError(
        "--config and --dtype: expected --load-format dummy with them; a checkpoint "
        "says both itself.");
  }
  if (options.model.empty()) {
    throw InputError("expected MODEL, a directory with a Hugging Face checkpoint. See --help.");
  }
  HfConfig config = HfConfig::load(options.model);
  auto source = open_checkpoint_weights(options.model);
  return {std::move(config), std::move(source)};
}

LoadedModel load_model_files(const ModelOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const ModelFiles files = open_model_files(options);
  LoadedModel loaded;
  const int num_threads = options.threads > 0 ? options.threads : num_usable_cores();
  loaded.pool = std::make_unique<ThreadPool>(num_threads);
  loaded.context = std::make_unique<ExecContext>(ExecContext{*loaded.pool});
  ProgressBar bar("loading");
  const auto show = [&](size_t done, size_t total) {
    bar.update(static_cast<double>(done), static_cast<double>(total));
  };
  loaded.model =
      load_model(*loaded.context, files.config, *files.source, show, options.max_model_len);
  loaded.generation = options.model.empty() ? GenerationConfig{}
                                            : load_generation_config(options.model, files.config);
  loaded.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

}  // namespace halley::cli
