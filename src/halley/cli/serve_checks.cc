#include "halley/cli/serve_checks.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <sstream>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley::cli {
namespace {

constexpr const char* kKeyVariable = "HALLEY_API_KEY";
constexpr size_t kKeyFileBytesMax = 1 << 20;
constexpr size_t kModelNameBytesMax = 256;  // as of the requests' field `model`

bool is_model_name(const std::string& name) {
  return !name.empty() && name.size() <= kModelNameBytesMax && is_valid_utf8(name) &&
         std::none_of(name.begin(), name.end(),
                      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

}  // namespace

std::vector<std::string> read_api_keys(const std::vector<std::string>& from_options,
                                       const std::string& file) {
  std::vector<std::string> keys = from_options;
  if (const auto key = env_string(kKeyVariable)) {
    keys.push_back(*key);
  } else if (is_env_set(kKeyVariable)) {
    throw InputError(str(kKeyVariable,
                         ": expected a key, got an empty text, which would leave the server open. "
                         "Give a key, or unset the variable."));
  }
  if (file.empty()) return keys;
  std::istringstream lines(read_text_file(file, kKeyFileBytesMax));
  const size_t num_before = keys.size();
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  if (keys.size() == num_before) {
    throw InputError(str("--api-key-file: expected a key on each line of ", file, ", got none."));
  }
  return keys;
}

std::vector<std::string> check_model_names(std::vector<std::string> names,
                                           const std::string& model_dir) {
  if (names.empty()) {
    names.push_back(std::filesystem::canonical(model_dir).filename().string());
  }
  std::set<std::string> known;
  for (const std::string& name : names) {
    if (!is_model_name(name)) {
      throw InputError(str("--served-model-name ", quote(name), ": expected 1 to ",
                           kModelNameBytesMax,
                           " bytes of UTF-8 without control characters. Give another name."));
    }
    if (!known.insert(name).second) {
      throw InputError(
          str("--served-model-name ", quote(name), ": expected each name once, got it twice."));
    }
  }
  return names;
}

}  // namespace halley::cli
