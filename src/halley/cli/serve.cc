// `halley serve`: serves the OpenAI API over HTTP until a signal ends it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/cli/chat_prompt.h"
#include "halley/cli/command.h"
#include "halley/cli/engine_options.h"
#include "halley/cli/file_limit.h"
#include "halley/cli/lora_options.h"
#include "halley/cli/model_options.h"
#include "halley/cli/named_model.h"
#include "halley/cli/pooling_options.h"
#include "halley/cli/sampling_options.h"
#include "halley/cli/serve_checks.h"
#include "halley/cli/serve_signals.h"
#include "halley/cli/serve_watch.h"
#include "halley/engine/engine.h"
#include "halley/models/base/causal_lm.h"
#include "halley/precision/precision_policy.h"
#include "halley/server/app/chat_format.h"
#include "halley/server/app/openai_app.h"
#include "halley/server/http/http_error.h"
#include "halley/server/http/http_server.h"
#include "halley/server/metrics/json_log.h"
#include "halley/server/metrics/server_metrics.h"
#include "halley/server/openai/tool_calls.h"
#include "halley/server/page/page_routes.h"
#include "halley/server/responses/response_store.h"

namespace halley::cli {
namespace {

constexpr int kRetryAfterLoadingS = 5;
constexpr std::chrono::milliseconds kGoodbyeLimit{2000};  // for answers that are being sent
constexpr int64_t kOtherFiles =
    256;  // files other than connections: weights, devices, the program's own
constexpr int kPreprocessingThreadsMin = 2, kPreprocessingThreadsMax = 8;

struct ServeOptions {
  ModelOptions model;
  EngineConfig engine;
  std::string scheduling_policy = "fcfs";
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  int num_http_threads = 2;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  double sse_keep_alive_s = 15;
  std::vector<std::string> model_names;
  std::string chat_template;
  AnswerParsers parsers;
  PoolingOptions pooling;
  LoraOptions lora;
  int64_t answer_bytes_max = 0;
  int64_t constraint_bytes_max = AppConfig{}.constraint_bytes_max;
  ResponseStoreLimits stored_responses = {.num_responses_max = 0, .bytes_max = size_t{64} << 20};
  double request_timeout_s = 0;
  double shutdown_timeout_s = 30;
  size_t body_bytes_max = HttpLimits{}.body_bytes_max;
  size_t num_connections_max = HttpLimits{}.num_connections_max;
  bool ignores_unknown_fields = false;
  std::string log_level = "info";
  bool has_access_log = true;
};

EngineConfig engine_config_of(const ServeOptions& options) {
  EngineConfig config = options.engine;
  config.kv_dtype = parse_kv_dtype(options.model.kv_dtype);
  config.max_model_len = options.model.max_model_len;
  config.scheduling_policy = *scheduling_policy_from_name(options.scheduling_policy);
  return config;
}

AppConfig app_config_of(const ServeOptions& options, const std::vector<std::string>& model_names,
                        bool has_keys, const LoadedModel& loaded) {
  AppConfig config;
  config.model_names = model_names;
  config.version = HALLEY_VERSION;
  config.sampling = make_sampling_params(SamplingOptions{}, loaded.generation);
  config.vocab_size = loaded.model->shape().vocab_size;
  config.eos_token_ids = loaded.generation.eos_token_ids;
  config.ignores_unknown_fields = options.ignores_unknown_fields;
  config.request_timeout_s = options.request_timeout_s;
  config.answer_bytes_max = options.answer_bytes_max;
  config.constraint_bytes_max = options.constraint_bytes_max;
  config.stored_responses = options.stored_responses;
  config.has_api_keys = has_keys;
  // Prompts that arrive together are tokenized in parallel; most cores belong to the model.
  config.num_preprocessing_threads =
      std::clamp(num_usable_cores() / 4, kPreprocessingThreadsMin, kPreprocessingThreadsMax);
  config.created_s = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  return config;
}

HttpServerConfig server_config_of(const ServeOptions& options) {
  HttpServerConfig config;
  config.host = options.host;
  config.port = options.port;
  config.num_threads = options.num_http_threads;
  config.limits.body_bytes_max = options.body_bytes_max;
  config.limits.num_connections_max = options.num_connections_max;
  config.api_keys = read_api_keys(options.api_keys, options.api_key_file);
  config.allowed_hosts = options.allowed_hosts;
  config.allowed_origins = options.allowed_origins;
  config.keep_alive = std::chrono::milliseconds(std::lround(options.sse_keep_alive_s * 1000.0));
  return config;
}

ServerMetricsConfig metrics_config_of(const LoadedModel& loaded, const EngineConfig& engine,
                                      const std::string& name, const std::string& device) {
  return {.model_name = name,
          .max_model_len = engine.max_model_len,
          .model_info = {{"format", loaded.plan.format},
                         {"kernels", kernels_in_words(loaded.plan)},
                         {"dtype", name_of(loaded.plan.config.dtype)},
                         {"kv_dtype", name_of(*engine.kv_dtype)},
                         {"precision", name_of(engine.precision)},
                         {"device", device},
                         {"version", HALLEY_VERSION}},
          .cache_info = {{"block_size", std::to_string(engine.page_tokens)},
                         {"cache_dtype", name_of(*engine.kv_dtype)},
                         {"enable_prefix_caching", engine.has_prefix_caching ? "True" : "False"}}};
}

// Without file descriptors the server would stop accepting without a message.
void check_file_limit(size_t num_connections_max, JsonLog& log) {
  const int64_t num_files = raise_file_limit();
  const auto num_needed = static_cast<int64_t>(num_connections_max) + kOtherFiles;
  if (num_files >= num_needed) return;
  log.write(LogLevel::kWarning, "file_limit",
            {{"limit", num_files},
             {"needed", num_needed},
             {"advice", "raise it (ulimit -Hn, LimitNOFILE) or lower --max-connections"}});
}

// The default alone: requests may have limits of their own.
void check_slo(const EngineConfig& config, JsonLog& log) {
  if (config.precision != PrecisionMode::kAuto || !config.slo.is_empty()) return;
  log.write(LogLevel::kWarning, "no_slo",
            {{"precision", name_of(config.precision)},
             {"advice",
              "without --slo ttft=200ms,tpot=33.3ms steps run in full precision, but for "
              "requests with an slo of their own"}});
}

// The precisions that steps can have, the best first; none where there is only one.
std::vector<std::string> precision_names_of(const CausalLm& model, const EngineConfig& config) {
  std::vector<std::string> names;
  for (const PrecisionLevel& level :
       model.precision_levels(config.kv_dtype.value_or(model.shape().kv_dtype_default))) {
    names.push_back(level.name);
  }
  return names;
}

// "http://127.0.0.1:8000"
std::string url_of(const ServeOptions& options, const HttpServer& server) {
  const bool is_ipv6 = options.host.find(':') != std::string::npos;
  return str("http://", is_ipv6 ? "[" : "", options.host, is_ipv6 ? "]" : "", ":", server.port());
}

// The answer to every request until the model can take it.
HttpResponse loading_answer() {
  HttpResponse answer = http_error(503, "The model is being loaded. Try again later.", "loading");
  answer.headers.emplace_back("retry-after", std::to_string(kRetryAfterLoadingS));
  return answer;
}

void start_listening(const ServeOptions& options, bool has_keys, HttpServer& server, JsonLog& log) {
  server.start();
  log.write(LogLevel::kInfo, "listening",
            {{"url", url_of(options, server)},
             {"advice", "requests are answered with 503 until the model is loaded"}});
  if (has_keys || server.is_loopback()) return;
  log.write(LogLevel::kWarning, "no_api_key",
            {{"host", options.host}, {"advice", "anyone who can reach it may use the server"}});
}

void print_ready(const ServeOptions& options, OpenAiApp& app, const std::string& name,
                 const HttpServer& server, JsonLog& log) {
  const EngineConfig& config = app.engine().config();
  log.write(LogLevel::kInfo, "ready",
            {{"kv_cache_tokens", app.engine().stats().num_pages * config.page_tokens},
             {"max_model_len", config.max_model_len},
             {"max_num_seqs", config.max_num_seqs},
             {"max_num_queued", config.max_num_queued}});
  std::printf("serving %s at %s\n", name.c_str(), url_of(options, server).c_str());
  std::fflush(stdout);
}

// Running requests continue, new ones are rejected, and /health and /ready still answer.
void drain(OpenAiApp& app, HttpServer& server, double limit_s, JsonLog& log) {
  log.write(LogLevel::kInfo, "draining",
            {{"limit_s", limit_s}, {"advice", "another signal ends at once"}});
  app.start_draining();
  const TimePoint limit =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(limit_s));
  app.engine().drain(limit);
  app.engine().wait_until_idle();
  // Long answers are still being written.
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      limit - std::chrono::steady_clock::now());
  if (!server.drain(std::max(kGoodbyeLimit, left)))
    log.write(LogLevel::kWarning, "connections_cut");
}

