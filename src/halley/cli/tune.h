// Measured plans of kernels: a file that `halley tune` writes and models are loaded with.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace halley::cli {

/// --tuned-plans.
void add_tuned_plans_option(CLI::App& app, std::string& file);

/// For all models that are loaded from now on, in place of the built-in plans; nothing where `file`
/// is empty. Throws InputError where the file is not what `halley tune` writes or is of another
/// kind of GPU, UnsupportedError in a build without CUDA or where the model runs on the CPU.
void use_tuned_plans(const std::string& file, bool is_on_gpu, int gpu_ordinal);

}  // namespace halley::cli
