// A parsed and checked request of the OpenAI API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "halley/json/json.h"
#include "halley/precision/precision_policy.h"
#include "halley/sampling/base/sampling_params.h"
#include "halley/server/openai/ignored_members.h"
#include "halley/slo/slo.h"

namespace halley {

/// A bit mask, since a field may belong to several endpoints.
enum class ApiEndpoint : uint8_t {
  kCompletions = 1,
  kChat = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kEmbeddings = 16,
  kRerank = 32,
  kScore = 64
};

/// A text, or token ids from the client.
using ApiPrompt = std::variant<std::string, std::vector<int32_t>>;

struct ApiTool {
  std::string name;
  OrderedJson parameters;  // a JSON schema; an empty object if none is given
  bool is_strict = false;
};

struct ToolChoice {
  enum class Kind : uint8_t { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kNone;
  std::string name = {};  // for kNamed: one of the request's tools
};

/// A description of the output.
struct OutputFormat {
  enum class Kind : uint8_t { kText, kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar };
  Kind kind = Kind::kText;
  /// The member that says so, for messages: "response_format.json_schema.schema".
  std::string field = {};
  OrderedJson schema = {};                // for kJsonSchema
  std::string text = {};                  // for kRegex and kGrammar
  std::vector<std::string> choices = {};  // for kChoice
};

/// Fields of the endpoints that generate nothing (pooling_fields.h).
struct ApiPooling {
  std::vector<std::string> queries, documents;  // of kRerank and kScore
  std::string instruction;
  std::optional<int64_t> top_n;  // absent: all
  bool returns_documents = true;
  std::optional<int64_t> dimensions;  // absent: all
  std::optional<bool> normalizes;     // absent: the server's
  bool is_base64 = false;
};

/// All fields of all endpoints; those that an endpoint does not have keep their defaults.
struct ApiRequest {
  ApiEndpoint endpoint = ApiEndpoint::kCompletions;
  std::string model;  // empty: not given

  std::vector<ApiPrompt> prompts;  // of kEmbeddings: its inputs
  /// Objects as chat templates expect them: content is a string, arguments of calls are objects.
  OrderedJson messages = OrderedJson::array();
  std::vector<int32_t> token_ids;  // for /detokenize

  SamplingParams sampling;
  std::optional<int64_t> max_tokens;  // absent: the endpoint's default
  int64_t n = 1;
  int64_t priority = 0;  // lower runs first
  std::string cache_salt;
  std::optional<double> timeout_s;
  std::optional<PrecisionMode> precision;  // absent: the server's
  Slo slo;                                 // ttft and tpot; each that is absent is the server's

  bool is_stream = false;
  bool includes_usage = false;        // a chunk with the usage at the end of the stream
  bool has_continuous_usage = false;  // and in every chunk
  bool has_echo = false;
  std::optional<int64_t> num_completion_logprobs;  // for /v1/completions
  bool has_chat_logprobs = false;
  int64_t num_top_logprobs = 0;
  std::optional<int64_t> num_prompt_logprobs;  // alternatives of each token of the prompt
  bool returns_token_ids = false;
  std::vector<std::string> bad_words;          // that the output must not have
  std::vector<int32_t> allowed_token_ids;      // empty: all
  std::optional<int64_t> truncates_prompt_to;  // its last tokens; -1: as many as have room

  std::optional<bool> adds_special_tokens;
  bool adds_generation_prompt = true;
  bool continues_final_message = false;
  OrderedJson template_kwargs = OrderedJson::object();
  bool returns_token_strs = false;

  bool includes_reasoning = true;                // false: the answer leaves it out
  std::optional<int64_t> thinking_token_budget;  // most tokens of reasoning; absent: any number

  OrderedJson tools_json = nullptr;  // as sent, for the template; null: none
  std::vector<ApiTool> tools;
  std::optional<ToolChoice> tool_choice;  // set for kChat once parsed
  bool allows_parallel_calls = true;
  OutputFormat output_format;

  ApiPooling pooling;

  IgnoredMembers ignored;  // what the request has beyond this

  /// How many most likely tokens each token has, where log probabilities are wanted.
  int64_t num_alternatives() const {
    return has_chat_logprobs ? num_top_logprobs : num_completion_logprobs.value_or(0);
  }
  /// The same for the tokens of the prompt; absent: it is not scored.
  std::optional<int64_t> num_prompt_alternatives() const {
    if (has_echo && has_logprobs()) return num_alternatives();
    return num_prompt_logprobs;
  }
  bool has_logprobs() const { return has_chat_logprobs || num_completion_logprobs.has_value(); }

  /// The number of sequences that the engine will run.
  int64_t num_sequences() const {
    return n * static_cast<int64_t>(endpoint == ApiEndpoint::kChat ? 1 : prompts.size());
  }
};

}  // namespace halley
