// Options for LoRA adapters.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "halley/models/base/low_rank.h"
#include "halley/models/options/model_options.h"
#include "halley/server/app/adapter_table.h"

namespace halley::cli {

struct LoraOptions {
  std::vector<std::string> modules;  // NAME=FOLDER
  std::string folder;                // of those that clients may load; empty: they may not

  bool has_any() const { return !modules.empty() || !folder.empty(); }
};

void add_lora_options(CLI::App& app, LoraOptions& options);

/// The names and folders. Throws InputError for one that is not NAME=FOLDER, and where the folder
/// for clients is none: before a model is loaded.
std::vector<std::pair<std::string, std::string>> check_lora_options(const LoraOptions& options);

/// Loads the adapters that the options name; null where they name none and clients may load none.
/// Throws what load_adapter() throws, and as check_takes_adapters().
std::shared_ptr<AdapterTable> make_adapter_table(const LoraOptions& options,
                                                 const std::vector<std::string>& model_names,
                                                 const LoadedModel& loaded);

/// Throws UnsupportedError where the model takes no adapters. `option` is who asks.
void check_takes_adapters(const CausalLm& model, const char* option);

}  // namespace halley::cli
