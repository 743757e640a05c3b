// Any bytes as a hub's list of a model's files. Only our own errors may come out, and what is
// accepted must be safe to make paths, URLs and names of blobs of.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/hub/digest.h"
#include "halley/hub/file_choice.h"
#include "halley/hub/repo_listing.h"
#include "halley/hub/repo_name.h"

namespace {

using halley::hub::RepoFile;

void check_files(const std::vector<RepoFile>& files) {
  for (const RepoFile& file : files) {
    HALLEY_CHECK(halley::hub::is_path_inside(file.path), file.path);
    HALLEY_CHECK(file.checksum.empty() || halley::hub::is_checksum(file.checksum), file.checksum);
    HALLEY_CHECK(!file.path.ends_with(".bin") && !file.path.ends_with(".py"), file.path);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const halley::hub::RepoListing listing = halley::hub::parse_repo_listing(text, "fuzz");
    HALLEY_CHECK(halley::hub::is_commit(listing.commit), listing.commit);
    check_files(halley::hub::choose_files(listing, "org/name", "", {"*"}));
    check_files(halley::hub::choose_files(listing, "org/name", "", {}));
  } catch (const halley::Error&) {
  }
  // "ORG/NAME" and the path of a file are never more than that.
  if (const auto name = halley::hub::parse_model_name(text)) {
    HALLEY_CHECK(halley::hub::is_path_inside(name->repo), name->repo);
    HALLEY_CHECK(name->file.empty() || halley::hub::is_path_inside(name->file), name->file);
  }
  return 0;
}
