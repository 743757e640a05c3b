// The bodies of requests that generate nothing: embeddings, reranking and scores.
#pragma once

#include <span>
#include <string_view>

#include "halley/server/openai/api_request.h"
#include "halley/server/openai/field_table.h"
#include "halley/server/openai/openapi.h"
#include "halley/server/openai/request_parser.h"

namespace halley {

/// The fields of all three endpoints; names and meanings are OpenAI's, vLLM's and Jina's.
FieldTables pooling_tables();
/// The routes of each endpoint, for openapi.json.
std::span<const ApiDescription> pooling_descriptions();

/// Parses a body for kEmbeddings, kRerank or kScore. Throws ApiError as parse_request().
ApiRequest parse_pooling_request(std::string_view body, ApiEndpoint endpoint,
                                 const RequestRules& rules);

}  // namespace halley
