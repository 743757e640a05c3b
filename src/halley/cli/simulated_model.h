// The model and the device of `halley simulate`: what steps read and compute, and which measured
// ratios count, from a configuration alone.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "halley/engine/engine.h"
#include "halley/hub/pull.h"
#include "halley/models/all/load_model.h"
#include "halley/simulation/simulated_engine.h"

namespace halley::cli {

struct SimulatedModelOptions {
  std::string model = {};             // a folder with config.json; no weight is read
  hub::LookupOptions lookup = {};     // of a model that is named ORG/NAME
  std::string config_name = {};       // or a built-in shape
  std::string quant_config = "auto";  // auto, a name, JSON or a file
  std::string kv_dtype = "auto";
  std::string device = "h200";
  double gpu_memory_utilization = 0.9;
  std::string ratios_file = {};  // empty: the built-in table
};

void add_simulated_model_options(CLI::App& app, SimulatedModelOptions& options);

/// Plans the model from its configuration, with weights in 16 bits where they are not quantized.
/// Throws InputError where neither or both of MODEL and --config are given, and as plan_model().
ModelPlan plan_simulated_model(const SimulatedModelOptions& options);

/// The precisions of the model as RatioTable names them, the best first: "f16", "fp8",
/// "w4a8", ...: that of most weights; "nested_full" and "nested_low" where weights hold two.
std::vector<std::string> ratio_names_of(const ModelPlan& plan);

/// Costs of steps by level, the best first; at least one.
std::vector<PrecisionLevel> levels_of(const ModelPlan& plan, KvDType kv_dtype);

/// `config` is as the user gave it. Throws InputError where the device or its memory does not
/// suffice, where nothing was measured for the precision, and as with_defaults() and plan_engine().
SimulatedEngine make_simulated_engine(const ModelPlan& plan, const SimulatedModelOptions& options,
                                      const EngineConfig& config);

}  // namespace halley::cli
