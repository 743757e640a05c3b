#include "halley/checkpoint/config/model_dir.h"

#include <string>
#include <system_error>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/model_files.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

std::string what_is_at(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return "nothing of that name. Check the path, or download a model by its name (halley pull "
           "ORG/NAME)";
  }
  if (error) return error.message();
  if (status.type() == fs::file_type::directory) return "a directory without config.json";
  const std::string extension = path.extension().string();
  if (extension == ".safetensors") return "a weight file. Give the directory that it is in";
  return "a file. Give the directory that it is in";
}

}  // namespace

fs::path check_model_dir(const fs::path& path) {
  if (!has_model_file(path, "config.json")) {
    throw InputError(str(halley::quote(path.string(), 200),
                         ": expected a GGUF file or a Hugging Face model directory with "
                         "config.json, got ",
                         what_is_at(path), "."));
  }
  return path;
}

}  // namespace halley
