#include "halley/checkpoint/tokenizer/token_table.h"

#include <bit>
#include <functional>

namespace halley {

void TokenTable::reserve(size_t num_tokens, size_t num_text_bytes) {
  blob_.reserve(num_text_bytes);
  texts_.reserve(num_tokens);
  rehash(std::bit_ceil(num_tokens * 2 + 2));
}

bool TokenTable::add(std::string_view text, int32_t id) {
  if (static_cast<size_t>(num_tokens_ + 1) * 2 > slots_.size()) {
    rehash(std::bit_ceil(static_cast<size_t>(num_tokens_) * 4 + 16));
  }
  const size_t slot = slot_of(text);
  if (slots_[slot] >= 0 || has(id)) return false;
  if (static_cast<size_t>(id) >= texts_.size()) texts_.resize(static_cast<size_t>(id) + 1);
  texts_[static_cast<size_t>(id)] = {blob_.size(), static_cast<uint32_t>(text.size()), true};
  blob_ += text;
  slots_[slot] = id;
  ++num_tokens_;
  return true;
}

std::string_view TokenTable::text_of(int32_t id) const {
  if (!has(id)) return {};
  const Text& text = texts_[static_cast<size_t>(id)];
  return std::string_view(blob_).substr(text.begin, text.num_bytes);
}

// The slot that holds `text`, or the free one where it would go.
size_t TokenTable::slot_of(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>()(text) & mask;
  while (slots_[slot] >= 0 && text_of(slots_[slot]) != text) slot = (slot + 1) & mask;
  return slot;
}

void TokenTable::rehash(size_t num_slots) {
  if (num_slots <= slots_.size()) return;
  slots_.assign(num_slots, -1);
  for (int32_t id = 0; id < num_ids(); ++id) {
    if (has(id)) slots_[slot_of(text_of(id))] = id;
  }
}

}  // namespace halley
