// Finds stop strings in text that arrives in pieces, and holds back text that may be the beginning
// of one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// The first stop string to be complete wins, byte by byte; of several that end at the same byte,
/// the longest. The result does not depend on the pieces.
/// Time is linear in the text times the number of stop strings (Knuth, Morris, Pratt).
class StopMatcher {
 public:
  struct Piece {
    std::string text;                  // final: no stop string can begin in it any more
    std::optional<size_t> stop_index;  // the stop string that ended the text, if one did
  };

  /// None of `stops` is empty. `includes_stop`: the text goes up to the stop string's end.
  StopMatcher(std::vector<std::string> stops, bool includes_stop);

  /// Adds text. A stop string that is complete within it counts only where `may_stop`. Text after
  /// a stop string is dropped. Must not be called again once one was found.
  Piece push(std::string_view text, bool may_stop);
  /// The text held back; to be called at the end of the text.
  std::string finish();

  const std::string& stop(size_t index) const { return patterns_[index].text; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> borders;  // borders[n]: longest proper border of the first n bytes
    size_t num_matched = 0;       // longest beginning of `text` that ends the text so far
  };

  static size_t advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  bool includes_stop_;
  std::string held_;
};

}  // namespace halley
