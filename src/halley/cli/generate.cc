// `halley generate`: prompts to text, streamed to the terminal or as JSON.
#include "halley/engine/generate.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/cli/chat_prompt.h"
#include "halley/cli/command.h"
#include "halley/cli/engine_options.h"
#include "halley/cli/interrupt.h"
#include "halley/cli/lora_options.h"
#include "halley/cli/model_options.h"
#include "halley/cli/named_model.h"
#include "halley/cli/sampling_options.h"
#include "halley/json/json.h"
#include "halley/models/lora/load_adapter.h"

namespace halley::cli {
namespace {

struct GenerateOptions {
  ModelOptions model;
  EngineConfig engine;
  SamplingOptions sampling;
  std::vector<std::string> prompts;
  std::vector<int32_t> prompt_ids;
  bool is_chat = false;
  std::string system, chat_template;
  std::string adapter;  // a folder; empty: none
  bool is_json = false;
};

// A prompt as text and as tokens.
struct Prompt {
  std::string text;  // empty for --prompt-ids
  std::vector<int32_t> ids;
};

// All state of one run of the command.
struct Setup {
  explicit Setup(const GenerateOptions& command_options) : options(command_options) {}
  const GenerateOptions& options;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<ChatPrompt> chat;
  SamplingParams sampling;
  std::shared_ptr<const Adapter> adapter;  // null: none
  double load_seconds = 0;
};

OrderedJson first_messages(const Setup& setup) {
  OrderedJson messages = OrderedJson::array();
  if (!setup.options.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", setup.options.system}});
  }
  return messages;
}

std::vector<Prompt> make_prompts(const Setup& setup) {
  std::vector<Prompt> prompts;
  for (const std::string& text : setup.options.prompts) {
    if (setup.chat) {
      OrderedJson messages = first_messages(setup);
      messages.push_back({{"role", "user"}, {"content", text}});
      prompts.push_back({text, setup.chat->ids(messages)});
    } else {
      prompts.push_back({text, setup.tokenizer->encode(text, true)});
    }
  }
  if (!setup.options.prompt_ids.empty()) prompts.push_back({"", setup.options.prompt_ids});
  return prompts;
}

double seconds_per_output_token(const GenerateResult& result) {
  const auto& seconds = result.token_seconds;
  if (seconds.size() < 2) return 0;
  return (seconds.back() - seconds.front()) / static_cast<double>(seconds.size() - 1);
}

OrderedJson json_of(const TokenLogprob& entry) {
  return {{"token_id", entry.token_id}, {"logprob", entry.logprob}};
}

OrderedJson json_of(const GenerateResult& result, const Prompt& prompt, double load_seconds) {
  OrderedJson json = OrderedJson::object();
  if (!prompt.text.empty()) json["prompt"] = prompt.text;
  json["prompt_token_ids"] = prompt.ids;
  json["token_ids"] = result.token_ids;
  json["text"] = result.text;
  json["finish_reason"] = name_of(result.finish_reason);
  if (!result.stop_reason.empty()) json["stop_reason"] = result.stop_reason;
  OrderedJson logprobs = OrderedJson::array();
  for (size_t i = 0; i < result.logprobs.size(); ++i) {
    OrderedJson entry = json_of(result.logprobs[i]);
    entry["top"] = OrderedJson::array();
    for (const TokenLogprob& top : result.top_logprobs.at(i)) entry["top"].push_back(json_of(top));
    logprobs.push_back(std::move(entry));
  }
  json["logprobs"] = result.logprobs.empty() ? OrderedJson() : std::move(logprobs);
  const double first = result.token_seconds.empty() ? 0 : result.token_seconds.front();
  json["timings"] = {{"load_s", load_seconds},
                     {"time_to_first_token_s", first},
                     {"time_per_output_token_s", seconds_per_output_token(result)},
                     {"total_s", result.total_seconds}};
  return json;
}

void print_speed(const std::vector<Prompt>& prompts, const std::vector<GenerateResult>& results) {
  size_t num_prompt_tokens = 0;
  size_t num_output_tokens = 0;
  double first_seconds = 0;
  double total_seconds = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    num_prompt_tokens += prompts[i].ids.size();
    num_output_tokens += results[i].token_ids.size();
    if (results[i].token_seconds.empty()) continue;
    first_seconds = std::max(first_seconds, results[i].token_seconds.front());
    total_seconds = std::max(total_seconds, results[i].total_seconds);
  }
  const size_t num_later_tokens = num_output_tokens - std::min(num_output_tokens, results.size());
  const double later_seconds = total_seconds - first_seconds;
  std::fprintf(stderr, "prompt: %zu tokens, first output after %.3f s (%.1f tokens/s); ",
               num_prompt_tokens, first_seconds,
               first_seconds > 0 ? static_cast<double>(num_prompt_tokens) / first_seconds : 0);
  std::fprintf(stderr, "output: %zu tokens, %.1f tokens/s\n", num_output_tokens,
               later_seconds > 0 ? static_cast<double>(num_later_tokens) / later_seconds : 0);
}

/// The next token of the one prompt: its text, or where there is no tokenizer its id, in the form
/// that --prompt-ids takes.
void print_token(const Setup& setup, const TokenEvent& event, bool is_first) {
  if (setup.tokenizer) {
    std::cout << event.text;
  } else if (event.token_id) {
    std::cout << (is_first ? "" : ",") << *event.token_id;
  }
  std::cout.flush();
}

// Runs the prompts together. One prompt streams; several print when all have ended.
std::vector<GenerateResult> run_prompts(Engine& engine, const Setup& setup,
                                        const std::vector<Prompt>& prompts) {
  std::vector<GenerateRequest> requests;
  for (const Prompt& prompt : prompts) {
    requests.push_back(
        {.prompt_ids = prompt.ids, .sampling = setup.sampling, .adapter = setup.adapter});
  }
  const bool is_streaming = !setup.options.is_json && prompts.size() == 1;
  constexpr RequestId kFirstId = 1;
  bool is_first = true;
  auto results = generate_all(
      engine, std::move(requests),
      [&](size_t index, const TokenEvent& event) {
        if (is_interrupted()) engine.cancel(kFirstId + index);
        if (is_streaming) print_token(setup, event, is_first);
        if (event.token_id) is_first = false;
      },
      kFirstId);
  for (size_t i = 0; i < results.size(); ++i) {
    const GenerateResult& result = results[i];
    if (result.submit.status != Submit::kQueued) throw InputError(result.submit.message);
    if (result.finish_reason == FinishReason::kError) throw DeviceError(result.error);
    if (setup.options.is_json) {
      std::cout << json_of(result, prompts[i], setup.load_seconds).dump() << '\n';
    } else if (is_streaming) {
      std::cout << '\n';
    } else {
      std::cout << "--- " << prompts[i].text << '\n' << result.text << '\n';
    }
  }
  std::cout.flush();
  if (!setup.options.is_json) print_speed(prompts, results);
  return results;
}

// A conversation: every line of stdin is the user's next message.
void run_conversation(Engine& engine, const Setup& setup) {
  OrderedJson messages = first_messages(setup);
  std::string line;
  while (!is_interrupted()) {
    std::fprintf(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    messages.push_back({{"role", "user"}, {"content", line}});
    const auto results = run_prompts(engine, setup, {{line, setup.chat->ids(messages)}});
    messages.push_back({{"role", "assistant"}, {"content", results.front().text}});
  }
}

void check_usage(const GenerateOptions& options) {
  const bool has_prompt = !options.prompts.empty();
  const bool has_ids = !options.prompt_ids.empty();
  if (has_prompt == has_ids && (has_prompt || !options.is_chat)) {
    throw InputError(
        "generate: expected either --prompt, --prompt-ids or --chat. "
        "Try 'halley generate --help'.");
  }
  if (options.is_chat && has_ids) {
    throw InputError("--chat: expected --prompt or lines on stdin with it, got --prompt-ids.");
  }
  if (!options.system.empty() && !options.is_chat) {
    throw InputError("--system: expected --chat with it; a plain prompt has no roles.");
  }
  if (!options.chat_template.empty() && !options.is_chat) {
    throw InputError("--chat-template: expected --chat with it; a plain prompt has no template.");
  }
}

// The model's embedding has no rows for ids outside of its vocabulary.
void check_prompt_ids(const std::vector<int32_t>& ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      throw InputError(str("--prompt-ids: expected 0 to ", vocab_size - 1, ", got ", id, "."));
    }
  }
}

