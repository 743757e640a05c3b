#include "halley/hub/repo_listing.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/hub/digest.h"
#include "halley/hub/repo_name.h"
#include "halley/json/json.h"

namespace halley::hub {
namespace {

// A model has tens of files, data sets that pass for one have more.
constexpr size_t kFilesMax = 100'000;
constexpr JsonLimits kLimits = {.depth_max = 32, .num_values_max = 4'000'000};

[[noreturn]] void reject(const std::string& where, const std::string& expected,
                         const std::string& got) {
  throw CheckpointError(
      str(where, ": expected ", expected, ", got ", got, ". Is this a hub of models?"));
}

std::string shown(const Json* value) {
  if (value == nullptr) return "nothing";
  return value->is_string() ? halley::quote(value->get_ref<const std::string&>())
                            : std::string(type_name_of(*value));
}

/// Null for a member that is absent or null.
const Json* member(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

const std::string* string_of(const Json* value) {
  return value != nullptr && value->is_string() ? &value->get_ref<const std::string&>() : nullptr;
}

/// The file's checksum: of the content where it is large (LFS), else the name of git's blob.
void read_checksum(const Json& json, RepoFile& file, const std::string& where) {
  const Json* lfs = member(json, "lfs");
  if (lfs != nullptr && !lfs->is_object()) reject(where, "an object in 'lfs'", shown(lfs));
  const Json* checksum = lfs == nullptr ? member(json, "blobId") : member(*lfs, "sha256");
  const Json* size = lfs == nullptr ? nullptr : member(*lfs, "size");
  if (size == nullptr) size = member(json, "size");
  if (checksum != nullptr) {
    const std::string* text = string_of(checksum);
    const size_t num_digits = lfs == nullptr ? 40 : 64;
    if (text == nullptr || !is_checksum(*text) || text->size() != num_digits) {
      reject(where, str("a checksum of ", num_digits, " digits for ", halley::quote(file.path)),
             shown(checksum));
    }
    file.checksum = *text;
  }
  if (size == nullptr) return;
  if (!size->is_number_unsigned() || size->get<uint64_t>() > kFileBytesMax) {
    reject(where, str("the size of ", halley::quote(file.path), ", at most ", kFileBytesMax),
           size->dump());
  }
  file.num_bytes = size->get<uint64_t>();
}

RepoFile read_file(const Json& json, const std::string& where) {
  const Json* path = json.is_object() ? member(json, "rfilename") : nullptr;
  const std::string* text = string_of(path);
  if (text == nullptr || !is_path_inside(*text)) {
    reject(where, "the path of a file in the model's folder", shown(path));
  }
  RepoFile file = {.path = *text, .checksum = {}};
  read_checksum(json, file, where);
  return file;
}

}  // namespace

RepoListing parse_repo_listing(std::string_view text, const std::string& where) {
  Json json;
  try {
    json = parse_json(text, where, kLimits);
  } catch (const InputError& error) {  // here it is the hub that is wrong
    throw CheckpointError(str(error.what(), " Is this a hub of models?"));
  }
  if (!json.is_object()) reject(where, "a JSON object", type_name_of(json));
  const Json* commit = member(json, "sha");
  const std::string* commit_text = string_of(commit);
  if (commit_text == nullptr || !is_commit(*commit_text)) {
    reject(where, "a commit of 40 digits in 'sha'", shown(commit));
  }
  const Json* siblings = member(json, "siblings");
  if (siblings == nullptr || !siblings->is_array()) {
    reject(where, "an array of files in 'siblings'", shown(siblings));
  }
  if (siblings->size() > kFilesMax) {
    reject(where, str("at most ", kFilesMax, " files"), str(siblings->size()));
  }
  RepoListing listing = {.commit = *commit_text, .files = {}};
  for (const Json& sibling : *siblings) listing.files.push_back(read_file(sibling, where));
  std::sort(listing.files.begin(), listing.files.end(),
            [](const RepoFile& a, const RepoFile& b) { return a.path < b.path; });
  const auto twice =
      std::adjacent_find(listing.files.begin(), listing.files.end(),
                         [](const RepoFile& a, const RepoFile& b) { return a.path == b.path; });
  if (twice != listing.files.end()) {
    reject(where, "each file once", str(halley::quote(twice->path), " twice"));
  }
  return listing;
}

}  // namespace halley::hub
