// The answers of the routes against the schemas of openapi.json.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/server/app/testing/app_fixture.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Says of a value what JSON Schema says, as far as the answers' schemas use it; and members that a
/// schema with properties does not have, since a description that lacks some is of less use.
class SchemaCheck {
 public:
  explicit SchemaCheck(const OrderedJson& openapi) : openapi_(openapi) {}

  std::string why_not(const OrderedJson& schema, const OrderedJson& value,
                      const std::string& path) const {
    if (schema.contains("$ref")) {
      const std::string reference = schema["$ref"];
      return why_not(openapi_.at(OrderedJson::json_pointer(reference.substr(1))), value, path);
    }
    if (schema.contains("anyOf")) {
      std::string all;
      for (const OrderedJson& part : schema["anyOf"]) {
        const std::string why = why_not(part, value, path);
        if (why.empty()) return {};
        all += str(all.empty() ? "" : " and ", why);
      }
      return all;
    }
    if (schema.contains("const") && schema["const"] != value) return str(path, ": not the const");
    if (schema.contains("enum") && !has(schema["enum"], value)) return str(path, ": not in enum");
    if (schema.contains("type") && !has_type(schema["type"], value)) {
      return str(path, ": expected ", schema["type"].dump(), ", got ", value.type_name());
    }
    if (value.is_array() && schema.contains("items")) {
      for (size_t i = 0; i < value.size(); ++i) {
        const std::string why = why_not(schema["items"], value[i], str(path, "[", i, "]"));
        if (!why.empty()) return why;
      }
    }
    return value.is_object() ? why_no_object(schema, value, path) : std::string();
  }

 private:
  static bool has(const OrderedJson& list, const OrderedJson& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  }

  static bool has_type(const OrderedJson& types, const OrderedJson& value) {
    if (types.is_array()) {
      return std::any_of(types.begin(), types.end(),
                         [&](const OrderedJson& type) { return has_type(type, value); });
    }
    const std::string type = types;
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    return type == value.type_name();
  }

  std::string why_no_object(const OrderedJson& schema, const OrderedJson& value,
                            const std::string& path) const {
    const OrderedJson required = schema.value("required", OrderedJson::array());
    for (const OrderedJson& name : required) {
      if (!value.contains(name.get<std::string>())) return str(path, ": lacks ", name.dump());
    }
    const OrderedJson properties = schema.value("properties", OrderedJson::object());
    for (const auto& [name, member] : value.items()) {
      const std::string where = str(path, ".", name);
      if (properties.contains(name)) {
        const std::string why = why_not(properties[name], member, where);
        if (!why.empty()) return why;
      } else if (schema.contains("additionalProperties")) {
        const std::string why = why_not(schema["additionalProperties"], member, where);
        if (!why.empty()) return why;
      } else if (!properties.empty()) {
        return str(where, ": no schema");
      }
    }
    return {};
  }

  const OrderedJson& openapi_;
};

struct Call {
  const char* method;
  const char* path;
  const char* body;
};
constexpr const char* kChat =
    R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5)";

