#include "halley/hub/cache.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/split_name.h"
#include "halley/checkpoint/safetensors/weight_index.h"
#include "halley/hub/repo_name.h"

namespace halley::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRefBytesMax = 256;
constexpr size_t kIndexBytesMax = 100'000'000;  // as for loading it
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

/// "~/x" as shells read it, since the variables may come from files that no shell has read.
fs::path without_tilde(const std::string& text) {
  const auto home = env_string("HOME");
  return home && text.starts_with("~/") ? fs::path(*home) / text.substr(2) : fs::path(text);
}

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw DeviceError(str(path.string(), ": cannot write: ", reason,
                        ". Check the permissions of the cache's folder, or set HF_HUB_CACHE to "
                        "another one."));
}

void make_parent(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) fail(path.parent_path(), error.message());
}

/// A name in the same folder that no other process uses.
fs::path own_name_for(const fs::path& path) {
  return fs::path(str(path.string(), ".", ::getpid(), ".tmp"));
}

void rename_over(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(from, ignored);
  fail(to, error.message());
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

/// Paths relative to `folder` of the files with this extension, sorted.
std::vector<std::string> list_files(const fs::path& folder, const char* extension) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == extension && is_file(it->path())) {
      names.push_back(it->path().lexically_relative(folder).string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The parts of a split file that are not there, or the file itself.
std::string missing_gguf(const fs::path& snapshot, const std::string& name) {
  const auto split = parse_gguf_split_name(name);
  if (!split) return is_file(snapshot / name) ? "" : name;
  for (int number = 1; number <= split->count; ++number) {
    std::string part =
        gguf_split_name({.prefix = split->prefix, .number = number, .count = split->count});
    if (!is_file(snapshot / part)) return part;
  }
  return {};
}

SnapshotModel gguf_in_snapshot(const fs::path& snapshot, const std::string& name) {
  std::string first = name;
  if (auto split = parse_gguf_split_name(name)) {
    split->number = 1;
    first = gguf_split_name(*split);
  }
  const std::string missing = missing_gguf(snapshot, first);
  return {.path = snapshot / first, .why_not = missing.empty() ? "" : str("no ", missing)};
}

SnapshotModel safetensors_in_snapshot(const fs::path& snapshot) {
  SnapshotModel model = {.path = snapshot, .why_not = {}};
  if (!is_file(snapshot / "config.json")) {
    model.why_not = "no config.json";
  } else if (!is_file(snapshot / kSingleName) && is_file(snapshot / kIndexName)) {
    const std::string index = (snapshot / kIndexName).string();
    for (const auto& [tensor, shard] :
         parse_weight_index(read_text_file(index, kIndexBytesMax), index)) {
      if (!is_file(snapshot / shard)) model.why_not = str("no ", shard);
    }
  }
  return model;
}

}  // namespace

fs::path cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto folder = env_string(name)) return without_tilde(*folder);
  }
  if (const auto folder = env_string("HF_HOME")) return without_tilde(*folder) / "hub";
  if (const auto folder = env_string("XDG_CACHE_HOME")) {
    return without_tilde(*folder) / "huggingface/hub";
  }
  if (const auto home = env_string("HOME")) return fs::path(*home) / ".cache/huggingface/hub";
  throw InputError(
      "the Hugging Face cache: expected HF_HUB_CACHE, HF_HOME or HOME in the environment, got "
      "none. Set HF_HUB_CACHE to a folder.");
}

CachedRepo::CachedRepo(const fs::path& cache, const std::string& repo) {
  std::string name = "models--" + repo;
  name.replace(name.find('/'), 1, "--");
  folder_ = cache / name;
  locks_ = cache / ".locks" / name;
}

std::optional<std::string> CachedRepo::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const fs::path ref = folder_ / "refs" / revision;
  if (!is_file(ref)) return std::nullopt;
  std::string commit = read_text_file(ref, kRefBytesMax);
  while (!commit.empty() && commit.back() == '\n') commit.pop_back();
  if (is_commit(commit)) return commit;
  throw CheckpointError(str(ref.string(), ": expected a commit of 40 digits, got ",
                            halley::quote(commit), ". Remove the file and pull the model again."));
}

fs::path CachedRepo::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

fs::path CachedRepo::blob(const std::string& checksum) const {
  return folder_ / "blobs" / checksum;
}

fs::path CachedRepo::lock(const std::string& checksum) const {
  return locks_ / (checksum + ".lock");
}

void CachedRepo::place(const std::string& commit, const std::string& path,
                       const std::string& checksum) const {
  const fs::path link = snapshot(commit) / path;
  const fs::path target = blob(checksum).lexically_relative(link.parent_path());
  std::error_code error;
  if (fs::read_symlink(link, error) == target) return;
  make_parent(link);
  const fs::path own = own_name_for(link);
  fs::create_symlink(target, own, error);
  if (error) fail(link, error.message());
  rename_over(own, link);
}

void CachedRepo::set_commit(const std::string& revision, const std::string& commit) const {
  if (is_commit(revision)) return;
  const fs::path ref = folder_ / "refs" / revision;
  make_parent(ref);
  const fs::path own = own_name_for(ref);
  std::ofstream file(own);
  file << commit << std::flush;
  if (!file) fail(ref, std::strerror(errno));
  rename_over(own, ref);
}

SnapshotModel find_in_snapshot(const fs::path& snapshot, const std::string& repo,
                               const std::string& gguf) {
  if (!gguf.empty()) return gguf_in_snapshot(snapshot, gguf);
  std::error_code error;
  if (!fs::is_directory(snapshot, error)) return {.path = {}, .why_not = "no snapshot"};
  for (fs::directory_iterator it(snapshot, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") return safetensors_in_snapshot(snapshot);
  }
  std::vector<std::string> models;
  for (const std::string& name : list_files(snapshot, ".gguf")) {
    const auto split = parse_gguf_split_name(name);
    const bool is_projector = fs::path(name).filename().string().starts_with("mmproj");
    if (!is_projector && (!split || split->number == 1)) models.push_back(name);
  }
  if (models.empty()) return {.path = {}, .why_not = "no weights"};
  if (models.size() == 1) return gguf_in_snapshot(snapshot, models.front());
  throw InputError(str(repo, ": expected one GGUF file in the cache, got ", models.size(), ": ",
                       halley::quote(models[0]), ", ", halley::quote(models[1]),
                       models.size() > 2 ? ", ..." : "", ". Name one: ", repo, "/", models[0],
                       "."));
}

}  // namespace halley::hub
