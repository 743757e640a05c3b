// The options of windows and the numbers in words that `eval` and `compare` share.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "halley/engine/logit_comparison.h"
#include "halley/evaluation/reference.h"

namespace halley::cli {

/// --window and --windows.
void add_window_options(CLI::App& app, WindowOptions& options);

/// "0.0123 [0.0101, 0.0145]".
std::string in_words(const Estimate& estimate, int num_digits);

}  // namespace halley::cli
