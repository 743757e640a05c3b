// The vocabulary: token texts and ids, both ways, in few allocations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// Ids are below this; real vocabularies stay below 300,000.
constexpr int32_t kNumIdsMax = 1 << 24;

class TokenTable {
 public:
  /// Room for this many tokens.
  void reserve(size_t num_tokens, size_t num_text_bytes);

  /// Adds a token. False where the text or the id is taken. 0 <= id < kNumIdsMax.
  bool add(std::string_view text, int32_t id);

  /// -1 where there is none.
  int32_t find(std::string_view text) const { return slots_.empty() ? -1 : slots_[slot_of(text)]; }
  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < texts_.size() &&
           texts_[static_cast<size_t>(id)].is_set;
  }
  /// Empty for a hole.
  std::string_view text_of(int32_t id) const;

  /// One more than the largest id.
  int32_t num_ids() const { return static_cast<int32_t>(texts_.size()); }
  int32_t num_tokens() const { return num_tokens_; }

 private:
  struct Text {
    size_t begin = 0;
    uint32_t num_bytes = 0;
    bool is_set = false;
  };

  size_t slot_of(std::string_view text) const;
  void rehash(size_t num_slots);

  std::string blob_;            // all texts behind each other
  std::vector<Text> texts_;     // by id
  std::vector<int32_t> slots_;  // open addressing, a power of two; -1 is free
  int32_t num_tokens_ = 0;
};

}  // namespace halley
