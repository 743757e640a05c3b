// `halley chat`: a conversation with a model in the terminal.
#include "halley/cli/chat.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/cli/chat_prompt.h"
#include "halley/cli/engine_options.h"
#include "halley/cli/interrupt.h"
#include "halley/cli/model_options.h"
#include "halley/cli/named_model.h"
#include "halley/cli/sampling_options.h"
#include "halley/engine/generate.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

constexpr int64_t kContextTokens = 8192;  // unless --max-model-len says otherwise

struct ChatOptions {
  ModelOptions model;
  EngineConfig engine;
  SamplingOptions sampling;
  std::string system, chat_template;
};

constexpr const char* kHelp = R"(/reset          forget the conversation
/system TEXT    set the system message, without TEXT remove it, and forget the conversation
/help           this text
/exit           leave; so does the end of the input
//TEXT          send /TEXT
Ctrl-C          stop the answer; while none is written, leave
)";

// Standard output has the model's text only; all else goes to standard error.
class Chat {
 public:
  Chat(const ChatPrompt& prompt, Engine& engine, SamplingParams sampling, std::string system)
      : prompt_(prompt),
        engine_(engine),
        sampling_(std::move(sampling)),
        system_(std::move(system)) {
    reset();
  }

  /// Returns false if the user leaves.
  bool take_line(const std::string& line) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) return true;
    if (line.starts_with("//")) {
      ask(line.substr(1));
      return true;
    }
    if (!line.starts_with('/')) {
      ask(line);
      return true;
    }
    const size_t space = std::min(line.find(' '), line.size());
    return obey(line.substr(0, space),
                std::string_view(line).substr(std::min(space + 1, line.size())));
  }

 private:
  bool obey(const std::string& command, std::string_view text) {
    if (command == "/exit" || command == "/quit") return false;
    if (command == "/reset") {
      reset();
      std::fprintf(stderr, "The conversation is forgotten.\n");
    } else if (command == "/system") {
      system_ = text;
      reset();
      std::fprintf(stderr, "The system message is %s, the conversation is forgotten.\n",
                   system_.empty() ? "removed" : "set");
    } else if (command == "/help") {
      std::fputs(kHelp, stderr);
    } else {
      std::fprintf(stderr, "%s: no such command. /help lists them; //TEXT sends /TEXT.\n",
                   quote(command).c_str());
    }
    return true;
  }

  void reset() {
    messages_ = OrderedJson::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  void ask(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    std::vector<int32_t> ids;
    try {
      ids = prompt_.ids(messages_);
    } catch (const InputError& error) {  // the template rejects the roles, or text is no UTF-8
      std::fprintf(stderr, "%s\n", error.what());
      messages_.erase(messages_.size() - 1);
      return;
    }
    const int64_t num_positions = engine_.config().max_model_len;
    const auto num_prompt_tokens = static_cast<int64_t>(ids.size());
    if (num_prompt_tokens >= num_positions) {
      std::fprintf(stderr,
                   "The context is full: with this message the conversation has %lld tokens, "
                   "expected at most %lld. It was not sent. /reset begins a new conversation; "
                   "--max-model-len raises the limit if the model allows it.\n",
                   static_cast<long long>(num_prompt_tokens),
                   static_cast<long long>(num_positions - 1));
      messages_.erase(messages_.size() - 1);
      return;
    }
    const GenerateResult result = answer(std::move(ids));
    messages_.push_back({{"role", "assistant"}, {"content", result.text}});
    print_end(result, num_prompt_tokens, num_positions);
  }

  GenerateResult answer(std::vector<int32_t> ids) {
    constexpr RequestId kId = 1;
    std::vector<GenerateRequest> requests(1);
    requests[0].prompt_ids = std::move(ids);
    requests[0].sampling = sampling_;
    watch_for_interrupt();
    const auto results = generate_all(
        engine_, std::move(requests),
        [&](size_t, const TokenEvent& event) {
          if (is_interrupted()) engine_.cancel(kId);
          std::cout << event.text << std::flush;
        },
        kId);
    stop_watching_for_interrupt();
    std::cout << std::endl;
    const GenerateResult& result = results.front();
    if (result.submit.status != Submit::kQueued) throw InputError(result.submit.message);
    if (result.finish_reason == FinishReason::kError) throw DeviceError(result.error);
    return result;
  }

  void print_end(const GenerateResult& result, int64_t num_prompt_tokens,
                 int64_t num_positions) const {
    const auto& seconds = result.token_seconds;
    const int64_t num_tokens = num_prompt_tokens + static_cast<int64_t>(seconds.size());
    if (result.finish_reason == FinishReason::kCancelled) {
      std::fprintf(stderr, "[stopped; what was written stays in the conversation]\n");
    } else if (result.finish_reason == FinishReason::kLength) {
      std::fprintf(stderr, num_tokens >= num_positions
                               ? "[the context is full; /reset begins a new conversation]\n"
                               : "[cut at --max-tokens]\n");
    }
    const double later = seconds.size() > 1 ? seconds.back() - seconds.front() : 0;
    std::fprintf(stderr, "[%zu tokens, first after %.2f s, %.1f tokens/s; context %lld of %lld]\n",
                 seconds.size(), seconds.empty() ? 0 : seconds.front(),
                 later > 0 ? static_cast<double>(seconds.size() - 1) / later : 0,
                 static_cast<long long>(num_tokens), static_cast<long long>(num_positions));
  }

  const ChatPrompt& prompt_;
  Engine& engine_;
  SamplingParams sampling_;
  std::string system_;
  OrderedJson messages_;
};