// Returns upon a signal. Throws the error that has ended the engine, once the answers that tell of
// it are sent.
void wait_for_end(OpenAiApp& app, HttpServer& server) {
  try {
    wait_for_signal();
  } catch (const DeviceError&) {
    app.start_draining();
    server.drain(kGoodbyeLimit);
    throw;
  }
}

// The parts of a server. Each may use those above it, also while it is destroyed.
struct Serving {
  Serving(const ServeOptions& options, HttpServerConfig config)
      : watch({.log_level = parse_log_level(options.log_level),
               .has_access_log = options.has_access_log}),
        server(observed(std::move(config)), page_routes(), loading_answer()) {}

  HttpServerConfig observed(HttpServerConfig config) {
    watch.observe(config);
    return config;
  }

  ServeWatch watch;
  // Empty until the weights are loaded.
  std::optional<LoadedModel> loaded;
  std::unique_ptr<OpenAiApp> app;
  HttpServer server;
};

// Loads the weights, which takes long, and lets requests in.
void load_app(const ServeOptions& options, const std::vector<std::string>& model_names,
              bool has_keys, ChatFormat format, std::shared_ptr<const Tokenizer> tokenizer,
              Serving& serving) {
  ServeWatch& watch = serving.watch;
  PoolingConfig pooling = make_pooling_config(options.pooling, options.model.model, *tokenizer);
  LoadedModel& loaded = serving.loaded.emplace(load_model_files(options.model));
  AppConfig app_config = app_config_of(options, model_names, has_keys, loaded);
  app_config.pooling = std::move(pooling);
  app_config.adapters = make_adapter_table(options.lora, model_names, loaded);
  const std::string device = loaded.model->device_name();
  EngineConfig engine_config = engine_config_of(options);
  engine_config.on_failure = end_with_error;
  watch.observe(engine_config, precision_names_of(*loaded.model, engine_config));
  auto engine = std::make_unique<Engine>(std::move(loaded.model), tokenizer,
                                         loaded.generation.eos_token_ids, engine_config);
  check_pooling_options(options.pooling, engine->hidden_size());
  watch.make_metrics(metrics_config_of(loaded, engine->config(), model_names.front(), device));
  watch.observe(app_config, *engine);
  serving.app = std::make_unique<OpenAiApp>(std::move(engine), std::move(tokenizer),
                                            std::move(format), std::move(app_config));
  std::vector<HttpRoute> routes = serving.app->routes();
  for (HttpRoute& route : page_routes()) routes.push_back(std::move(route));
  watch.start_metrics(routes);
  serving.server.set_routes(std::move(routes));
}

