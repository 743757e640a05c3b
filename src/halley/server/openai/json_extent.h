// Where a JSON object or array ends, while its text still arrives.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace halley {

/// Counts brackets outside strings. Says nothing of whether the text is valid JSON.
class JsonExtent {
 public:
  /// The first piece begins with '{' or '['. The number of bytes of this piece up to the closing
  /// bracket; nothing where it has not come yet. Not to be called behind the end.
  std::optional<size_t> feed(std::string_view piece);

  void restart() { *this = {}; }

 private:
  size_t depth_ = 0;
  bool is_in_string_ = false;
  bool is_escaped_ = false;
};

}  // namespace halley
