// Finds stop strings in text that arrives in pieces, and holds back text that may be the beginning
// of one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// The first stop string to be complete wins, byte by byte; of several that end at the same byte,
/// the longest. The result does not depend on the pieces.
/// Time is linear in the text, however many stop strings there are (Aho, Corasick); memory is
/// 12 bytes for each of their bytes.
class StopMatcher {
 public:
  struct Piece {
    std::string text;                  // final: no stop string can begin in it any more
    std::optional<size_t> stop_index;  // the stop string that ended the text, if one did
  };

  /// None of `stops` is empty; together they have less than 64 KiB. `includes_stop`: the text goes
  /// up to the stop string's end.
  StopMatcher(std::vector<std::string> stops, bool includes_stop);

  /// Adds text. A stop string that is complete within it counts only where `may_stop`. Text after
  /// a stop string is dropped. Must not be called again once one was found.
  Piece push(std::string_view text, bool may_stop);
  /// The text held back; to be called at the end of the text.
  std::string finish();

  const std::string& stop(size_t index) const { return stops_[index]; }

 private:
  using NodeIndex = uint16_t;

  /// A beginning of one or more stop strings: a node of their trie. Its children are a list.
  struct Node {
    NodeIndex first_child = 0, next_sibling = 0;  // 0: none, as the root is nobody's child
    NodeIndex fallback = 0;                       // the longest proper suffix that is a node
    uint16_t depth = 0;                           // bytes
    uint16_t stop = kNoStop;                      // the longest stop string that is a suffix
    char byte = 0;                                // the last one
  };
  static constexpr uint16_t kNoStop = UINT16_MAX;

  NodeIndex child(NodeIndex node, char byte) const;
  NodeIndex next(NodeIndex node, char byte) const;
  void add(size_t stop_index);
  void link();

  std::vector<std::string> stops_;
  std::vector<Node> nodes_;                // [0]: the root, the empty text
  std::array<NodeIndex, 256> children_{};  // the root's, by byte
  NodeIndex node_ = 0;                     // the longest node that is a suffix of the text so far
  bool includes_stop_;
  std::string held_;
};

}  // namespace halley