int run_serve(const ServeOptions& options) {
  if (options.model.model.empty()) {
    throw InputError("serve: expected MODEL, a directory with a Hugging Face checkpoint.");
  }
  if (is_other_rank(options.model.ranks)) load_model_files(options.model);  // throws at its end
  // All that can be wrong without the weights is told before they are loaded.
  const auto model_dir = check_model_dir(options.model.model);
  const auto model_names = check_model_names(options.model_names, model_dir.string());
  check_lora_options(options.lora);
  HttpServerConfig server_config = server_config_of(options);
  const bool has_keys = !server_config.api_keys.empty();
  Serving serving(options, std::move(server_config));
  ChatFormat format = load_chat_format(model_dir, options.chat_template, options.parsers);
  end_at_signals();
  JsonLog& log = serving.watch.log();
  check_file_limit(options.num_connections_max, log);
  check_slo(options.engine, log);
  start_listening(options, has_keys, serving.server, log);
  load_app(options, model_names, has_keys, std::move(format), load_tokenizer(model_dir), serving);
  drain_at_signals();
  print_ready(options, *serving.app, model_names.front(), serving.server, log);
  wait_for_end(*serving.app, serving.server);
  drain(*serving.app, serving.server, options.shutdown_timeout_s, log);
  return kExitOk;
}

void add_scheduling_options(CLI::App& app, ServeOptions& options) {
  add_num_seqs_option(app, options.engine);
  add_engine_options(app, options.engine);
  options.engine.itl_target.kind = ItlTarget::Kind::kAutoOnHost;
  add_itl_target_option(app, options.engine,
                        "75 % of --slo's tpot; without it auto on the CPU, off on a device");
  add_step_precision_options(app, options.engine);
  add_engine_number(app, "--max-num-queued-reqs,--max-num-queued", options.engine.max_num_queued, 1,
                    "Maximum of waiting sequences; more are answered with 503");
  add_engine_number(app, "--max-num-queued-tokens", options.engine.max_num_queued_tokens, 0,
                    "Maximum of their prompt tokens; 0: as many as fit");
  add_engine_number(app, "--num-mask-threads", options.engine.num_mask_threads, 0,
                    "Threads that make the masks of structured output; 0: a quarter of the "
                    "processors, 1 to 8");
  app.add_option("--scheduling-policy", options.scheduling_policy,
                 "fcfs: by arrival; priority: by the requests' priority, lower first")
      ->check(CLI::IsMember({"fcfs", "priority"}))
      ->capture_default_str()
      ->group("Engine");
}

constexpr const char* kGroup = "Server";

