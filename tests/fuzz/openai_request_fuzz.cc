// Parses any text as the body of a request; the first byte says the endpoint and whether unknown
// fields are ignored. Only ApiError may
// leave, and what is taken must be in the ranges that the engine demands.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "halley/base/check.h"
#include "halley/sampling/base/sampling_params.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/pooling_fields.h"
#include "halley/server/openai/request_parser.h"

namespace {

constexpr halley::ApiEndpoint kEndpoints[] = {
    halley::ApiEndpoint::kCompletions, halley::ApiEndpoint::kChat, halley::ApiEndpoint::kTokenize,
    halley::ApiEndpoint::kDetokenize};
constexpr halley::ApiEndpoint kPoolingEndpoints[] = {
    halley::ApiEndpoint::kEmbeddings, halley::ApiEndpoint::kRerank, halley::ApiEndpoint::kScore,
    halley::ApiEndpoint::kEmbeddings};
constexpr int64_t kVocabSize = 1000;

void parse_pooling(std::string_view body, uint8_t kind, const halley::RequestRules& rules) {
  const halley::ApiRequest request =
      halley::parse_pooling_request(body, kPoolingEndpoints[kind & 3], rules);
  const halley::ApiPooling& pooling = request.pooling;
  HALLEY_CHECK(request.prompts.size() + pooling.documents.size() <= 1024, request.prompts.size());
  HALLEY_CHECK(pooling.documents.empty() || !pooling.queries.empty(), pooling.documents.size());
  HALLEY_CHECK(pooling.dimensions.value_or(1) >= 1 && pooling.top_n.value_or(1) >= 1, kind);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  halley::RequestRules rules;
  rules.vocab_size = kVocabSize;
  rules.ignores_unknown_fields = (data[0] & 4) != 0;
  try {
    if ((data[0] & 8) != 0) {
      parse_pooling(body, data[0], rules);
      return 0;
    }
    halley::ApiRequest request = halley::parse_request(body, kEndpoints[data[0] & 3], rules);
    HALLEY_CHECK(request.num_sequences() <= 1024, request.num_sequences());
    for (const auto& limit : {request.slo.ttft, request.slo.tpot}) {
      HALLEY_CHECK(!limit || (*limit > 0 && *limit <= halley::Slo::kSecondsMax));
    }
    // The app fills in what the client left out.
    request.sampling.max_tokens = request.max_tokens.value_or(INT64_MAX);
    if (request.sampling.max_tokens > 0) {
      halley::check_sampling_params(request.sampling, kVocabSize);
    }
  } catch (const halley::ApiError& error) {
    HALLEY_CHECK(error.details().status == 400, error.what());
    HALLEY_CHECK(!error.body().empty());
  }
  return 0;
}
