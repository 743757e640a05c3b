// The Hugging Face cache: a folder on this machine that huggingface_hub, and programs that use it,
// share with this one.
//
//   models--ORG--NAME/refs/REVISION          the commit that a branch or tag was at
//   models--ORG--NAME/blobs/CHECKSUM         a file's content
//   models--ORG--NAME/snapshots/COMMIT/PATH  a link to it
//   .locks/models--ORG--NAME/CHECKSUM.lock   held, by flock(), while a blob is written
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace halley::hub {

/// HF_HUB_CACHE, or the folder "hub" of HF_HOME, or of huggingface in XDG_CACHE_HOME or ~/.cache.
/// Throws InputError where none of the variables, nor HOME, is set.
std::filesystem::path cache_folder();

/// One model in the cache.
class CachedRepo {
 public:
  /// `repo` is "ORG/NAME" as parse_model_name() accepts it.
  CachedRepo(const std::filesystem::path& cache, const std::string& repo);

  /// The commit that the revision, one that is_revision() accepts, is known to be at: itself where
  /// it is one.
  std::optional<std::string> commit_of(const std::string& revision) const;
  std::filesystem::path snapshot(const std::string& commit) const;
  std::filesystem::path blob(const std::string& checksum) const;
  std::filesystem::path lock(const std::string& checksum) const;

  /// Makes `path`, one that is_path_inside() accepts, of the snapshot a link to the blob. At no
  /// moment is a link there that was replaced halfway. Throws DeviceError.
  void place(const std::string& commit, const std::string& path, const std::string& checksum) const;
  /// Notes that the revision is at the commit, unless it is one itself. Throws DeviceError.
  void set_commit(const std::string& revision, const std::string& commit) const;

 private:
  std::filesystem::path folder_, locks_;
};

/// The model in a snapshot's folder.
struct SnapshotModel {
  std::filesystem::path path;  // what a model is loaded from: the folder, or a GGUF file of it
  std::string why_not;         // empty where all weights are there, else what is missing
};

/// `gguf` is the file that the user named; empty: safetensors files, else the only GGUF file. Reads
/// the index of shards to see that each is there. Throws InputError where there are several GGUF
/// files to choose from.
SnapshotModel find_in_snapshot(const std::filesystem::path& snapshot, const std::string& repo,
                               const std::string& gguf);

}  // namespace halley::hub