void add_store_options(CLI::App& app, ResponseStoreLimits& limits) {
  app.add_option("--stored-responses", limits.num_responses_max,
                 "Responses of /v1/responses that are kept for previous_response_id and GET; 0: "
                 "none")
      ->check(CLI::Range(size_t{0}, size_t{1} << 20))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--stored-response-bytes", limits.bytes_max,
                 "Memory of all of them, 1GB for example, with their conversations")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str()
      ->group(kGroup);
}

void add_http_options(CLI::App& app, ServeOptions& options) {
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->group(kGroup);
  };
  add("--host", options.host, "Address to listen on")->capture_default_str();
  add("--port", options.port, "Port; 0: any free one")->capture_default_str();
  add("--api-key", options.api_keys,
      "API key that requests must send; repeat for several. Other users of the machine can see "
      "it: prefer HALLEY_API_KEY or --api-key-file")
      ->allow_extra_args(false);
  add("--api-key-file", options.api_key_file, "File with one API key per line");
  add("--allowed-origins", options.allowed_origins,
      "Origins whose web pages may use the server (CORS), * for all; default: its own alone")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--allowed-hosts", options.allowed_hosts,
      "Names of the server in requests that a proxy passes on, * for all; default: without a key "
      "at a loopback address, that address's names; otherwise all")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--sse-keep-alive", options.sse_keep_alive_s,
      "Seconds of silence after which a stream gets a comment, so that proxies do not cut it; 0: "
      "never")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  add("--served-model-name", options.model_names,
      "Names of the model in requests; default: ORG/NAME, or the directory's");
  add("--request-timeout", options.request_timeout_s,
      "Seconds for requests without their own timeout; 0: no limit")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  add("--shutdown-timeout", options.shutdown_timeout_s,
      "Seconds that running requests have after SIGTERM or Ctrl-C")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  add("--answer-memory-bytes", options.answer_bytes_max,
      "Memory of all answers in the making, 4GB for example, of which each request reserves the "
      "most that its answer may need; default: a quarter of what is available once the model is "
      "loaded")
      ->transform(CLI::AsSizeValue(true));
  add("--constraint-memory-bytes", options.constraint_bytes_max,
      "Memory of the schemas and grammars of all requests that wait or run, 1GB for example, where "
      "equal ones count once; more are answered with 503")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str();
  add("--max-body-bytes", options.body_bytes_max, "Largest request body")
      ->check(CLI::Range(size_t{1}, size_t{1} << 30))
      ->capture_default_str();
  add("--max-connections", options.num_connections_max, "Maximum of open connections")
      ->check(CLI::Range(size_t{1}, size_t{1} << 20))
      ->capture_default_str();
  add("--http-threads", options.num_http_threads, "Threads for network I/O")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--ignore-unknown-fields", options.ignores_unknown_fields,
               "Ignore unknown fields of requests, as vLLM does; default: reject them. Unknown "
               "members of "
               "messages and tools are ignored in any case")
      ->group(kGroup);
  app.add_option("--log-level", options.log_level,
                 "Level of the JSON log on stderr: debug, info, warning, error or off")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str()
      ->group(kGroup);
  app.add_flag("--access-log,!--disable-access-log", options.has_access_log,
               "Log each request (default: on)")
      ->group(kGroup);
}

}  // namespace

Run add_serve(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("serve", "Serve the OpenAI API over HTTP");
  auto options = std::make_shared<ServeOptions>();
  add_model_options(app, options->model, /*downloads=*/false);
  add_length_option(app, options->model);
  add_chat_template_option(app, options->chat_template);
  app.add_option("--tool-call-parser", options->parsers.tool_calls,
                 "Format of the model's tool calls; auto: by the chat template")
      ->check(CLI::IsMember(tool_parser_names()))
      ->capture_default_str();
  app.add_option("--reasoning-parser", options->parsers.reasoning,
                 "Format of the model's reasoning, which answers have apart from their content; "
                 "auto: by the chat template")
      ->check(CLI::IsMember(reasoning_parser_names()))
      ->capture_default_str();
  add_scheduling_options(app, *options);
  add_http_options(app, *options);
  add_store_options(app, options->stored_responses);
  add_pooling_options(app, options->pooling);
  add_lora_options(app, options->lora);
  app.footer(R"(Prints a line with the URL on stdout once it accepts requests. docs/serving.md has
the endpoints, the fields of requests and the behaviour under load.
Examples:
  halley serve models/demo-21m --port 8000
  mpirun -n 2 --map-by socket:PE=16 halley serve MODEL --device cpu)");
  return [options] {
    const std::string given = options->model.model;
    find_model(options->model);
    const bool is_named = options->model.model != given;
    if (is_named && options->model_names.empty()) options->model_names.push_back(given);
    return run_serve(*options);
  };
}

}  // namespace halley::cli
