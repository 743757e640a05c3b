// All tokens of a vocabulary as the bytes that they write, in the order in which a grammar can test
// them: as tries.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/constraint/token_constraint.h"

namespace halley {

/// Nodes in depth-first order: a node's subtree is the nodes up to its `end`.
struct TokenTrieNodes {
  struct Node {
    int32_t end = 0;
    int32_t first_token = 0;  // into `tokens`; the next node's is behind the last
    uint16_t depth = 0;       // 1 for a first byte
    uint8_t byte = 0;
  };
  std::vector<Node> nodes;      // one more than there are, for its first_token
  std::vector<int32_t> tokens;  // ids
};

/// Immutable; any thread. Some 30 bytes for each byte of the vocabulary.
class TokenTrie {
 public:
  /// Longer tokens are never allowed in constrained output.
  static constexpr size_t kTokenBytesMax = 1024;
  /// Characters of the longest token among the plain ones.
  static constexpr size_t kPlainCharsMax = 32;

  /// `token_bytes[id]` is what token `id` writes; empty for one that writes nothing, which is never
  /// allowed. `eos_token_ids` end a text, and are allowed there alone.
  TokenTrie(std::vector<std::string> token_bytes, std::span<const int32_t> eos_token_ids);

  /// Special tokens write nothing, but for those of `special_marks`, by their names in the
  /// vocabulary: they write bytes_of_special(), which a grammar can ask for. Throws
  /// UnsupportedError where the tokenizer's decoder does not write tokens one by one. Takes about a
  /// second for 150,000 tokens.
  static std::shared_ptr<const TokenTrie> from_tokenizer(
      const Tokenizer& tokenizer, std::span<const int32_t> eos_token_ids,
      std::span<const std::string> special_marks = {});

  int32_t num_ids() const { return static_cast<int32_t>(token_bytes_.size()); }
  size_t num_mask_words() const { return (token_bytes_.size() + 63) / 64; }
  std::string_view bytes_of(int32_t id) const { return token_bytes_[static_cast<size_t>(id)]; }
  std::span<const int32_t> eos_token_ids() const { return eos_token_ids_; }
  bool is_eos(int32_t id) const;

  /// Tokens of 1 to kPlainCharsMax characters that stand for themselves in a JSON string: most of a
  /// vocabulary. Inside a string they are allowed or not by their number of characters alone.
  const TokenTrieNodes& plain() const { return plain_; }
  const TokenTrieNodes& other() const { return other_; }
  /// Plain tokens of at most `num_chars` characters.
  const TokenMask& plain_mask(size_t num_chars) const;

 private:
  std::vector<std::string> token_bytes_;
  std::vector<int32_t> eos_token_ids_;
  TokenTrieNodes plain_;
  TokenTrieNodes other_;
  std::vector<TokenMask> plain_masks_;  // by number of characters
};

/// What a special token writes for a grammar: its name behind a byte that no JSON text has, so that
/// it cannot stand where its name as a text may, as in strings.
std::string bytes_of_special(std::string_view name);

/// The bytes that each token adds to a text behind other text; empty for special tokens and holes.
/// Decoding alone does not say it: bytes that are no whole character decode to U+FFFD.
std::vector<std::string> token_bytes_of(const Tokenizer& tokenizer);

}  // namespace halley
