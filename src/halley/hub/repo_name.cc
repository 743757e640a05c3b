#include "halley/hub/repo_name.h"

#include <algorithm>
#include <cstddef>

namespace halley::hub {
namespace {

constexpr size_t kNameBytesMax = 96;       // of ORG and of NAME, as on Hugging Face
constexpr size_t kRevisionBytesMax = 250;  // what git's hosts allow for a branch
constexpr size_t kPartBytesMax = 255, kPathBytesMax = 1024;  // what file systems allow

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

/// ORG or NAME. "--" separates the two in the cache.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && is_plain(text) &&
         (is_alphanumeric(text.front()) || text.front() == '_') && text.back() != '.' &&
         text.back() != '-' && text.find("--") == std::string_view::npos &&
         text.find("..") == std::string_view::npos;
}

bool is_part(std::string_view text) {
  return !text.empty() && text.size() <= kPartBytesMax && text != "." && text != ".." &&
         std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < ' ' || c == '\x7f' || c == '\\';
         });
}

template <typename IsPart>
bool has_parts(std::string_view path, const IsPart& accepts) {
  while (true) {
    const size_t slash = std::min(path.find('/'), path.size());
    if (!accepts(path.substr(0, slash))) return false;
    if (slash == path.size()) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

std::optional<ModelName> parse_model_name(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const size_t end = std::min(text.find('/', slash + 1), text.size());
  if (!is_name(text.substr(0, slash)) || !is_name(text.substr(slash + 1, end - slash - 1))) {
    return std::nullopt;
  }
  ModelName name = {.repo = std::string(text.substr(0, end)), .file = {}};
  if (end == text.size()) return name;
  name.file = text.substr(end + 1);
  if (!name.file.ends_with(".gguf") || !is_path_inside(name.file)) return std::nullopt;
  return name;
}

bool is_revision(std::string_view text) {
  return text.size() <= kRevisionBytesMax && has_parts(text, [](std::string_view part) {
           return is_plain(part) && is_part(part) && part.front() != '-';
         });
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_path_inside(std::string_view path) {
  return path.size() <= kPathBytesMax && has_parts(path, is_part);
}

std::string percent_encode(std::string_view text, bool keeps_slashes) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_alphanumeric(c) || c == '.' || c == '_' || c == '-' || c == '~' ||
        (c == '/' && keeps_slashes)) {
      encoded.push_back(c);
    } else {
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return encoded;
}

}  // namespace halley::hub
