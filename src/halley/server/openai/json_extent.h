// Finds the end of a JSON object or array while its text still arrives.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace halley {

/// Counts brackets outside strings. Does not check that the text is valid JSON.
class JsonExtent {
 public:
  /// Returns the number of bytes of this piece up to the closing bracket; nothing if it has not
  /// arrived yet. The first piece begins with '{' or '['. Must not be called after the end.
  std::optional<size_t> feed(std::string_view piece);

  void restart() { *this = {}; }

 private:
  size_t depth_ = 0;
  bool is_in_string_ = false;
  bool is_escaped_ = false;
};

}  // namespace halley