int run_chat(const ChatOptions& options) {
  if (options.model.model.empty()) {
    throw InputError(
        "chat: expected a model's folder, got a built-in shape, which has no tokenizer.");
  }
  const std::shared_ptr<const Tokenizer> tokenizer =
      load_tokenizer(check_model_dir(options.model.model));
  const ChatPrompt prompt(options.model.model, options.chat_template, "chat", tokenizer);
  LoadedModel loaded = load_model_files(options.model);
  const SamplingParams sampling = make_sampling_params(options.sampling, loaded.generation);
  check_sampling_params(sampling, loaded.model->shape().vocab_size);
  EngineConfig config = options.engine;
  config.kv_dtype = parse_kv_dtype(options.model.kv_dtype);
  config.precision = precision_mode_of(loaded);
  config.max_num_seqs = 1;
  config.max_model_len = options.model.max_model_len > 0
                             ? options.model.max_model_len
                             : std::min(kContextTokens, loaded.model->shape().max_positions);
  Engine engine(std::move(loaded.model), tokenizer, loaded.generation.eos_token_ids, config);
  Chat chat(prompt, engine, sampling, options.system);
  const bool is_terminal = ::isatty(STDIN_FILENO) == 1;
  if (is_terminal) std::fprintf(stderr, "/help lists the commands.\n");
  std::string line;
  while (true) {
    if (is_terminal) std::fprintf(stderr, "> ");
    if (!std::getline(std::cin, line) || !chat.take_line(line)) break;
  }
  return kExitOk;
}

}  // namespace

Run add_chat(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("chat", "Talk with a model in the terminal");
  auto options = std::make_shared<ChatOptions>();
  options->sampling.max_tokens = 1024;
  add_model_options(app, options->model);
  add_precision_option(app, options->model);
  add_length_option(app, options->model);
  app.add_option("--system", options->system, "System message");
  add_chat_template_option(app, options->chat_template);
  add_sampling_options(app, options->sampling);
  add_engine_options(app, options->engine);
  app.footer(str("Every line is a message. Lines that begin with a slash are commands:\n", kHelp,
                 R"(
Examples:
  halley chat models/demo-21m
  halley chat MODEL --system "Answer briefly." --temperature 0.7
  printf 'What is a mutex?\n' | halley chat MODEL)"));
  return [options] {
    find_model(options->model);
    return run_chat(*options);
  };
}

}  // namespace halley::cli
