// Tries of the bytes of all tokens of a vocabulary, for tests against a grammar.
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
    int32_t first_token = 0;  // index in `tokens`; ends at the next node's
    uint16_t depth = 0;       // 1 for a first byte
    uint8_t byte = 0;
  };
  std::vector<Node> nodes;      // and a sentinel, for its first_token
  std::vector<int32_t> tokens;  // ids
};

/// Immutable; any thread. Takes about 30 bytes per byte of the vocabulary.
class TokenTrie {
 public:
  /// Longer tokens are never allowed in constrained output.
  static constexpr size_t kTokenBytesMax = 1024;
  /// The number of characters of the longest plain token.
  static constexpr size_t kPlainCharsMax = 32;

  /// `token_bytes[id]` are the bytes of token `id`; a token without bytes is never allowed.
  /// `eos_token_ids` end a text and are allowed only at its end.
  TokenTrie(std::vector<std::string> token_bytes, std::span<const int32_t> eos_token_ids);

  /// Special tokens have no bytes, except those of `special_marks`, by their names in the
  /// vocabulary: these have bytes_of_special(), which a grammar can match. Throws UnsupportedError
  /// if the tokenizer's decoder does not write tokens one by one. Takes about a second for 150,000
  /// tokens.
  static std::shared_ptr<const TokenTrie> from_tokenizer(
      const Tokenizer& tokenizer, std::span<const int32_t> eos_token_ids,
      std::span<const std::string> special_marks = {});

  int32_t num_ids() const { return static_cast<int32_t>(token_bytes_.size()); }
  size_t num_mask_words() const { return (token_bytes_.size() + 63) / 64; }
  std::string_view bytes_of(int32_t id) const { return token_bytes_[static_cast<size_t>(id)]; }
  std::span<const int32_t> eos_token_ids() const { return eos_token_ids_; }
  bool is_eos(int32_t id) const;

  /// Tokens of 1 to kPlainCharsMax characters that need no escapes in a JSON string: most of a
  /// vocabulary. Inside a string their number of characters alone decides whether they are allowed.
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

/// The bytes of a special token for a grammar: its name after a byte that no JSON text has. So it
/// cannot match where its name as plain text is allowed, as in strings.
std::string bytes_of_special(std::string_view name);

/// The bytes that each token appends to a text; empty for special tokens and holes. Decoding is not
/// enough: bytes that are no whole character decode to U+FFFD.
std::vector<std::string> token_bytes_of(const Tokenizer& tokenizer);

}  // namespace halley
