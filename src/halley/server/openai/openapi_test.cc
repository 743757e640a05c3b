#include "halley/server/openai/openapi.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_table.h"

namespace halley {
namespace {

struct Schema {
  ApiEndpoint endpoint;
  const char* name;
};
constexpr Schema kSchemas[] = {{ApiEndpoint::kCompletions, "CompletionRequest"},
                               {ApiEndpoint::kChat, "ChatCompletionRequest"},
                               {ApiEndpoint::kTokenize, "TokenizeRequest"},
                               {ApiEndpoint::kDetokenize, "DetokenizeRequest"}};

const OrderedJson& properties_of(const OrderedJson& openapi, const char* name) {
  return openapi.at("components").at("schemas").at(name).at("properties");
}

TEST(OpenApi, HasExactlyTheFieldsOfTheTable) {
  const OrderedJson openapi = make_openapi("1.2.3", {});
  for (const Schema& schema : kSchemas) {
    std::multiset<std::string> expected;
    for (const ApiField& field : api_fields()) {
      if ((field.endpoints & bit_of(schema.endpoint)) != 0) expected.insert(field.name);
    }
    for (const NeutralField& field : neutral_fields()) {
      if ((field.endpoints & bit_of(schema.endpoint)) != 0) expected.insert(field.name);
    }
    std::multiset<std::string> names;
    for (const auto& [name, value] : properties_of(openapi, schema.name).items())
      names.insert(name);
    EXPECT_EQ(names, expected) << schema.name;  // no name twice in the table either
  }
}

TEST(OpenApi, HasTheRangesThatTheParserEnforces) {
  const OrderedJson openapi = make_openapi("1.2.3", {});
  int num_ranges = 0;
  for (const auto& [name, schema] : properties_of(openapi, "CompletionRequest").items()) {
    if (!schema.contains("maximum")) continue;
    ++num_ranges;
    for (const ApiField& field : api_fields()) {
      if (name != field.name || (field.endpoints & bit_of(ApiEndpoint::kCompletions)) == 0)
        continue;
      EXPECT_NO_THROW(check_field(field, schema["maximum"])) << name;
      const OrderedJson above = schema["maximum"].get<double>() + 1;
      EXPECT_THROW(check_field(field, above), ApiError) << name;
      if (schema.contains("minimum")) {
        EXPECT_NO_THROW(check_field(field, schema["minimum"])) << name;
      } else {
        EXPECT_THROW(check_field(field, schema["exclusiveMinimum"]), ApiError) << name;
      }
    }
  }
  EXPECT_GT(num_ranges, 10);
}

TEST(OpenApi, HasTheLengthsThatTheParserEnforces) {
  const OrderedJson openapi = make_openapi("1.2.3", {});
  int num_minima = 0;
  for (const auto& [name, schema] : properties_of(openapi, "ChatCompletionRequest").items()) {
    if (!schema.contains("maxLength")) continue;
    for (const ApiField& field : api_fields()) {
      if (name != field.name) continue;
      const auto length = schema["maxLength"].get<size_t>();
      EXPECT_NO_THROW(check_field(field, std::string(length, 'a'))) << name;
      EXPECT_THROW(check_field(field, std::string(length + 1, 'a')), ApiError) << name;
      if (schema.contains("minLength")) {
        ++num_minima;
        EXPECT_THROW(check_field(field, ""), ApiError) << name;
      } else {
        EXPECT_NO_THROW(check_field(field, "")) << name;
      }
    }
  }
  EXPECT_GT(num_minima, 1);
}

TEST(OpenApi, NamesTheModesOfThePrecision) {
  const OrderedJson openapi = make_openapi("1.2.3", {});
  EXPECT_EQ(properties_of(openapi, "CompletionRequest")["precision"]["anyOf"][0]["enum"],
            OrderedJson::parse(R"(["full", "low", "auto"])"));
}

TEST(OpenApi, DefaultsAreInRange) {
  for (const ApiField& field : api_fields()) {
    if (field.default_json == nullptr) continue;
    EXPECT_NO_THROW(check_field(field, OrderedJson::parse(field.default_json))) << field.name;
  }
}

TEST(OpenApi, EveryReferenceExists) {
  const OrderedJson openapi = make_openapi("1.2.3", {});
  EXPECT_EQ(openapi["info"]["version"], "1.2.3");
  int num_bodies = 0;
  for (const auto& [path, operations] : openapi["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      if (!operation.contains("requestBody")) continue;
      ++num_bodies;
      const std::string reference =
          operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
      EXPECT_TRUE(openapi.contains(OrderedJson::json_pointer(reference.substr(1)))) << reference;
    }
  }
  EXPECT_EQ(num_bodies, 7);
}

TEST(OpenApi, TheManualHasTheTable) {
  const std::string manual = read_text_file(str(HALLEY_SOURCE_DIR, "/docs/serving.md"), 1 << 20);
  const std::string table = fields_in_markdown({api_fields(), neutral_fields()}, true);
  EXPECT_NE(manual.find(table), std::string::npos)
      << "docs/serving.md: expected this table between its marks:\n"
      << table;
}

}  // namespace
}  // namespace halley
