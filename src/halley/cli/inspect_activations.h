// The part of `halley inspect` that shows activations: options, folder and table.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "halley/models/all/load_model.h"
#include "halley/models/options/model_options.h"
#include "halley/quant/inspection/activation_stats.h"

namespace halley::cli {

struct ActivationOptions {
  bool is_asked = false;
  std::string text, out, layers;
  int64_t num_samples = 64, sample_length = 1024;
  size_t num_worst = 10;
};

/// --activations and what belongs to it.
void add_activation_options(CLI::App& app, ActivationOptions& options);

/// Measures, and writes the folder where one is asked for. Throws InputError for a model that is
/// not in full precision, a folder that is there, or layers that are not.
ActivationReport inspect_activations(const ActivationOptions& options, const ModelOptions& model,
                                     const ModelFiles& files, const ModelPlan& plan, int threads);

void print_activations(const ActivationReport& report, const ActivationOptions& options);

}  // namespace halley::cli
