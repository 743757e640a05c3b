// Measured tile plans of kernels: `halley tune` writes them to a file, and models load it.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace halley::cli {

/// --tuned-plans.
void add_tuned_plans_option(CLI::App& app, std::string& file);

/// Replaces the built-in plans for all models that are loaded from now on; does nothing if `file`
/// is empty. Throws InputError if the file is not one of `halley tune` or is for another kind of
/// GPU, UnsupportedError in a build without CUDA or if the model runs on the CPU.
void use_tuned_plans(const std::string& file, bool is_on_gpu, int gpu_ordinal);

}  // namespace halley::cli
