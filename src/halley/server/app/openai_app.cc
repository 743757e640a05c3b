#include "halley/server/app/openai_app.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/base/thread_priority.h"
#include "halley/server/anthropic/message_fields.h"
#include "halley/server/anthropic/messages_api.h"
#include "halley/server/app/adapter_routes.h"
#include "halley/server/app/answer_budget.h"
#include "halley/server/app/app_context.h"
#include "halley/server/app/engine_bridge.h"
#include "halley/server/app/generation.h"
#include "halley/server/app/http_answers.h"
#include "halley/server/app/pooled_request.h"
#include "halley/server/app/server_state.h"
#include "halley/server/app/text_request.h"
#include "halley/server/openai/answer.h"
#include "halley/server/openai/openapi.h"
#include "halley/server/openai/pooling_fields.h"
#include "halley/server/responses/response_fields.h"
#include "halley/server/responses/responses_api.h"

namespace halley {
namespace {

constexpr int kRetryAfterS = 1;
constexpr int kRetryAfterDrainS = 10;
// Requests of compute() that wait or run. They need no place in the engine's queue.
constexpr int kNumComputingMax = 64;

using Exchange = std::shared_ptr<HttpExchange>;

RequestRules rules_of(const AppConfig& config, const ChatFormat& format) {
  RequestRules rules = {.sampling = config.sampling,
                        .vocab_size = config.vocab_size,
                        .ignores_unknown_fields = config.ignores_unknown_fields};
  format.set_rules(rules);
  return rules;
}

ApiError draining_error() {
  return overloaded("The server ends and takes no more requests.", kRetryAfterDrainS);
}

}  // namespace

class OpenAiApp::Impl {
 public:
  Impl(std::unique_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer,
       ChatFormat format, const AppConfig& config)
      : responses_(config.stored_responses),
        context_{.config = config,
                 .tokenizer = tokenizer,
                 .format = std::move(format),
                 .rules = {},
                 .texts = TokenTexts(*tokenizer),
                 .constraints = nullptr,
                 .token_bytes_max = find_token_bytes_max(*tokenizer),
                 .text_bytes_max = 0,
                 .engine = std::move(engine)} {
    context_.text_bytes_max =
        context_.token_bytes_max * static_cast<size_t>(context_.engine->config().max_model_len);
    context_.answer_bytes = make_answer_budget(config.answer_bytes_max);
    context_.rules = rules_of(context_.config, context_.format);
    context_.has_precisions = has_precisions(*context_.engine);
    context_.constraints = std::make_unique<ConstraintCompiler>(
        tokenizer, config.eos_token_ids, context_.format.dialect(),
        static_cast<size_t>(config.constraint_bytes_max));
    context_.preprocessing_threads = std::make_unique<PreprocessingThreads>(
        context_.config.num_preprocessing_threads,
        static_cast<size_t>(context_.engine->config().max_num_queued) + kNumComputingMax);
    context_.response_thread = std::make_unique<WorkQueue>(1, std::numeric_limits<size_t>::max());
    context_.answer_thread = std::make_unique<WorkQueue>(1, std::numeric_limits<size_t>::max());
    static_cast<void>(context_.answer_thread->push([] { lower_thread_priority(); }));
    std::vector<ApiDescription> others = {response_description(), message_description()};
    for (const ApiDescription& api : pooling_descriptions()) others.push_back(api);
    openapi_ = json_text(make_openapi(context_.config.version, others));
  }

  // There is no submit after the preprocessing threads have ended, and no event after the engine is
  // idle. The response thread may still cancel requests, so the engine is destroyed last.
  ~Impl() {
    context_.preprocessing_threads->stop();
    context_.engine->drain(std::chrono::steady_clock::now());
    context_.engine->wait_until_idle();
    context_.response_thread->stop();
    context_.answer_thread->stop();
  }

  AppContext& context() { return context_; }

