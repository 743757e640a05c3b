// The answer of a hub's API about a model: its commit and its files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halley::hub {

inline constexpr uint64_t kFileBytesMax = uint64_t{1} << 50;  // sums of sizes do not overflow

struct RepoFile {
  std::string path;      // inside of the model's folder: is_path_inside()
  std::string checksum;  // is_checksum(); empty: the API does not say
  std::optional<uint64_t> num_bytes = std::nullopt;  // at most kFileBytesMax
};

struct RepoListing {
  std::string commit;           // is_commit()
  std::vector<RepoFile> files;  // sorted by path
};

/// Reads the JSON of /api/models/ORG/NAME/revision/REVISION, which is untrusted. Throws
/// CheckpointError where it is none, names a file outside of the model's folder or one twice.
RepoListing parse_repo_listing(std::string_view text, const std::string& where);

}  // namespace halley::hub