// The KV cache fits these prompts, not the longest sequence that the model allows: a model of 128k
// positions must also run with little memory.
EngineConfig make_engine_config(const Setup& setup, const std::vector<Prompt>& prompts,
                                const ModelShape& shape) {
  constexpr int64_t kConversationTokens = 8192;
  EngineConfig config = setup.options.engine;
  config.kv_dtype = parse_kv_dtype(setup.options.model.kv_dtype);
  config.max_model_len = setup.options.model.max_model_len;
  if (config.max_model_len == 0) {
    int64_t num_tokens = prompts.empty() ? kConversationTokens : 0;
    for (const Prompt& prompt : prompts) {
      const auto num_prompt_tokens = static_cast<int64_t>(prompt.ids.size());
      num_tokens = std::max(num_tokens, num_prompt_tokens + setup.sampling.max_tokens);
    }
    config.max_model_len = std::min(num_tokens, shape.max_positions);
  }
  return config;
}

/// Null where the prompt is ids and the model has no tokenizer: a built-in shape, or a directory
/// without its files. Throws InputError where text needs one.
std::shared_ptr<const Tokenizer> find_tokenizer(const GenerateOptions& options) {
  const std::string& model = options.model.model;
  if (!model.empty() && has_tokenizer_file(check_model_dir(model))) return load_tokenizer(model);
  if (!options.prompt_ids.empty()) return nullptr;
  throw InputError(
      model.empty()
          ? str("generate: expected --prompt-ids with a built-in shape, which has no tokenizer.")
          : str(model,
                ": expected a tokenizer.json or a tokenizer.model for a prompt that is text,"
                " got neither. Copy the tokenizer's files into the model's directory, or"
                " give the prompt as --prompt-ids."));
}

