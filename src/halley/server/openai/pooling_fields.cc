#include "halley/server/openai/pooling_fields.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"

namespace halley {
namespace {

constexpr uint8_t kEmbeddings = bit_of(ApiEndpoint::kEmbeddings);
constexpr uint8_t kRerank = bit_of(ApiEndpoint::kRerank);
constexpr uint8_t kScore = bit_of(ApiEndpoint::kScore);
constexpr uint8_t kPairs = kRerank | kScore;
constexpr uint8_t kAll = kEmbeddings | kPairs;

constexpr size_t kTextsMax = 1024;
constexpr double kTextBytesMax = 1 << 19;  // one text; the context bounds it further
constexpr double kInt31Max = 2147483647;

constexpr const char* kInputSchema =
    R"({"anyOf": [{"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1024},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        {"type": "array", "minItems": 1, "maxItems": 1024,
         "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}}]})";
constexpr const char* kDocumentsSchema =
    R"({"type": "array", "minItems": 1, "maxItems": 1024, "items": {"anyOf": [{"type": "string"},
        {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}]}})";
constexpr const char* kTextsSchema =
    R"({"anyOf": [{"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1024}]})";
constexpr const char* kEncodingSchema = R"({"enum": ["float", "base64"]})";

bool as_bool(const FieldValue& value) { return value.json.get<bool>(); }
int64_t as_int(const FieldValue& value) { return value.json.get<int64_t>(); }
std::string as_text(const FieldValue& value) { return value.json.get<std::string>(); }

// A text, or an object that has one in the member text.
std::string text_of(const OrderedJson& value, const std::string& path, bool may_be_object) {
  if (value.is_string()) return value.get<std::string>();
  if (may_be_object && value.is_object()) {
    return string_member(value, "text", path, static_cast<size_t>(kTextBytesMax));
  }
  throw invalid_field(path, str(path, ": expected a string",
                                may_be_object ? ", or an object with "
                                                "the member text"
                                              : "",
                                ", got ", kind_in_words(value), "."));
}

std::vector<std::string> texts_of(const FieldValue& value, bool may_be_object) {
  if (!value.json.is_array() || value.json.empty() || value.json.size() > kTextsMax) {
    throw invalid_field(
        value.name,
        str(value.name, ": expected a list of 1 to ", kTextsMax, " texts, got ",
            value.json.is_array() ? str(value.json.size()) : kind_in_words(value.json), "."));
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < value.json.size(); ++i) {
    texts.push_back(text_of(value.json[i], str(value.name, "[", i, "]"), may_be_object));
  }
  return texts;
}

std::vector<std::string> one_or_more_texts(const FieldValue& value) {
  if (value.json.is_string()) return {as_text(value)};
  return texts_of(value, /*may_be_object=*/false);
}

void store_documents(const FieldValue& value, ApiRequest& request) {
  request.pooling.documents = texts_of(value, /*may_be_object=*/true);
}

void store_encoding_format(const FieldValue& value, ApiRequest& request) {
  const std::string name = value.json.is_string() ? as_text(value) : std::string();
  if (name != "float" && name != "base64") {
    throw invalid_field(value.name,
                        str(value.name, ": expected float or base64, got ",
                            value.json.is_string() ? quote(name) : kind_in_words(value.json), "."));
  }
  request.pooling.is_base64 = name == "base64";
}

