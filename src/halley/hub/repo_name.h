// Names that users and hubs give: models, revisions and the files of a model. All are untrusted,
// since they become parts of URLs and paths.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace halley::hub {

/// "ORG/NAME", or "ORG/NAME/FILE.gguf" for one GGUF file of it.
struct ModelName {
  std::string repo;  // "ORG/NAME"
  std::string file;  // empty: the model as a whole
};

/// Nothing for text that is no such name.
std::optional<ModelName> parse_model_name(std::string_view text);

/// A branch, a tag, a commit or "refs/pr/1": letters, digits, ".", "_", "-" and single slashes.
bool is_revision(std::string_view text);
/// 40 lower-case hexadecimal digits.
bool is_commit(std::string_view text);

/// Whether this is the path of a file that lies in the folder it is relative to: parts between
/// single slashes, none of them "." or "..", without backslashes and control characters.
bool is_path_inside(std::string_view path);

/// For a part of a URL's path; slashes are encoded too unless `keeps_slashes`.
std::string percent_encode(std::string_view text, bool keeps_slashes);

}  // namespace halley::hub
