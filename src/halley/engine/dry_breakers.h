// The texts of dry_sequence_breakers as tokens of the model's vocabulary.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/sampling/base/dry_penalty.h"

namespace halley {

/// Thread-safe. Keeps the vocabulary's texts once they were needed, and the breakers that requests
/// asked for last.
class DryBreakerCache {
 public:
  /// `tokenizer` must outlive this; it may be null, then there are no texts.
  explicit DryBreakerCache(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  /// The breakers for these texts; null where there are none. A token begins a breaker where it has
  /// the text, or ends with its beginning; the rest is as the tokenizer encodes it. The first call
  /// reads the whole vocabulary, which may take a second.
  /// Throws InputError where there are texts and no tokenizer, UnsupportedError where the texts of
  /// its tokens cannot be told.
  std::shared_ptr<const DryBreakers> get(const std::vector<std::string>& texts);

 private:
  const std::vector<std::string>& vocabulary();
  void add(const std::string& text, DryBreakers& breakers);

  using Entry = std::pair<std::vector<std::string>, std::shared_ptr<const DryBreakers>>;
  const Tokenizer* tokenizer_;
  std::mutex mutex_;
  std::vector<std::string> vocabulary_;  // the bytes of each token; empty: not read yet
  std::deque<Entry> entries_;            // used last: the first
};

}  // namespace halley
