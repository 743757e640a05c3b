#include "halley/hub/cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::hub {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kCommit(40, 'a');

/// A folder for a test, and the environment as it was behind it.
class Cache : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// A file of the model's snapshot.
  void add(const std::string& path, const std::string& text = "x") const {
    const fs::path file = repo_.snapshot(kCommit) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  SnapshotModel find(const std::string& gguf = {}) const {
    return find_in_snapshot(repo_.snapshot(kCommit), "org/name", gguf);
  }

  const fs::path folder_ = fs::temp_directory_path() / str("halley_cache_", ::getpid());
  const CachedRepo repo_{folder_, "org/name"};
  const fs::path model_ = folder_ / "models--org--name";
};

TEST_F(Cache, HasTheLayoutOfHuggingfaceHub) {
  const std::string checksum(64, 'c');
  EXPECT_EQ(repo_.blob(checksum), model_ / "blobs" / checksum);
  EXPECT_EQ(repo_.lock(checksum), folder_ / ".locks/models--org--name" / (checksum + ".lock"));
  fs::create_directories(model_ / "blobs");
  std::ofstream(repo_.blob(checksum)) << "text";
  repo_.place(kCommit, "config.json", checksum);
  repo_.place(kCommit, "a/b/c.json", checksum);
  EXPECT_EQ(fs::read_symlink(model_ / "snapshots" / kCommit / "config.json"),
            fs::path("../../blobs") / checksum);
  EXPECT_EQ(fs::read_symlink(model_ / "snapshots" / kCommit / "a/b/c.json"),
            fs::path("../../../../blobs") / checksum);
  EXPECT_EQ(fs::file_size(model_ / "snapshots" / kCommit / "a/b/c.json"), 4u);
}

TEST_F(Cache, RevisionsAreAtCommits) {
  EXPECT_EQ(repo_.commit_of("main"), std::nullopt);
  EXPECT_EQ(repo_.commit_of(kCommit), kCommit);
  repo_.set_commit("main", kCommit);
  repo_.set_commit("refs/pr/1", kCommit);
  EXPECT_EQ(repo_.commit_of("main"), kCommit);
  EXPECT_EQ(repo_.commit_of("refs/pr/1"), kCommit);
  EXPECT_TRUE(fs::is_regular_file(model_ / "refs/refs/pr/1"));
  repo_.set_commit(kCommit, kCommit);
  EXPECT_FALSE(fs::exists(model_ / "refs" / kCommit));
  std::ofstream(model_ / "refs/main") << "../../elsewhere";
  EXPECT_THAT([&] { repo_.commit_of("main"); },
              ThrowsMessage<CheckpointError>(HasSubstr(R"(got "../../elsewhere")")));
}

TEST_F(Cache, LinksAreReplaced) {
  fs::create_directories(repo_.snapshot(kCommit));
  fs::create_symlink("../../blobs/none", repo_.snapshot(kCommit) / "config.json");
  repo_.place(kCommit, "config.json", std::string(40, 'b'));
  EXPECT_EQ(fs::read_symlink(repo_.snapshot(kCommit) / "config.json").filename(),
            std::string(40, 'b'));
}

TEST_F(Cache, ASnapshotIsWholeWithAllShardsOfItsIndex) {
  EXPECT_EQ(find().why_not, "no snapshot");
  add("tokenizer.json");
  EXPECT_EQ(find().why_not, "no weights");
  add("model-00001-of-00002.safetensors");
  EXPECT_EQ(find().why_not, "no config.json");
  add("config.json");
  add("model.safetensors.index.json",
      R"({"weight_map": {"a": "model-00001-of-00002.safetensors",
                         "b": "model-00002-of-00002.safetensors"}})");
  EXPECT_EQ(find().why_not, "no model-00002-of-00002.safetensors");
  add("model-00002-of-00002.safetensors");
  EXPECT_EQ(find().why_not, "");
  EXPECT_EQ(find().path, repo_.snapshot(kCommit));
}

TEST_F(Cache, ALinkWithoutItsBlobIsNoFile) {
  add("config.json");
  repo_.place(kCommit, "model.gguf", std::string(64, 'c'));
  EXPECT_EQ(find("model.gguf").why_not, "no model.gguf");
}

TEST_F(Cache, AGgufFileIsAModelWithAllOfItsParts) {
  add("q/m-00001-of-00002.gguf");
  add("mmproj-f16.gguf");
  EXPECT_EQ(find().why_not, "no q/m-00002-of-00002.gguf");
  add("q/m-00002-of-00002.gguf");
  EXPECT_EQ(find().path, repo_.snapshot(kCommit) / "q/m-00001-of-00002.gguf");
  EXPECT_EQ(find().why_not, "");
  EXPECT_EQ(find("q/m-00002-of-00002.gguf").path, find().path);
  add("other.gguf");
  EXPECT_EQ(find("other.gguf").path, repo_.snapshot(kCommit) / "other.gguf");
  EXPECT_THAT([&] { find(); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("org/name: expected one GGUF file"),
                                              HasSubstr("Name one: org/name/other.gguf."))));
}

TEST(CacheFolder, IsWhereHuggingfaceHubHasIt) {
  const char* home = std::getenv("HOME");
  const std::string home_before = home == nullptr ? "" : home;
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) {
    ::unsetenv(name);
  }
  ::setenv("HOME", "/user", 1);
  EXPECT_EQ(cache_folder(), "/user/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(cache_folder(), "/cache/huggingface/hub");
  ::setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(cache_folder(), "/user/hf/hub");
  ::setenv("HF_HUB_CACHE", "/hub", 1);
  EXPECT_EQ(cache_folder(), "/hub");
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) ::unsetenv(name);
  EXPECT_THAT([] { cache_folder(); }, ThrowsMessage<InputError>(HasSubstr("Set HF_HUB_CACHE")));
  if (home != nullptr) ::setenv("HOME", home_before.c_str(), 1);
}

}  // namespace
}  // namespace halley::hub
