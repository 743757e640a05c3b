// The routes of the server: the OpenAI API, and those of other APIs and servers, over one engine.
#pragma once

#include <memory>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/engine/engine.h"
#include "halley/server/app/app_config.h"
#include "halley/server/app/chat_format.h"
#include "halley/server/http/http_exchange.h"

namespace halley {

/// Owns the engine. Destroy the HTTP server first: no route may be called during destruction.
class OpenAiApp {
 public:
  /// Throws InputError for an invalid configuration.
  OpenAiApp(std::unique_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer,
            ChatFormat format, AppConfig config);
  /// Cancels running requests and waits for them.
  ~OpenAiApp();
  OpenAiApp(const OpenAiApp&) = delete;
  OpenAiApp& operator=(const OpenAiApp&) = delete;

  /// The routes; they refer to this object.
  std::vector<HttpRoute> routes();

  /// From now on requests and /ready are answered with 503; running requests continue.
  void start_draining();

  Engine& engine();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
