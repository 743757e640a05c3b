// Tokens that are found in the text itself, before the model sees it ("<|eot_id|>").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// Longer contents are rejected: finding them takes time that grows with this.
constexpr size_t kAddedTokenBytesMax = 1024;

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space before it too
  bool rstrip = false;       // takes the white space behind it too
  bool normalized = true;    // is looked for in the normalized text
  bool special = false;      // left out by skip_special_tokens
};

/// A part of a text: an added token (id) or what lies between them (id -1).
struct AddedTokenPart {
  size_t begin;
  size_t end;
  int32_t id;
};

/// Finds tokens in a text: the leftmost, and of those the longest. Immutable after the last add();
/// any thread.
class AddedTokenFinder {
 public:
  AddedTokenFinder();

  /// Looks for `pattern` (the token's content, normalized or not). Empty patterns and those that
  /// are there already are left out.
  void add(std::string_view pattern, const AddedToken& token);

  /// The whole text in parts, none of them empty unless a token took its white space already.
  std::vector<AddedTokenPart> split(std::string_view text) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;
    int32_t token_index = -1;
  };

  struct Match {
    size_t end;
    int32_t token_index;
  };

  Match longest_match(std::string_view text, size_t begin) const;
  uint32_t child_of(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;  // a trie; nodes_[0] is the root
  std::vector<AddedToken> tokens_;
};

}  // namespace halley
