// The operator's configuration of the API.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "halley/base/byte_budget.h"
#include "halley/engine/engine.h"
#include "halley/server/app/adapter_table.h"
#include "halley/server/app/pooling_config.h"
#include "halley/server/responses/response_store.h"

namespace halley {

struct AppConfig {
  /// At least one; responses have the first one.
  std::vector<std::string> model_names;
  std::string version;
  SamplingParams sampling = {};  // defaults of requests
  int64_t vocab_size = 0;
  std::vector<int32_t> eos_token_ids = {};  // the engine's
  bool ignores_unknown_fields = false;
  double request_timeout_s = 0;       // for requests without one; 0: none
  int num_preprocessing_threads = 2;  // for parsing, templates and tokenizing
  /// The memory of all answers in the making (answer_budget.h); 0: a quarter of what is available
  /// when the app is made.
  int64_t answer_bytes_max = 0;
  /// The events of a stream that wait for the response thread, for each of its sequences; a stream
  /// with more is ended.
  int64_t stream_events_bytes_max = int64_t{256} << 10;
  /// The memory of all compiled schemas and grammars, each as it is before its first mask.
  int64_t constraint_bytes_max = int64_t{512} << 20;
  /// Responses of POST /v1/responses that are kept; none by default.
  ResponseStoreLimits stored_responses = {};
  std::shared_ptr<AdapterTable> adapters = {};  // null: there are none
  PoolingConfig pooling = {};                   // of embeddings, rerank and score
  bool has_api_keys = false;  // clients are told apart by their keys, not by addresses
  int64_t created_s = 0;      // when the model was loaded, for /v1/models

  /// For metrics: called when a sequence is submitted. The result is called with all events of the
  /// sequence, on the engine's thread: it must be quick and must not throw.
  std::function<TokenCallback()> make_observer = {};
  /// Returns the text of /metrics from what the app counts itself; null: the route does not exist.
  std::function<std::string(const ByteBudgetStats& answers)> metrics = {};
  /// Reports an internal error, which a client must not see: the request's id and the exception's
  /// text. Called on any thread.
  std::function<void(const std::string& request_id, const std::string& what)> on_error = {};
  /// Reports what a request has that changes nothing (IgnoredMembers::text()). Called on any
  /// thread.
  std::function<void(const std::string& request_id, const std::string& paths)> on_ignored = {};
};

}  // namespace halley
