// Which files of a model are downloaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/hub/repo_listing.h"

namespace halley::hub {

struct ChoiceLimits {
  size_t num_files_max = 2'000;
  uint64_t num_bytes_max = 2'000'000'000'000;  // of those whose size is known
};

/// Throws InputError where `files` pass a limit. `where` is the model's name.
void check_limits(const std::vector<RepoFile>& files, const std::string& where,
                  const ChoiceLimits& limits);

/// Either the one GGUF file `gguf` with the parts that it is split into, where it is not empty; or
/// the files that one of `patterns` matches (* matches slashes too), where there are any; or what
/// running the model needs: the safetensors files and the small files of the top folder, or the
/// only GGUF file. In the order in which they are to be placed: what names other files is last, so
/// that no part of a model passes for a whole. Never files of a kind that is not on the list of
/// what this program reads: no pickles, no code.
///
/// Throws InputError where nothing matches or several GGUF files do, and as check_limits().
std::vector<RepoFile> choose_files(const RepoListing& listing, const std::string& where,
                                   const std::string& gguf,
                                   const std::vector<std::string>& patterns,
                                   const ChoiceLimits& limits = {});

}  // namespace halley::hub
