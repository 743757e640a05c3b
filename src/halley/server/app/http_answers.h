// HTTP answers, and steps that several routes share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/server/app/app_context.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/openai/api_error.h"

namespace halley {

HttpResponse error_response(const ApiError& error);
HttpResponse json_response(const OrderedJson& json, int status = 200);
/// The beginning of a stream of server-sent events, and an event of it that says nothing.
HttpResponse stream_response(std::string events);
inline constexpr const char* kSseComment = ": keep-alive\n\n";

/// Throws ApiError 404 if `name` is given and not served.
void check_model_name(const AppConfig& config, const std::string& name);

/// Throws ApiError 400 if the text is too long for the context, before it is tokenized, or the
/// tokenizer rejects it.
std::vector<int32_t> encode_prompt(const AppContext& context, const std::string& text,
                                   bool adds_special_tokens);

/// The bytes of `max_model_len` copies of the vocabulary's longest token: a longer text cannot fit
/// the context.
size_t find_text_bytes_max(const Tokenizer& tokenizer, int64_t max_model_len);

int64_t seconds_since_epoch();

}  // namespace halley
