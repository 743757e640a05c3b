// Is this path a model? Asked once, before anything is read from it.
#pragma once

#include <filesystem>

namespace halley {

/// `path` again where it is a GGUF file or a directory with a config.json. Throws InputError
/// otherwise, saying what the path is instead.
std::filesystem::path check_model_dir(const std::filesystem::path& path);

}  // namespace halley