  std::vector<HttpRoute> routes() {
    std::vector<HttpRoute> routes = {
        {"POST", "/v1/completions", generate(ApiEndpoint::kCompletions)},
        {"POST", "/v1/chat/completions", generate(ApiEndpoint::kChat)},
        {"POST", "/v1/responses", generate(ApiEndpoint::kChat, &responses_)},
        stored_response("GET", &ResponsesApi::stored),
        stored_response("DELETE", &ResponsesApi::erase),
        message_route("/v1/messages", generate(ApiEndpoint::kChat, &messages_)),
        message_route("/v1/messages/count_tokens", compute(TextTask::kCountTokens, &messages_)),
        {"POST", "/v1/embeddings", pool(ApiEndpoint::kEmbeddings)},
        {"POST", "/embeddings", pool(ApiEndpoint::kEmbeddings)},
        {"POST", "/v1/rerank", pool(ApiEndpoint::kRerank)},
        {"POST", "/rerank", pool(ApiEndpoint::kRerank)},
        {"POST", "/v1/score", pool(ApiEndpoint::kScore)},
        {"POST", "/score", pool(ApiEndpoint::kScore)},
        {"POST", "/tokenize", compute(TextTask::kTokenize)},
        {"POST", "/detokenize", compute(TextTask::kDetokenize)},
        {"POST", "/apply-template", compute(TextTask::kApplyTemplate)},
        {"POST", "/v1/load_lora_adapter", change_adapters(load_adapter_by)},
        {"POST", "/v1/unload_lora_adapter", change_adapters(unload_adapter_by)},
        state_route("/props", props_of),
        state_route("/load", load_of),
        state_route("/server_info", server_info_of),
        {"GET", "/slots", [this](Exchange exchange) { exchange->respond(slots(*exchange)); }},
        {"GET", "/v1/models", [this](Exchange exchange) { exchange->respond(models()); }},
        {"GET", "/health", [this](Exchange exchange) { exchange->respond(health()); }, true},
        {"GET", "/ready", [this](Exchange exchange) { exchange->respond(ready()); }, true},
        {"GET", "/version",
         [this](Exchange exchange) {
           exchange->respond(json_response({{"version", context_.config.version}}));
         }},
        {"GET", "/precision", [this](Exchange exchange) { exchange->respond(precision()); }},
        {"GET", "/openapi.json",
         [this](Exchange exchange) { exchange->respond({.body = openapi_}); }},
    };
    const std::string models_path = "/v1/models/";
    std::vector<std::string> names = context_.config.model_names;
    for (const std::string& name : adapter_names()) names.push_back(name);
    for (const std::string& name : names) {
      routes.push_back({.method = "GET",
                        .path = models_path + name,
                        .handler = model_route(name),
                        .encoded_from = models_path.size()});
    }
    if (context_.config.metrics) {
      routes.push_back({"GET", "/metrics", [this](Exchange exchange) {
                          exchange->respond(
                              {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                               .body = context_.config.metrics(context_.answer_bytes->stats())});
                        }});
    }
    return routes;
  }

 private:
  // Admits a request before it is parsed, rendered and tokenized.
  std::unique_ptr<Admission> admit() {
    if (context_.is_draining) throw draining_error();
    auto admission = Admission::take(context_, 1);
    if (!admission || !has_room_for_tokens(*context_.engine)) {
      throw overloaded("The queue is full. Try again later.", kRetryAfterS);
    }
    return admission;
  }

  HttpHandler generate(ApiEndpoint endpoint, const ChatApi* api = nullptr) {
    return [this, endpoint, api](Exchange exchange) {
      try {
        auto generation = Generation::make(context_, exchange, endpoint, api, admit());
        generation->watch_client();
        if (!push_preprocessing(context_, exchange->request(),
                                [generation] { generation->preprocess(); })) {
          throw overloaded("The queue is full. Try again later.", kRetryAfterS);
        }
      } catch (const ApiError& error) {
        exchange->respond(error_response(error, api));
      }
    };
  }