constexpr auto kFields = std::to_array<ApiField>({
    {.name = "model",
     .endpoints = kAll,
     .type = FieldType::kString,
     .range = {1, 256},
     .text = "One of the names of /v1/models; 404 for another.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.model = as_text(v); }},
    {.name = "input",
     .endpoints = kEmbeddings,
     .type = FieldType::kOther,
     .is_required = true,
     .schema = kInputSchema,
     .text = "A text, up to 1024 texts, token ids, or up to 1024 lists of ids. Each has fewer "
             "tokens than the context.",
     .store = store_prompt},
    {.name = "query",
     .endpoints = kRerank,
     .type = FieldType::kString,
     .range = {1, kTextBytesMax},
     .is_required = true,
     .text = "The text that the documents are compared with.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.pooling.queries = {as_text(v)}; }},
    {.name = "documents",
     .endpoints = kRerank,
     .type = FieldType::kOther,
     .is_required = true,
     .schema = kDocumentsSchema,
     .text = "Up to 1024 texts, or objects that have one in text.",
     .store = store_documents},
    {.name = "text_1",
     .endpoints = kScore,
     .type = FieldType::kOther,
     .is_required = true,
     .schema = kTextsSchema,
     .text = "The queries: one text, or as many as text_2 has.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.pooling.queries = one_or_more_texts(v); }},
    {.name = "text_2",
     .endpoints = kScore,
     .type = FieldType::kOther,
     .is_required = true,
     .schema = kTextsSchema,
     .text = "The documents, up to 1024.",
     .store = [](const FieldValue& v,
                 ApiRequest& r) { r.pooling.documents = one_or_more_texts(v); }},
    {.name = "instruction",
     .endpoints = kPairs,
     .type = FieldType::kString,
     .range = {1, 4096},
     .text = "What makes a document relevant, for --scoring yes-no. Default: that of the template.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.pooling.instruction = as_text(v); }},
    {.name = "top_n",
     .endpoints = kRerank,
     .type = FieldType::kInteger,
     .range = {1, kInt31Max},
     .text = "Only this many of the best documents. Default: all.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.pooling.top_n = as_int(v); }},
    {.name = "return_documents",
     .endpoints = kRerank,
     .type = FieldType::kBoolean,
     .default_json = "true",
     .text = "The results have the documents' texts.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.pooling.returns_documents = as_bool(v); }},
    {.name = "encoding_format",
     .endpoints = kEmbeddings,
     .type = FieldType::kOther,
     .default_json = R"("float")",
     .schema = kEncodingSchema,
     .text = "float: lists of numbers; base64: the bytes of 32-bit floats, little-endian.",
     .store = store_encoding_format},
    {.name = "dimensions",
     .endpoints = kEmbeddings,
     .type = FieldType::kInteger,
     .range = {1, kInt31Max},
     .text = "Only the first numbers of each embedding, for models that were trained for it "
             "(Matryoshka); at most the model's hidden size. Default: all.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.pooling.dimensions = as_int(v); }},
    {.name = "normalize",
     .endpoints = kEmbeddings,
     .type = FieldType::kBoolean,
     .text = "Divide each embedding by its length (L2), after dimensions. Default: as the model's "
             "modules.json says, else true.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.pooling.normalizes = as_bool(v); }},
    {.name = "truncate_prompt_tokens",
     .endpoints = kEmbeddings,
     .type = FieldType::kInteger,
     .range = {-1, kInt31Max},
     .text = "Only the last tokens of each input, at most this many; -1: as many as have room.",
     .store = store_truncate_prompt_tokens},
    {.name = "add_special_tokens",
     .endpoints = kEmbeddings,
     .type = FieldType::kBoolean,
     .default_json = "true",
     .text = "Put what the tokenizer adds (a BOS, an end of the text) around texts.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.adds_special_tokens = as_bool(v); }},
    {.name = "priority",
     .endpoints = kAll,
     .type = FieldType::kInteger,
     .range = {-1000, 1000},
     .default_json = "0",
     .text = "Lower ones run first.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.priority = as_int(v); }},
    {.name = "cache_salt",
     .endpoints = kAll,
     .type = FieldType::kString,
     .range = {1, 256},
     .text = "Cached prefixes are shared among requests with the same salt alone.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.cache_salt = as_text(v); }},
    {.name = "timeout",
     .endpoints = kAll,
     .type = FieldType::kNumber,
     .range = {0, 86400, true},
     .text = "Seconds after which the request ends with the error \"timeout\". Default: the "
             "server's --request-timeout.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.timeout_s = v.json.get<double>(); }},
    {.name = "user",
     .endpoints = kAll,
     .type = FieldType::kString,
     .range = {0, 512},
     .text = "Who asks, for the client's own records. Not used.",
     .store = [](const FieldValue&, ApiRequest&) {}},
});

constexpr auto kNeutral = std::to_array<NeutralField>({
    {"messages", kEmbeddings, "[]", "Render them (/apply-template) and send the text as input."},
    {"task", kAll, "[]", "Write the task into the texts, as the model was trained."},
    {"input_type", kEmbeddings, "[]",
     "Write the kind of the text into it, as the model was trained.", true},
    {"embedding_types", kEmbeddings, R"([["float"]])", "Use encoding_format."},
    {"max_tokens_per_doc", kRerank, "[]", "Shorten the documents yourself."},
    {"max_chunks_per_doc", kRerank, "[]", "Shorten the documents yourself."},
    {"rank_fields", kRerank, "[]", "Send the text to compare as the document."},
});

constexpr ApiOperation operation(const char* path, const char* summary, const char* request,
                                 const char* answer) {
  return {.method = "post", .path = path, .summary = summary, .request = request, .answer = answer};
}

constexpr auto kEmbeddingOperations = std::to_array<ApiOperation>({
    operation("/v1/embeddings", "Texts to vectors", "EmbeddingRequest", "EmbeddingList"),
    operation("/embeddings", "As /v1/embeddings", "EmbeddingRequest", "EmbeddingList"),
});
constexpr auto kRerankOperations = std::to_array<ApiOperation>({
    operation("/v1/rerank", "Documents in order of their relevance to a query", "RerankRequest",
              "RerankList"),
    operation("/rerank", "As /v1/rerank", "RerankRequest", "RerankList"),
});
constexpr auto kScoreOperations = std::to_array<ApiOperation>({
    operation("/v1/score", "The relevance of texts to others", "ScoreRequest", "ScoreList"),
    operation("/score", "As /v1/score", "ScoreRequest", "ScoreList"),
});

constexpr auto kAnswers = std::to_array<AnswerSchema>({
    {"PromptUsage", R"({"type": "object", "required": ["prompt_tokens", "total_tokens"],
        "properties": {"prompt_tokens": {"type": "integer", "minimum": 0},
                       "total_tokens": {"type": "integer", "minimum": 0}}})"},
    {"EmbeddingList", R"({"type": "object", "required": ["object", "data", "model", "usage"],
        "properties": {"object": {"const": "list"}, "model": {"type": "string"},
        "id": {"type": "string"}, "created": {"type": "integer"},
        "usage": {"$ref": "#/components/schemas/PromptUsage"},
        "data": {"type": "array", "items": {"type": "object",
          "required": ["object", "index", "embedding"], "properties": {
          "object": {"const": "embedding"}, "index": {"type": "integer", "minimum": 0},
          "embedding": {"anyOf": [{"type": "array", "items": {"type": "number"}},
                                  {"type": "string", "contentEncoding": "base64"}]}}}}}})"},
    {"RerankList", R"({"type": "object", "required": ["id", "model", "usage", "results"],
        "properties": {"id": {"type": "string"}, "model": {"type": "string"},
        "usage": {"$ref": "#/components/schemas/PromptUsage"},
        "results": {"type": "array", "items": {"type": "object",
          "required": ["index", "relevance_score"], "properties": {
          "index": {"type": "integer", "minimum": 0}, "relevance_score": {"type": "number"},
          "document": {"type": "object", "required": ["text"],
                       "properties": {"text": {"type": "string"}}}}}}}})"},
    {"ScoreList", R"({"type": "object",
        "required": ["id", "object", "created", "model", "data", "usage"], "properties": {
        "id": {"type": "string"}, "object": {"const": "list"}, "created": {"type": "integer"},
        "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/PromptUsage"},
        "data": {"type": "array", "items": {"type": "object",
          "required": ["index", "object", "score"], "properties": {
          "index": {"type": "integer", "minimum": 0}, "object": {"const": "score"},
          "score": {"type": "number"}}}}}})"},
});

void check_pairs(const ApiPooling& pooling) {
  if (pooling.queries.size() == 1 || pooling.queries.size() == pooling.documents.size()) return;
  throw invalid_field(
      "text_1", str("text_1: expected one text, or as many as text_2 (", pooling.documents.size(),
                    "), got ", pooling.queries.size(), "."));
}

}  // namespace

FieldTables pooling_tables() { return {kFields, kNeutral}; }

std::span<const ApiDescription> pooling_descriptions() {
  static const auto kDescriptions = std::to_array<ApiDescription>({
      {.operations = kEmbeddingOperations,
       .schema = "EmbeddingRequest",
       .tables = pooling_tables(),
       .endpoint = ApiEndpoint::kEmbeddings,
       .answers = kAnswers},
      {.operations = kRerankOperations,
       .schema = "RerankRequest",
       .tables = pooling_tables(),
       .endpoint = ApiEndpoint::kRerank},
      {.operations = kScoreOperations,
       .schema = "ScoreRequest",
       .tables = pooling_tables(),
       .endpoint = ApiEndpoint::kScore},
  });
  return kDescriptions;
}

ApiRequest parse_pooling_request(std::string_view body, ApiEndpoint endpoint,
                                 const RequestRules& rules) {
  ApiRequest request;
  request.endpoint = endpoint;
  store_fields(parse_body(body), pooling_tables(), rules, request);
  if (endpoint == ApiEndpoint::kScore) check_pairs(request.pooling);
  return request;
}

}  // namespace halley