int run_generate(const GenerateOptions& options) {
  check_usage(options);
  Setup setup(options);
  setup.tokenizer = find_tokenizer(options);
  if (options.is_chat) {
    setup.chat = std::make_unique<ChatPrompt>(options.model.model, options.chat_template, "--chat",
                                              setup.tokenizer);
  }
  LoadedModel loaded = load_model_files(options.model);
  check_prompt_ids(options.prompt_ids, loaded.model->shape().vocab_size);
  setup.sampling = make_sampling_params(options.sampling, loaded.generation);
  check_sampling_params(setup.sampling, loaded.model->shape().vocab_size);
  setup.load_seconds = loaded.load_seconds;
  if (!options.adapter.empty()) {
    check_takes_adapters(*loaded.model, "--lora");
    setup.adapter = load_adapter(options.adapter, loaded.plan.config, options.adapter);
  }
  const std::vector<Prompt> prompts = make_prompts(setup);
  const EngineConfig config = make_engine_config(setup, prompts, loaded.model->shape());
  Engine engine(std::move(loaded.model), setup.tokenizer, loaded.generation.eos_token_ids, config);
  watch_for_interrupt();
  if (prompts.empty()) {
    run_conversation(engine, setup);
  } else {
    run_prompts(engine, setup, prompts);
  }
  return is_interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace

Run add_generate(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("generate", "Generate text from prompts");
  auto options = std::make_shared<GenerateOptions>();
  add_model_options(app, options->model);
  add_precision_option(app, options->model);
  add_length_option(app, options->model);
  app.add_option("--prompt,-p", options->prompts, "A prompt; several run together")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--prompt-ids", options->prompt_ids,
                 "A prompt as token ids: 1,2,3; a model without a tokenizer answers in ids")
      ->delimiter(',');
  app.add_flag("--chat", options->is_chat,
               "Use the chat template; without --prompt a conversation from stdin");
  app.add_option("--system", options->system, "With --chat: the system message");
  add_chat_template_option(app, options->chat_template);
  app.add_option("--lora", options->adapter, "Folder of a LoRA adapter, with the files of PEFT");
  app.add_flag("--json", options->is_json, "One JSON object per prompt instead of text");
  add_sampling_options(app, options->sampling);
  add_num_seqs_option(app, options->engine);
  add_engine_options(app, options->engine);
  app.footer(R"(Examples:
  halley generate models/demo-21m --prompt "The Python programming language" --temperature 0
  halley generate MODEL --chat --system "Answer briefly." --prompt "What is a mutex?"
  halley generate MODEL --prompt-ids 1,2,3 --json --logprobs 5
  halley generate MODEL --device cpu --tensor-parallel-size 2 --prompt "Once")");
  return [options] {
    find_model(options->model);
    return run_generate(*options);
  };
}

}  // namespace halley::cli
