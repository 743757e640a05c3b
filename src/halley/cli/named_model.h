// Models that the command line names as ORG/NAME.
#pragma once

#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>

#include "halley/hub/pull.h"
#include "halley/models/options/model_options.h"

namespace halley::cli {

/// The help of commands says this of MODEL.
inline constexpr const char* kModelDescription =
    "Model: directory of a Hugging Face checkpoint, a GGUF file, or ORG/NAME in the Hugging Face "
    "cache (ORG/NAME/FILE.gguf for one file)";

/// Adds --revision and --download, whose default is `downloads`: not for commands that read small
/// files alone, since the weights would come with them.
void add_lookup_options(CLI::App& app, hub::LookupOptions& lookup, bool downloads = false);

/// hub::pull_model(), shown on stderr: a line for each file, and a progress bar on a terminal.
std::filesystem::path pull_shown(const hub::ModelName& model, const hub::PullOptions& options);

/// hub::find_model(), shown in the same way. An empty text stays one.
std::string find_model(const std::string& model, const hub::LookupOptions& lookup);
/// Replaces the model's name by its path.
void find_model(ModelOptions& options);

}  // namespace halley::cli
