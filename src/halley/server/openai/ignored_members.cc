#include "halley/server/openai/ignored_members.h"

#include <algorithm>

namespace halley {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == '$';
}

void append_name(std::string_view name, std::string& out) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (const char c : name) {
    if (is_plain(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte / 16];
    out += kDigits[byte % 16];
  }
}

}  // namespace

void IgnoredMembers::add(std::string_view path, std::string_view name) {
  const bool is_long = name.size() > kNameBytesMax;
  const std::string_view beginning = name.substr(0, kNameBytesMax);
  const bool is_there = std::any_of(members_.begin(), members_.end(), [&](const auto& member) {
    return member.first == path && member.second == beginning;
  });
  if (is_there) return;
  if (members_.size() == kPathsMax) {
    has_more_ = true;
    return;
  }
  members_.emplace_back(path, beginning);
  has_more_ = has_more_ || is_long;
}

std::string IgnoredMembers::text() const {
  std::string out;
  for (const auto& [path, name] : members_) {
    if (!out.empty()) out += ", ";
    out += path;
    if (!path.empty()) out += '.';
    append_name(name, out);
  }
  if (has_more_) out += ", ...";
  return out;
}

}  // namespace halley
