// The paths of what a request has and nobody reads, for the client and the operator to see.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halley {

/// A set of paths that is small whatever the request holds.
class IgnoredMembers {
 public:
  static constexpr size_t kPathsMax = 16;      // more are told by "..." alone
  static constexpr size_t kNameBytesMax = 64;  // longer names are cut, which "..." tells too

  /// `path` is that of the object ("messages[].content[]"), empty for the body; it must live as
  /// long as the program. `name` is untrusted.
  void add(std::string_view path, std::string_view name);

  bool is_empty() const { return members_.empty(); }

  /// "messages[].cache_control, tools[].strict, ...", in the order of add(), each path once.
  /// Letters, digits and "_-.[]$" alone stand in paths, other bytes as %0A: the text fits a header.
  std::string text() const;

 private:
  std::vector<std::pair<std::string_view, std::string>> members_;
  bool has_more_ = false;
};

}  // namespace halley
