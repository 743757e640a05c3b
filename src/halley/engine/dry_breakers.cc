#include "halley/engine/dry_breakers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "halley/base/error.h"
#include "halley/constraint/token_trie.h"

namespace halley {
namespace {

constexpr size_t kNumEntriesMax = 16;
// Longer rests of a text are cut, as in llama.cpp.
constexpr size_t kNumTailTokensMax = 20;

}  // namespace

const std::vector<std::string>& DryBreakerCache::vocabulary() {
  if (!vocabulary_.empty()) return vocabulary_;
  vocabulary_ = token_bytes_of(*tokenizer_);
  for (int32_t id = 0; id < tokenizer_->num_ids(); ++id) {
    if (tokenizer_->is_special(id)) vocabulary_[static_cast<size_t>(id)] = tokenizer_->token_of(id);
  }
  return vocabulary_;
}

void DryBreakerCache::add(const std::string& text, DryBreakers& breakers) {
  const std::vector<std::string>& words = vocabulary();
  // Encoded once for each length of the rest; empty: not yet, as no rest has no tokens.
  std::vector<std::vector<int32_t>> tails(text.size());
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto id = static_cast<int32_t>(i);
    if (word.find(text) != std::string::npos) {
      breakers.add(id, {});
      continue;
    }
    const size_t num_bytes_max = std::min(word.size(), text.size() - 1);
    for (size_t num_bytes = 1; num_bytes <= num_bytes_max; ++num_bytes) {
      if (word.compare(word.size() - num_bytes, num_bytes, text, 0, num_bytes) != 0) continue;
      // A rest that begins inside a character is no text.
      if ((static_cast<unsigned char>(text[num_bytes]) & 0xC0) == 0x80) continue;
      std::vector<int32_t>& tail = tails[num_bytes];
      if (tail.empty()) {
        tail = tokenizer_->encode(text.substr(num_bytes), /*add_special_tokens=*/false);
        tail.resize(std::min(tail.size(), kNumTailTokensMax));
      }
      if (!tail.empty()) breakers.add(id, tail);
    }
  }
}

std::shared_ptr<const DryBreakers> DryBreakerCache::get(const std::vector<std::string>& texts) {
  if (texts.empty()) return nullptr;
  if (tokenizer_ == nullptr) {
    throw InputError(
        "dry_sequence_breakers: expected no texts, since the engine has no tokenizer. Give an "
        "empty list.");
  }
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.first == texts; });
  if (known != entries_.end()) {
    std::rotate(entries_.begin(), known, known + 1);
    return entries_.front().second;
  }
  auto breakers = std::make_shared<DryBreakers>();
  for (const std::string& text : texts) add(text, *breakers);
  entries_.emplace_front(texts, breakers);
  if (entries_.size() > kNumEntriesMax) entries_.pop_back();
  return breakers;
}

}  // namespace halley
