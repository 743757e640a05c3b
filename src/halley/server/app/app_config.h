// What the operator says of the API.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "halley/engine/engine.h"

namespace halley {

struct AppConfig {
  /// The first is the one that answers carry. At least one.
  std::vector<std::string> model_names;
  std::string version;
  SamplingParams sampling = {};  // defaults of requests
  int64_t vocab_size = 0;
  std::vector<int32_t> eos_token_ids = {};  // the engine's
  bool ignores_unknown_fields = false;
  double request_timeout_s = 0;  // for requests that state none; 0: none
  int num_prepare_threads = 2;   // for parsing, templates and tokenizing
  int64_t created_s = 0;         // when the model was loaded, for /v1/models

  /// Called when a sequence is submitted; what it gives sees all events of the sequence, on the
  /// engine's thread: it must be quick and must not throw. For metrics.
  std::function<TokenCallback()> make_observer = {};
  /// The text of /metrics; none: the route does not exist.
  std::function<std::string()> metrics = {};
  /// What must not go to a client: the request's id and what was thrown. Any thread.
  std::function<void(const std::string& request_id, const std::string& what)> on_error = {};
};

}  // namespace halley
