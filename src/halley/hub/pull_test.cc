// Models by name where no network is asked; tests/hub/pull_test.py has the rest.
#include "halley/hub/pull.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/hub/cache.h"

namespace halley::hub {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kCommit(40, 'a');

class FindModel : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    ::setenv("HF_HUB_CACHE", folder_.c_str(), 1);
    ::setenv("HF_HUB_OFFLINE", "1", 1);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    ::unsetenv("HF_HUB_CACHE");
    ::unsetenv("HF_HUB_OFFLINE");
  }
  static fs::path find(const std::string& model, const LookupOptions& options = {}) {
    return find_model(model, options, {});
  }

  const fs::path folder_ = fs::temp_directory_path() / str("halley_find_model_", ::getpid());
};

TEST_F(FindModel, PathsAreThemselves) {
  for (const std::string& path : {std::string(), std::string("models"), std::string("/no/such"),
                                  std::string("./no/such"), folder_.string()}) {
    EXPECT_EQ(find(path), path);
  }
  // A folder ORG is here: this is a path below it, with a slip.
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  fs::create_directories("models");
  EXPECT_EQ(find("models/demo"), "models/demo");
  fs::current_path(before);
}

TEST_F(FindModel, NamesAreInTheCache) {
  const CachedRepo repo(folder_, "org/name");
  repo.set_commit("v1", kCommit);
  fs::create_directories(repo.snapshot(kCommit));
  std::ofstream(repo.snapshot(kCommit) / "model.gguf") << "GGUF";
  EXPECT_EQ(find("org/name", {.revision = "v1"}), repo.snapshot(kCommit) / "model.gguf");
  EXPECT_EQ(find("org/name", {.revision = kCommit, .downloads = true}),
            repo.snapshot(kCommit) / "model.gguf");
  EXPECT_THAT([] { find("org/name"); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("got no revision main of it"),
                                              HasSubstr("'halley pull org/name'"))));
  EXPECT_THAT(
      [] { find("org/name/b.gguf", {.revision = "v1"}); },
      ThrowsMessage<InputError>(AllOf(HasSubstr("got no b.gguf"),
                                      HasSubstr("'halley pull org/name/b.gguf --revision v1'"))));
  EXPECT_THAT([] { find("org/name", {.revision = "../v1"}); },
              ThrowsMessage<InputError>(HasSubstr("--revision: expected a branch")));
}

TEST_F(FindModel, DownloadsNothingOffline) {
  EXPECT_THAT([] { find("org/name", {.downloads = true}); },
              ThrowsMessage<InputError>(HasSubstr("HF_HUB_OFFLINE")));
}

}  // namespace
}  // namespace halley::hub