const std::vector<Call>& calls() {
  static const std::string chat = std::string(kChat) + "}";
  static const std::string chat_logprobs =
      std::string(kChat) + R"(, "logprobs": true, "top_logprobs": 2, "return_token_ids": true})";
  static const std::string call =
      R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 400, "seed": 3,
          "tool_choice": "required", "tools": [{"type": "function", "function": {"name": "add",
          "parameters": {"type": "object", "additionalProperties": false,
          "properties": {"a": {"type": "boolean"}}, "required": ["a"]}}}]})";
  static const std::string messages = std::string(kChat) + R"(, "model": "fake"})";
  static const std::string count =
      R"({"model": "fake", "messages": [{"role": "user", "content": "hi"}]})";
  static const std::vector<Call> kCalls = {
      {"post", "/v1/completions", R"({"prompt": "ab", "max_tokens": 4})"},
      {"post", "/v1/completions",
       R"({"prompt": ["ab", "c"], "max_tokens": 4, "logprobs": 2, "echo": true, "n": 2,
           "return_token_ids": true})"},
      {"post", "/v1/completions", R"({"prompt": "ab", "max_tokens": 4, "prompt_logprobs": 1})"},
      {"post", "/v1/chat/completions", chat.c_str()},
      {"post", "/v1/chat/completions", chat_logprobs.c_str()},
      {"post", "/v1/chat/completions", call.c_str()},
      {"post", "/v1/responses", R"({"input": "hi", "max_output_tokens": 5})"},
      {"post", "/v1/messages", messages.c_str()},
      {"post", "/v1/messages/count_tokens", count.c_str()},
      {"post", "/v1/embeddings", R"({"input": "ab"})"},
      {"post", "/v1/embeddings", R"({"input": ["ab", "c"], "encoding_format": "base64"})"},
      {"post", "/v1/rerank", R"({"query": "a", "documents": ["b", "c"]})"},
      {"post", "/v1/score", R"({"text_1": "a", "text_2": "b"})"},
      {"post", "/tokenize", R"({"prompt": "ab", "return_token_strs": true})"},
      {"post", "/tokenize", R"({"prompt": "ab"})"},
      {"post", "/detokenize", R"({"tokens": [20, 21]})"},
      {"post", "/apply-template", R"({"messages": [{"role": "user", "content": "hi"}]})"},
      {"get", "/v1/models", ""},
      {"get", "/props", ""},
      {"get", "/slots", ""},
      {"get", "/load", ""},
      {"get", "/server_info", ""},
      {"get", "/health", ""},
      {"get", "/ready", ""},
      {"get", "/version", ""},
      {"get", "/precision", ""},
  };
  return kCalls;
}

TEST(OpenApiAnswers, AreWhatTheRoutesGive) {
  App app;
  const OrderedJson openapi = OrderedJson::parse(app.get("/openapi.json").body);
  const SchemaCheck check(openapi);
  for (const Call& call : calls()) {
    const std::string method = call.method == std::string("get") ? "GET" : "POST";
    const HttpResponse response = app.start(method, call.path, call.body)->wait();
    ASSERT_EQ(response.status, 200) << call.path << response.body;
    const OrderedJson& schema = openapi["paths"][call.path][call.method]["responses"]["200"]
                                       ["content"]["application/json"]["schema"];
    EXPECT_TRUE(schema.contains("$ref")) << call.path;
    EXPECT_EQ(check.why_not(schema, OrderedJson::parse(response.body), ""), "")
        << call.path << " " << call.body << "\n"
        << response.body;
  }
}

TEST(OpenApiAnswers, HaveASchemaForEveryRoute) {
  App app;
  const OrderedJson openapi = OrderedJson::parse(app.get("/openapi.json").body);
  for (const auto& [path, operations] : openapi["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      const OrderedJson& content = operation["responses"]["200"]["content"];
      if (path == "/metrics") {
        EXPECT_TRUE(content.contains("text/plain"));
        continue;
      }
      const OrderedJson& schema = content["application/json"]["schema"];
      ASSERT_TRUE(schema.contains("$ref")) << path;
      const std::string reference = schema["$ref"];
      EXPECT_TRUE(openapi.contains(OrderedJson::json_pointer(reference.substr(1)))) << reference;
    }
  }
}

// The check is no empty one.
TEST(OpenApiAnswers, OfAnotherFormAreTold) {
  App app;
  const OrderedJson openapi = OrderedJson::parse(app.get("/openapi.json").body);
  const SchemaCheck check(openapi);
  const OrderedJson schema = {{"$ref", "#/components/schemas/EmbeddingList"}};
  OrderedJson answer = app.post_json("/v1/embeddings", R"({"input": "ab"})");
  EXPECT_THAT(check.why_not(schema, answer, ""), IsEmpty());
  answer["data"][0]["embedding"] = 3;
  EXPECT_THAT(check.why_not(schema, answer, ""), HasSubstr(".data[0].embedding: expected"));
  answer["data"] = OrderedJson::array();
  answer["more"] = 1;
  EXPECT_EQ(check.why_not(schema, answer, ""), ".more: no schema");
  answer.erase("model");
  EXPECT_THAT(check.why_not(schema, answer, ""), Not(IsEmpty()));
}

}  // namespace
}  // namespace halley
