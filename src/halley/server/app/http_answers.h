// HTTP answers, and steps that several routes share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/server/app/app_context.h"
#include "halley/server/app/request_watch.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/ignored_members.h"
#include "halley/server/openai/reply.h"

namespace halley {

/// In the format of `api`, or of OpenAI's chats where it is null.
HttpResponse error_response(const ApiError& error, const ChatApi* api = nullptr);
HttpResponse json_response(const OrderedJson& json, int status = 200);
/// The beginning of a stream of server-sent events, and an event of it that says nothing.
HttpResponse stream_response(std::string events);
inline constexpr const char* kSseComment = ": keep-alive\n\n";

/// Tells what a request has that changes nothing: AppConfig::on_ignored, once for each request, and
/// the header of its answer.
void report_ignored(const AppConfig& config, const std::string& request_id,
                    const IgnoredMembers& ignored);
void add_ignored(const IgnoredMembers& ignored, HttpResponse& response);

/// Runs a step of a request. If it throws, `fail` gets the error for the client, but not for
/// ClientGone, as nobody reads it; what the client must not see goes to AppConfig::on_error.
/// Returns whether the step was completed.
bool run_step(const AppConfig& config, const std::string& request_id,
              const std::function<void()>& step, const std::function<void(const ApiError&)>& fail);

/// The adapter of that name; null for the model itself. Throws ApiError 404 if `name` is given and
/// not served.
std::shared_ptr<const Adapter> find_model(const AppConfig& config, const std::string& name);

/// Throws ApiError 400 for low precision of a model that has one precision.
void check_precision(const AppContext& context, const ApiRequest& request);

/// Who sent the request, for turns: the holder of its key, which the HTTP server has checked where
/// there are keys, else the address without the port.
std::string client_of(const AppConfig& config, const HttpRequest& request);

/// Queues a request for the preprocessing threads: by its body's length, and with those of the same
/// client. False: the queue is full.
[[nodiscard]] bool push_preprocessing(AppContext& context, const HttpRequest& request,
                                      PreprocessingQueue::Job job);
/// The same for what is left of a request in another lane.
[[nodiscard]] bool push_preprocessing(AppContext& context, PreprocessingLane lane,
                                      const HttpRequest& request, PreprocessingQueue::Job job);

/// Throws ApiError 400 if the text is too long for the context, before it is tokenized, or the
/// tokenizer rejects it, and as RequestWatch::check().
std::vector<int32_t> encode_text(const AppContext& context, const std::string& text,
                                 bool adds_special_tokens, const RequestWatch& watch);
/// The same for a prompt in the field `param`: it is too long as soon as it has no room in the
/// context for one token behind it.
std::vector<int32_t> encode_prompt(const AppContext& context, const std::string& text,
                                   bool adds_special_tokens, const char* param,
                                   const RequestWatch& watch);

/// The bytes of the vocabulary's longest token. A text of more than `max_model_len` times as many
/// cannot fit the context.
size_t find_token_bytes_max(const Tokenizer& tokenizer);

int64_t seconds_since_epoch();

}  // namespace halley
