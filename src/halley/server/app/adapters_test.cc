// LoRA adapters through the API, on the fake model.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/server/app/testing/app_fixture.h"

namespace halley {
namespace {

using testing::HasSubstr;

/// An app with the adapter "sql", whose clients may load others from a folder of the test.
class AdapterApi : public testing::Test {
 protected:
  AdapterApi() : app_(setup()) {}
  ~AdapterApi() override { std::filesystem::remove_all(folder_); }

  AppSetup setup() {
    std::filesystem::create_directories(folder_ / "v2");
    table_ = std::make_shared<AdapterTable>(
        std::vector<std::string>{"fake", "other"}, folder_,
        [this](const std::filesystem::path&, const std::string& name) {
          auto adapter = std::make_shared<Adapter>();
          adapter->name = name;
          adapter->id = ++last_id_;
          return adapter;
        });
    table_->add("sql", folder_);
    AppSetup setup;
    setup.app.adapters = table_;
    return setup;
  }

  std::string text_of(const std::string& model) {
    const OrderedJson json = app_.post_json(
        "/v1/completions",
        str(R"({"model": ")", model, R"(", "prompt": "ab", "max_tokens": 12, "seed": 1,
                "ignore_eos": true})"));
    EXPECT_EQ(json["model"], model);
    return json["choices"][0]["text"];
  }
  int status_of(const std::string& model) {
    return app_.post("/v1/completions", str(R"({"model": ")", model, R"(", "prompt": "ab"})"))
        .status;
  }
  std::string change(const std::string& what, const std::string& body) {
    const HttpResponse response = app_.post(str("/v1/", what, "_lora_adapter"), body);
    return str(response.status, " ", response.body);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      str("adapter_api_", testing::UnitTest::GetInstance()->current_test_info()->name());
  uint64_t last_id_ = 0;
  std::shared_ptr<AdapterTable> table_;
  App app_;
};

TEST_F(AdapterApi, ModelNamesChoose) {
  EXPECT_EQ(text_of("fake"), text_of("other"));
  EXPECT_NE(text_of("fake"), text_of("sql"));
  EXPECT_EQ(text_of("sql"), text_of("sql"));
  EXPECT_EQ(status_of("nobody"), 404);
}

TEST_F(AdapterApi, ModelsListsThemWithTheirBase) {
  const OrderedJson list = OrderedJson::parse(app_.get("/v1/models").body)["data"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[2]["id"], "sql");
  EXPECT_EQ(list[2]["parent"], "fake");
  EXPECT_EQ(list[0]["parent"], nullptr);
  EXPECT_EQ(OrderedJson::parse(app_.get("/v1/models/sql").body)["id"], "sql");
}

TEST_F(AdapterApi, ClientsLoadAndUnload) {
  EXPECT_EQ(change("load", R"({"lora_name": "new", "lora_path": "v2"})"),
            R"(200 {"status":"loaded","lora_name":"new"})");
  const std::string text = text_of("new");
  EXPECT_NE(text, text_of("sql"));
  EXPECT_THAT(change("load", R"({"lora_name": "new", "lora_path": "v2"})"), HasSubstr("400 "));
  EXPECT_THAT(change("load", R"({"lora_name": "new", "lora_path": "v2", "load_inplace": true})"),
              HasSubstr("200 "));
  EXPECT_NE(text_of("new"), text);
  EXPECT_THAT(change("unload", R"({"lora_name": "new"})"), HasSubstr("200 "));
  EXPECT_EQ(status_of("new"), 404);
  EXPECT_THAT(change("unload", R"({"lora_name": "new"})"), HasSubstr("404 "));
  EXPECT_THAT(change("unload", R"({"lora_name": "sql"})"), HasSubstr("200 "));
  EXPECT_EQ(app_.get("/v1/models/sql").status, 404);
}

TEST_F(AdapterApi, RejectsBodiesByTheirField) {
  const std::pair<const char*, const char*> bodies[] = {
      {"", "not valid JSON"},
      {"[]", "expected an object"},
      {R"({"lora_path": "v2"})", "lora_name: expected a string"},
      {R"({"lora_name": "x"})", "lora_path: expected a string"},
      {R"({"lora_name": 1, "lora_path": "v2"})", "lora_name: expected a string"},
      {R"({"lora_name": "x", "lora_path": ""})", "lora_path: expected 1 to"},
      {R"({"lora_name": "x", "lora_path": "v2\u0000"})", "lora_path: expected 1 to"},
      {R"({"lora_name": "x", "lora_path": "v2", "load_inplace": 1})", "load_inplace: expected"},
      {R"({"lora_name": "x", "lora_path": "v2", "rank": 1})", "rank: unknown field"}};
  for (const auto& [body, message] : bodies) {
    EXPECT_THAT(change("load", body), testing::AllOf(HasSubstr("400 "), HasSubstr(message)));
  }
  EXPECT_THAT(change("load", R"({"lora_name": "x", "lora_path": ".."})"), HasSubstr("403 "));
}

TEST(AdapterApiClosed, ClientsChangeNothingWithoutAFolder) {
  AppSetup setup;
  setup.app.adapters = std::make_shared<AdapterTable>(
      std::vector<std::string>{"fake"}, "",
      [](const std::filesystem::path&, const std::string&) { return std::make_shared<Adapter>(); });
  App with_table(std::move(setup)), without;
  for (App* app : {&with_table, &without}) {
    for (const char* path : {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}) {
      const HttpResponse response = app->post(path, R"({"lora_name": "x", "lora_path": "/"})");
      EXPECT_EQ(response.status, 403);
      EXPECT_THAT(response.body, HasSubstr("--lora-folder"));
    }
  }
}

}  // namespace
}  // namespace halley