  HttpHandler pool(ApiEndpoint endpoint) {
    return [this, endpoint](const Exchange& exchange) {
      try {
        const auto request = std::make_shared<PooledRequest>(context_, exchange, endpoint, admit());
        request->watch_client();
        if (!push_preprocessing(context_, exchange->request(),
                                [request] { request->preprocess(); })) {
          throw overloaded("The queue is full. Try again later.", kRetryAfterS);
        }
      } catch (const ApiError& error) {
        exchange->respond(error_response(error));
      }
    };
  }

  HttpRoute state_route(const char* path, OrderedJson (*make)(const AppContext&)) {
    return {"GET", path, [this, make](const Exchange& exchange) {
              exchange->respond(json_response(make(context_)));
            }};
  }

  static HttpRoute message_route(const char* path, HttpHandler handler) {
    return {.method = "POST",
            .path = path,
            .handler = std::move(handler),
            .error_body = message_error_body};
  }

  // Answers with the text that `make` gives for the response that the path names.
  HttpRoute stored_response(const char* method,
                            std::string (ResponsesApi::*make)(const std::string&,
                                                              const std::string&) const) {
    const std::string path = "/v1/responses/";
    const auto handler = [this, make, path](const Exchange& exchange) {
      const HttpRequest& request = exchange->request();
      try {
        exchange->respond({.body = (responses_.*make)(client_of(context_.config, request),
                                                      request.path.substr(path.size()))});
      } catch (const ApiError& error) {
        exchange->respond(error_response(error, &responses_));
      }
    };
    return {.method = method, .path = path, .handler = handler, .takes_name = true};
  }

  // One of kNumComputingMax, which is given back when the last copy goes.
  std::shared_ptr<std::atomic<int>> take_computing_slot() {
    ++num_computing_;
    std::shared_ptr<std::atomic<int>> slot(&num_computing_, [](std::atomic<int>* num) { --*num; });
    if (num_computing_ > kNumComputingMax) {
      throw overloaded("Too many texts wait to be tokenized. Try again later.", kRetryAfterS);
    }
    return slot;
  }

  // Routes that answer from a preprocessing thread, also while the engine's queue is full.
  // `make_job` makes the thread's part of an exchange, or throws ApiError.
  using MakeJob = std::function<PreprocessingQueue::Job(const Exchange& exchange)>;
  HttpHandler on_thread(MakeJob make_job, const ChatApi* api = nullptr) {
    return [this, make_job = std::move(make_job), api](const Exchange& exchange) {
      try {
        if (context_.is_draining) throw draining_error();
        const auto slot = take_computing_slot();
        const bool is_queued = push_preprocessing(context_, exchange->request(),
                                                  [job = make_job(exchange), slot] { job(); });
        if (!is_queued) throw overloaded("The queue is full. Try again later.", kRetryAfterS);
      } catch (const ApiError& error) {
        exchange->respond(error_response(error, api));
      }
    };
  }

  HttpHandler compute(TextTask task, const ChatApi* api = nullptr) {
    const auto make_job = [this, task, api](const Exchange& exchange) {
      return
          [text = std::make_shared<TextRequest>(context_, exchange, task, api)] { text->answer(); };
    };
    return on_thread(make_job, api);
  }

  HttpHandler change_adapters(OrderedJson (*change)(AdapterTable&, std::string_view)) {
    return on_thread([this, change](const Exchange& exchange) {
      AdapterTable* adapters = context_.config.adapters.get();
      if (adapters == nullptr || !adapters->is_open_to_clients()) throw no_changes();
      return [this, change, adapters, exchange] {
        run_step(
            context_.config, exchange->request().id,
            [&] { exchange->respond(json_response(change(*adapters, exchange->request().body))); },
            [&](const ApiError& error) { exchange->respond(error_response(error)); });
      };
    });
  }

