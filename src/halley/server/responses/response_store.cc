#include "halley/server/responses/response_store.h"

#include <utility>

namespace halley {
namespace {

constexpr size_t kEntryBytes = 256;  // of the list, the map and the names

size_t num_bytes_of(const StoredResponse& response) {
  return response.json.size() + response.messages.size() + kEntryBytes;
}

}  // namespace

void ResponseStore::put(const std::string& client, const std::string& id, StoredResponse response) {
  const size_t num_bytes = num_bytes_of(response);
  if (num_bytes > limits_.bytes_max) return;
  const std::lock_guard lock(mutex_);
  entries_.push_front({client, id, std::move(response)});
  by_id_[id] = entries_.begin();
  num_bytes_ += num_bytes;
  while (num_bytes_ > limits_.bytes_max || entries_.size() > limits_.num_responses_max) {
    remove(std::prev(entries_.end()));
  }
}

std::optional<StoredResponse> ResponseStore::find(const std::string& client,
                                                  const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto entry = locate(client, id);
  if (entry == entries_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->response;
}

bool ResponseStore::erase(const std::string& client, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto entry = locate(client, id);
  if (entry == entries_.end()) return false;
  remove(entry);
  return true;
}

ResponseStore::Entries::iterator ResponseStore::locate(const std::string& client,
                                                       const std::string& id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->client != client) return entries_.end();
  return found->second;
}

void ResponseStore::remove(Entries::iterator entry) {
  num_bytes_ -= num_bytes_of(entry->response);
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace halley
