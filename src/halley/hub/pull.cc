#include "halley/hub/pull.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/hub/blob_download.h"
#include "halley/hub/cache.h"
#include "halley/hub/hub_client.h"

namespace halley::hub {
namespace {

namespace fs = std::filesystem;

/// HF_HUB_OFFLINE as huggingface_hub reads it.
bool is_offline() {
  std::string value = env_string("HF_HUB_OFFLINE").value_or("");
  std::transform(value.begin(), value.end(), value.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

void check_revision(const std::string& revision) {
  if (is_revision(revision)) return;
  throw InputError(
      str("--revision: expected a branch, a tag or a commit, got ", halley::quote(revision), "."));
}

std::string counted(size_t count) { return str(count, count == 1 ? " file" : " files"); }

uint64_t num_bytes_of(const std::vector<RepoFile>& files) {
  uint64_t num_bytes = 0;
  for (const RepoFile& file : files) num_bytes += *file.num_bytes;
  return num_bytes;
}

/// Throws where the disk has no space for the files that are not in the cache.
void check_space(const fs::path& cache, const CachedRepo& cached,
                 const std::vector<RepoFile>& files) {
  uint64_t num_bytes = 0;
  std::error_code error;
  for (const RepoFile& file : files) {
    if (fs::exists(cached.blob(file.checksum), error)) continue;
    const auto there = fs::file_size(cached.blob(file.checksum).string() + ".incomplete", error);
    num_bytes += *file.num_bytes - (error ? 0 : std::min<uint64_t>(there, *file.num_bytes));
  }
  fs::create_directories(cache, error);
  const fs::space_info space = fs::space(cache, error);
  if (error || space.available >= num_bytes) return;
  throw DeviceError(str(cache.string(), ": expected free space for ",
                        format_bytes(static_cast<double>(num_bytes)), ", got ",
                        format_bytes(static_cast<double>(space.available)),
                        ". Free some, or set HF_HUB_CACHE to a folder on another disk."));
}

/// Links are placed when all files are there.
void download_files(HubClient& client, const CachedRepo& cached, const std::string& repo,
                    const std::string& commit, const std::vector<RepoFile>& files,
                    const PullEvents& events) {
  const uint64_t num_bytes_total = num_bytes_of(files);
  uint64_t num_bytes_before = 0;
  for (const RepoFile& file : files) {
    events.on_line(str("  ", file.path, ", ", format_bytes(static_cast<double>(*file.num_bytes))));
    const auto on_bytes = [&](uint64_t num_bytes) {
      events.on_bytes(num_bytes_before + num_bytes, num_bytes_total, file.path);
    };
    const auto on_wait = [&] {
      events.on_line(str("waiting for another process that downloads ", file.path));
    };
    download_blob(client, cached, repo, commit, file, {.on_bytes = on_bytes, .on_wait = on_wait});
    num_bytes_before += *file.num_bytes;
  }
  for (const RepoFile& file : files) cached.place(commit, file.path, file.checksum);
}

}  // namespace

fs::path pull_model(const ModelName& model, const PullOptions& options, const PullEvents& events) {
  check_revision(options.revision);
  if (is_offline()) {
    throw InputError(str(model.repo,
                         ": expected leave to use the network, got HF_HUB_OFFLINE in "
                         "the environment. Unset it, or give the folder of a model."));
  }
  std::string endpoint = options.endpoint;
  if (endpoint.empty()) endpoint = env_string("HF_ENDPOINT").value_or(kDefaultEndpoint);
  HubClient client(endpoint, env_string("HF_TOKEN").value_or(""));
  const RepoListing listing = client.list(model.repo, options.revision);
  if (is_commit(options.revision) && options.revision != listing.commit) {
    throw CheckpointError(str(client.endpoint(), ": ", model.repo, ": expected the commit ",
                              options.revision, ", got ", listing.commit,
                              ". Use another endpoint."));
  }
  std::vector<RepoFile> files =
      choose_files(listing, model.repo, model.file, options.include, options.limits);
  for (RepoFile& file : files) client.complete(model.repo, listing.commit, file);
  check_limits(files, model.repo, options.limits);
  const fs::path cache = cache_folder();
  const CachedRepo cached(cache, model.repo);
  check_space(cache, cached, files);
  events.on_line(str("pulling ", model.repo, " at ", listing.commit.substr(0, 12), " from ",
                     client.endpoint(), ": ", counted(files.size()), ", ",
                     format_bytes(static_cast<double>(num_bytes_of(files)))));
  download_files(client, cached, model.repo, listing.commit, files, events);
  cached.set_commit(options.revision, listing.commit);
  return cached.snapshot(listing.commit);
}

fs::path find_model(const std::string& model, const LookupOptions& options,
                    const PullEvents& events) {
  std::error_code error;
  const std::optional<ModelName> name = parse_model_name(model);
  if (!name || fs::exists(model, error) || fs::exists(model.substr(0, model.find('/')), error)) {
    return model;
  }
  check_revision(options.revision);
  const fs::path cache = cache_folder();
  const CachedRepo cached(cache, name->repo);
  const auto look = [&]() -> SnapshotModel {
    const auto commit = cached.commit_of(options.revision);
    if (!commit) return {.path = {}, .why_not = str("no revision ", options.revision, " of it")};
    return find_in_snapshot(cached.snapshot(*commit), name->repo, name->file);
  };
  SnapshotModel found = look();
  if (!found.why_not.empty() && options.downloads) {
    pull_model(*name, {.revision = options.revision, .include = {}}, events);
    found = look();
  }
  if (found.why_not.empty()) return found.path;
  throw InputError(
      str(halley::quote(model, 200),
          ": expected a model's folder, a GGUF file, or a model in the cache ", cache.string(),
          ", got ", found.why_not, ". Check the path, or download the model: 'halley pull ", model,
          options.revision == "main" ? "" : str(" --revision ", options.revision), "'."));
}

}  // namespace halley::hub