  OrderedJson model(const std::string& name, bool is_adapter) const {
    const std::string& base = context_.config.model_names.front();
    return {{"id", name},
            {"object", "model"},
            {"created", context_.config.created_s},
            {"owned_by", "halley"},
            {"root", is_adapter ? name : base},
            {"parent", is_adapter ? OrderedJson(base) : OrderedJson()},
            {"max_model_len", context_.engine->config().max_model_len}};
  }

  // An adapter's route answers while the adapter is there.
  HttpHandler model_route(const std::string& name) const {
    return [this, name](const Exchange& exchange) {
      try {
        const bool is_adapter = find_model(context_.config, name) != nullptr;
        exchange->respond(json_response(model(name, is_adapter)));
      } catch (const ApiError& error) {
        exchange->respond(error_response(error));
      }
    };
  }

  std::vector<std::string> adapter_names() const {
    const AdapterTable* adapters = context_.config.adapters.get();
    return adapters == nullptr ? std::vector<std::string>() : adapters->names();
  }

  HttpResponse models() const {
    OrderedJson list = OrderedJson::array();
    for (const std::string& name : context_.config.model_names) list.push_back(model(name, false));
    for (const std::string& name : adapter_names()) list.push_back(model(name, true));
    return json_response({{"object", "list"}, {"data", std::move(list)}});
  }

  HttpResponse precision() const {
    return json_response(precision_state(context_.engine->config(),
                                         context_.engine->stats().precision,
                                         std::chrono::steady_clock::now()));
  }

  // With the query of llama.cpp, 503 where no slot is free.
  HttpResponse slots(const HttpExchange& exchange) const {
    const OrderedJson slots = slots_of(context_);
    const bool has_free = slots.empty() || slots.back()["is_processing"] == false;
    if (!has_free && exchange.request().query == "fail_on_no_slot=1") {
      return error_response(overloaded("No slot is free.", kRetryAfterS));
    }
    return json_response(slots);
  }

  HttpResponse health() const {
    if (!context_.is_draining && has_stopped(*context_.engine)) {
      return error_response(overloaded("The engine has stopped after an error.", 0));
    }
    return json_response({{"status", "ok"}});
  }

  HttpResponse ready() const {
    if (context_.is_draining) return error_response(draining_error());
    if (has_stopped(*context_.engine)) {
      return error_response(overloaded("The engine has stopped after an error.", 0));
    }
    return json_response({{"status", "ready"}});
  }

  std::atomic<int> num_computing_{0};  // outlives the jobs that count in it
  const MessagesApi messages_;         // these outlive the requests
  const ResponsesApi responses_;
  AppContext context_;
  std::string openapi_;
};

OpenAiApp::OpenAiApp(std::unique_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer,
                     ChatFormat format, AppConfig config) {
  if (config.model_names.empty() || config.model_names.front().empty()) {
    throw InputError("served model name: expected at least one name, got none.");
  }
  if (config.num_preprocessing_threads < 1) {
    throw InputError(str("preprocessing threads: expected at least 1, got ",
                         config.num_preprocessing_threads, "."));
  }
  if (config.answer_bytes_max < 0) {
    throw InputError(
        str("memory of answers: expected at least 0 bytes, got ", config.answer_bytes_max, "."));
  }
  if (config.constraint_bytes_max < 1) {
    throw InputError(str("memory of constraints: expected at least 1 byte, got ",
                         config.constraint_bytes_max, "."));
  }
  impl_ =
      std::make_unique<Impl>(std::move(engine), std::move(tokenizer), std::move(format), config);
}

OpenAiApp::~OpenAiApp() = default;

std::vector<HttpRoute> OpenAiApp::routes() { return impl_->routes(); }
void OpenAiApp::start_draining() { impl_->context().is_draining = true; }
Engine& OpenAiApp::engine() { return *impl_->context().engine; }

}  // namespace halley
