// A program that holds the engine itself: loads a checkpoint and continues one prompt, token by
// token. docs/embedding.md explains each step.
//   embedding MODEL PROMPT [cpu | cuda]
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/core/exec_context.h"
#include "halley/engine/engine.h"
#include "halley/models/all/load_model.h"
#include "halley/quant/base/quant_config.h"

namespace {

/// Everything that one model needs. Members are destroyed in reverse order: the engine ends before
/// the threads that it runs on.
struct Assistant {
  Assistant(const std::filesystem::path& folder, const std::string& device)
      : config(halley::HfConfig::load(halley::check_model_dir(folder))),
        tokenizer(halley::load_tokenizer(folder)),
        pool(halley::num_usable_cores()),
        context{.pool = pool} {
    halley::LoadOptions options;
    options.device = device;
    options.quant = halley::read_quant_config(config, folder);
    const auto weights = halley::open_checkpoint_weights(folder);
    halley::LoadedDecoder loaded = halley::load_model(context, config, *weights, {}, options);
    std::fprintf(stderr, "loaded format %s on %s\n", loaded.plan.format.c_str(), device.c_str());
    halley::EngineConfig limits;
    limits.max_model_len = 1024;  // prompt and output of one request
    limits.max_num_seqs = 8;      // requests that run at once
    engine = std::make_unique<halley::Engine>(
        std::move(loaded.model), tokenizer,
        halley::load_generation_config(folder, config).eos_token_ids, limits);
  }

  halley::HfConfig config;
  std::shared_ptr<const halley::Tokenizer> tokenizer;
  halley::ThreadPool pool;
  halley::ExecContext context;
  std::unique_ptr<halley::Engine> engine;
};

/// Prints the continuation as it comes. False where the engine failed.
bool continue_prompt(Assistant& assistant, const std::string& prompt) {
  halley::GenerateRequest request;
  request.prompt_ids = assistant.tokenizer->encode(prompt, /*add_special_tokens=*/true);
  request.sampling.max_tokens = 24;
  request.sampling.temperature = 0;  // greedy
  bool is_ok = true;
  const auto on_token = [&is_ok](const halley::TokenEvent& event) {  // on the engine's thread
    std::fputs(event.text.c_str(), stdout);
    std::fflush(stdout);
    if (event.finish_reason == halley::FinishReason::kError) {
      std::fprintf(stderr, "%s\n", event.error.c_str());
      is_ok = false;
    }
  };
  const halley::SubmitResult submitted =
      assistant.engine->submit(std::move(request), /*id=*/1, on_token);
  if (submitted.status != halley::Submit::kQueued) throw halley::InputError(submitted.message);
  assistant.engine->wait_until_idle();
  std::puts("");
  return is_ok;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT [cpu | cuda]\n", argv[0]);
    return 2;
  }
  Assistant assistant(argv[1], argc > 3 ? argv[3] : "cpu");
  return continue_prompt(assistant, argv[2]) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
