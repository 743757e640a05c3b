#include "halley/cli/overhead_server.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "halley/cli/serve_watch.h"
#include "halley/engine/engine.h"
#include "halley/server/app/openai_app.h"
#include "halley/server/http/http_server.h"

namespace halley::cli {
namespace {

constexpr const char* kName = "costless";
constexpr size_t kSpareConnections =
    64;  // a client may reconnect before its last connection is closed

AppConfig app_config_of() {
  AppConfig config;
  config.model_names = {kName};
  config.version = HALLEY_VERSION;
  config.vocab_size = StepTimes::kNumIds;
  return config;
}

}  // namespace

struct OverheadServer::Parts {
  ServeWatch watch;
  std::unique_ptr<OpenAiApp> app;
  std::unique_ptr<HttpServer> server;  // destroyed first
};

OverheadServer::OverheadServer(const OverheadServerOptions& options, StepTimes& times)
    : parts_(
          new Parts{.watch = ServeWatch({.log_level = LogLevel::kWarning, .has_access_log = false}),
                    .app = nullptr,
                    .server = nullptr}) {
  const std::shared_ptr<const Tokenizer> tokenizer = make_step_tokenizer();
  EngineConfig engine_config;
  engine_config.max_num_seqs = options.num_clients;
  engine_config.max_num_queued = std::max(engine_config.max_num_queued, 2 * options.num_clients);
  engine_config.max_num_batched_tokens = std::max(int64_t{8192}, options.num_clients);
  auto engine = std::make_unique<Engine>(make_costless_model(times, options.kLengthMax), tokenizer,
                                         std::vector<int32_t>{}, engine_config);
  AppConfig app_config = app_config_of();
  parts_->watch.make_metrics({.model_name = kName, .max_model_len = options.kLengthMax});
  parts_->watch.observe(app_config, *engine);
  parts_->app = std::make_unique<OpenAiApp>(std::move(engine), tokenizer, ChatFormat(),
                                            std::move(app_config));
  std::vector<HttpRoute> routes = parts_->app->routes();
  HttpServerConfig server_config;
  server_config.num_threads = options.num_http_threads;
  server_config.limits.num_connections_max =
      2 * static_cast<size_t>(options.num_clients) + kSpareConnections;
  parts_->watch.observe(server_config);
  parts_->watch.start_metrics(routes);
  parts_->server = std::make_unique<HttpServer>(std::move(server_config), std::move(routes));
  parts_->server->start();
}

OverheadServer::~OverheadServer() = default;

uint16_t OverheadServer::port() const { return parts_->server->port(); }

}  // namespace halley::cli
