#include "halley/server/app/adapter_table.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Adapter> fake_load(const fs::path& folder, const std::string& name) {
  if (folder.filename() == "broken") throw CheckpointError("broken: expected an adapter.");
  auto adapter = std::make_shared<Adapter>();
  adapter->name = name;
  return adapter;
}

class AdapterTables : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    for (const char* name : {"open/a", "open/b", "open/broken", "secret", "open2"}) {
      fs::create_directories(root_ / name);
    }
    fs::create_directory_symlink(root_ / "secret", root_ / "open/link");
  }
  void TearDown() override { fs::remove_all(root_); }

  /// Status and message of the error of load(); empty: none.
  std::string error(const std::string& name, const std::string& path, bool replaces = false) {
    try {
      table_.load(name, path, replaces);
    } catch (const ApiError& error) {
      return str(error.details().status, " ", error.what());
    }
    return {};
  }

  const fs::path root_ =
      fs::path(testing::TempDir()) /
      str("adapters_", testing::UnitTest::GetInstance()->current_test_info()->name());
  AdapterTable table_{{"model"}, root_ / "open", fake_load};
};

TEST_F(AdapterTables, ClientsLoadReplaceAndUnload) {
  EXPECT_TRUE(table_.is_open_to_clients());
  EXPECT_EQ(error("x", "a"), "");
  EXPECT_EQ(error("y", (root_ / "open/b").string()), "");
  EXPECT_THAT(table_.names(), ElementsAre("x", "y"));
  const auto held = table_.find("x");
  EXPECT_THAT(error("x", "b"), HasSubstr("400 adapter: expected a name that no model"));
  EXPECT_EQ(error("x", "b", true), "");
  EXPECT_NE(table_.find("x"), held);
  table_.unload("x");
  EXPECT_EQ(table_.find("x"), nullptr);
  EXPECT_EQ(held->name, "x");
  EXPECT_THROW(table_.unload("x"), ApiError);
}

TEST_F(AdapterTables, ClientsReadNothingOutsideOfTheFolder) {
  for (const std::string path :
       {"../secret", "link", "a/../../secret", "../open2", "/", "nowhere"}) {
    EXPECT_THAT(error("x", path), HasSubstr("403 lora_path: expected a folder in")) << path;
  }
  EXPECT_EQ(table_.find("x"), nullptr);
}

TEST_F(AdapterTables, NamesThatCannotBe) {
  for (const std::string name : {"", "model", "two words", "new\nline", "\xC3\xA9"}) {
    EXPECT_THAT(error(name, "a"), HasSubstr("400 adapter: expected a name")) << name;
  }
  EXPECT_THAT(error(std::string(129, 'x'), "a"), HasSubstr("1 to 128"));
}

TEST_F(AdapterTables, AdapterThatCannotBeLoadedChangesNothing) {
  EXPECT_EQ(error("x", "a"), "");
  const auto before = table_.find("x");
  EXPECT_EQ(error("x", "broken", true), "400 broken: expected an adapter.");
  EXPECT_EQ(table_.find("x"), before);
}

TEST_F(AdapterTables, AreBounded) {
  for (size_t i = 0; i < AdapterTable::kAdaptersMax; ++i) EXPECT_EQ(error(str("x", i), "a"), "");
  EXPECT_THAT(error("one_more", "a"), HasSubstr("Unload another"));
  EXPECT_EQ(error("x7", "a", true), "");
}

TEST_F(AdapterTables, WithoutAFolderTheOperatorAloneLoads) {
  AdapterTable table({"model"}, {}, fake_load);
  EXPECT_FALSE(table.is_open_to_clients());
  table.add("x", root_ / "secret");
  EXPECT_THAT(table.names(), ElementsAre("x"));
  EXPECT_THROW(table.add("x", root_ / "secret"), InputError);
}

}  // namespace
}  // namespace halley
