// Options of `serve` that can be wrong without a model: checked before its weights are loaded.
#pragma once

#include <string>
#include <vector>

namespace halley::cli {

/// The keys of --api-key, of the variable HALLEY_API_KEY and of --api-key-file (empty: none).
/// Throws InputError where the variable or the file is there and has no key: without one, the
/// server would be open.
std::vector<std::string> read_api_keys(const std::vector<std::string>& from_options,
                                       const std::string& file);

/// `names`, or the name of the model's folder where there are none. Throws InputError for names
/// that no request could have, and for one that is there twice.
std::vector<std::string> check_model_names(std::vector<std::string> names,
                                           const std::string& model_dir);

}  // namespace halley::cli
