// One file of a model, from a hub to a blob of the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "halley/hub/cache.h"
#include "halley/hub/hub_client.h"
#include "halley/hub/repo_listing.h"

namespace halley::hub {

struct BlobEvents {
  std::function<void(uint64_t num_bytes)> on_bytes;  // of the file that are there by now
  std::function<void()> on_wait;                     // another process downloads the file
};

/// Downloads `file`, whose checksum and size are known, unless its blob is there. What an earlier
/// download left in CHECKSUM.incomplete is kept and the rest asked for; a connection that is cut is
/// opened again. The blob gets its name when its bytes have the checksum; otherwise nothing of it
/// stays. Processes that want the same blob wait for each other. Throws as HubClient does, and
/// CheckpointError for a wrong checksum or size.
void download_blob(HubClient& client, const CachedRepo& cached, const std::string& repo,
                   const std::string& commit, const RepoFile& file, const BlobEvents& events);

}  // namespace halley::hub
