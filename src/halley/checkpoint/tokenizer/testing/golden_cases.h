// Reads the golden files of testdata/tokenizers, for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "halley/base/env.h"
#include "halley/base/file.h"
#include "halley/json/json.h"

namespace halley {

struct GoldenCase {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<int32_t> ids_with_special;
  std::optional<std::string> decoded;               // of ids
  std::optional<std::string> decoded_skip_special;  // of ids_with_special
};

/// From the list in a golden.json. Where a file has no ids_with_special, it is empty.
inline std::vector<GoldenCase> golden_cases(const Json& list) {
  std::vector<GoldenCase> cases;
  for (const Json& value : list) {
    GoldenCase golden;
    golden.text = value.at("text").get<std::string>();
    golden.ids = value.at("ids").get<std::vector<int32_t>>();
    if (value.contains("ids_with_special")) {
      golden.ids_with_special = value.at("ids_with_special").get<std::vector<int32_t>>();
    }
    if (value.contains("decoded")) golden.decoded = value.at("decoded").get<std::string>();
    if (value.contains("decoded_skip_special")) {
      golden.decoded_skip_special = value.at("decoded_skip_special").get<std::string>();
    }
    cases.push_back(std::move(golden));
  }
  return cases;
}

inline std::vector<GoldenCase> read_golden_cases(const std::filesystem::path& path) {
  return golden_cases(parse_json(read_text_file(path, 64u << 20), path.string()));
}

/// The directory of goldens that may not be copied into the repository; nothing where it is absent.
inline std::optional<std::filesystem::path> extra_goldens_dir() {
  std::filesystem::path dir = std::filesystem::path(HALLEY_SOURCE_DIR) / "../shared/goldens";
  if (const auto from_env = env_string("HALLEY_EXTRA_GOLDENS")) dir = *from_env;
  if (!std::filesystem::is_directory(dir)) return std::nullopt;
  return dir;
}

}  // namespace halley
