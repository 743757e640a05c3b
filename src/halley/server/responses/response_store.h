// The responses that are kept for later requests.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace halley {

/// A response, and the conversation that it ends, both as texts of JSON.
struct StoredResponse {
  std::string json;
  std::string messages;  // a list as ApiRequest::messages, without instructions
};

struct ResponseStoreLimits {
  // Nothing is kept where one of them is 0.
  size_t num_responses_max = 0;
  size_t bytes_max = 0;  // of their texts
};

/// Those that were used last stay; others give way. A client finds its own alone. Thread-safe.
class ResponseStore {
 public:
  explicit ResponseStore(const ResponseStoreLimits& limits) : limits_(limits) {}

  bool is_enabled() const { return limits_.num_responses_max > 0 && limits_.bytes_max > 0; }

  void put(const std::string& client, const std::string& id, StoredResponse response);
  std::optional<StoredResponse> find(const std::string& client, const std::string& id);
  /// Whether it was there.
  bool erase(const std::string& client, const std::string& id);

 private:
  struct Entry {
    std::string client, id;
    StoredResponse response;
  };
  using Entries = std::list<Entry>;

  Entries::iterator locate(const std::string& client, const std::string& id);
  void remove(Entries::iterator entry);

  const ResponseStoreLimits limits_;
  std::mutex mutex_;
  Entries entries_;  // used last first
  std::unordered_map<std::string, Entries::iterator> by_id_;
  size_t num_bytes_ = 0;
};

}  // namespace halley
