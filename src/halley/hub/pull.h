// Models by name: from the Hugging Face cache, or from a hub into it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "halley/hub/file_choice.h"
#include "halley/hub/repo_name.h"

namespace halley::hub {

struct PullOptions {
  std::string revision = "main";     // a branch, a tag or a commit
  std::string endpoint = {};         // empty: HF_ENDPOINT, else kDefaultEndpoint
  std::vector<std::string> include;  // patterns of files; none: what running the model needs
  ChoiceLimits limits = {};
};

struct PullEvents {
  std::function<void(const std::string& line)> on_line;  // what is done, for people
  /// Bytes of all files that are there by now.
  std::function<void(uint64_t num_bytes, uint64_t num_bytes_total, const std::string& file)>
      on_bytes;
};

/// Downloads what of the model is not in the cache yet and returns its snapshot's folder. Asks the
/// hub for the revision's commit first. The token is that of HF_TOKEN. Links to files, and then the
/// revision, are placed when all files are there. Throws as HubClient and download_blob() do, and
/// InputError where HF_HUB_OFFLINE is set.
std::filesystem::path pull_model(const ModelName& model, const PullOptions& options,
                                 const PullEvents& events);

/// How a model that is named ORG/NAME is found.
struct LookupOptions {
  std::string revision = "main";
  bool downloads = false;  // where the cache does not have the model whole
};

/// The folder or GGUF file of `model`: itself where something is there, where it is no ORG/NAME,
/// and where there is a folder ORG here, of which it then is a path. Otherwise the cached model of
/// that name, for which no network is asked; if it is not there whole, pull_model() gets it where
/// `options` allow that. Throws InputError where they do not, and as pull_model().
std::filesystem::path find_model(const std::string& model, const LookupOptions& options,
                                 const PullEvents& events);

}  // namespace halley::hub
