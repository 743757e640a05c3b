// The routes of the server: the OpenAI API over one engine.
#pragma once

#include <memory>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/engine/engine.h"
#include "halley/server/app/app_config.h"
#include "halley/server/app/chat_format.h"
#include "halley/server/http/http_exchange.h"

namespace halley {

/// Owns the engine. Routes must not be called any more once this is being destroyed: destroy the
/// HTTP server first.
class OpenAiApp {
 public:
  /// Throws InputError where the configuration is none.
  OpenAiApp(std::unique_ptr<Engine> engine, std::shared_ptr<const Tokenizer> tokenizer,
            ChatFormat format, AppConfig config);
  /// Cancels what runs and waits for it.
  ~OpenAiApp();
  OpenAiApp(const OpenAiApp&) = delete;
  OpenAiApp& operator=(const OpenAiApp&) = delete;

  /// They refer to this object.
  std::vector<HttpRoute> routes();

  /// From now on requests are answered with 503 and /ready says so; what runs goes on.
  void start_draining();

  Engine& engine();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
