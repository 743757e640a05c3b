// Where a JSON object or array ends, while its text still arrives.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace halley {

/// Counts brackets outside strings. Says nothing of whether the text is valid JSON.
class JsonExtent {
 public:
  /// `text` begins with '{' or '[' and has grown behind what the last call saw. The number of its
  /// bytes up to the closing bracket; nothing where it has not come yet. Later calls give the same.
  std::optional<size_t> find_end(std::string_view text);

  void restart() { *this = {}; }

 private:
  size_t num_seen_ = 0;
  std::optional<size_t> end_;
  size_t depth_ = 0;
  bool is_in_string_ = false;
  bool is_escaped_ = false;
};

}  // namespace halley
