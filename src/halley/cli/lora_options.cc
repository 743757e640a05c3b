#include "halley/cli/lora_options.h"

#include <filesystem>
#include <system_error>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/lora/load_adapter.h"

namespace halley::cli {

void add_lora_options(CLI::App& app, LoraOptions& options) {
  constexpr const char* kGroup = "LoRA adapters";
  app.add_option("--lora-modules", options.modules,
                 "LoRA adapters as NAME=FOLDER with the files of PEFT; requests name one as their "
                 "model")
      ->group(kGroup);
  app.add_option("--lora-folder", options.folder,
                 "Folder of the adapters that clients may load and unload while the server runs; "
                 "default: they may not")
      ->group(kGroup);
}

std::vector<std::pair<std::string, std::string>> check_lora_options(const LoraOptions& options) {
  std::vector<std::pair<std::string, std::string>> modules;
  for (const std::string& module : options.modules) {
    const size_t equals = module.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == module.size()) {
      throw InputError(str("--lora-modules: expected NAME=FOLDER, got ", quote(module), "."));
    }
    modules.emplace_back(module.substr(0, equals), module.substr(equals + 1));
  }
  std::error_code error;
  if (!options.folder.empty() && !std::filesystem::is_directory(options.folder, error)) {
    throw InputError(
        str("--lora-folder: expected a folder, got ", quote(options.folder), ". Create it."));
  }
  return modules;
}

void check_takes_adapters(const CausalLm& model, const char* option) {
  const std::string why_not = why_no_adapters(model);
  if (!why_not.empty()) throw UnsupportedError(str(option, ": ", why_not));
}

std::shared_ptr<AdapterTable> make_adapter_table(const LoraOptions& options,
                                                 const std::vector<std::string>& model_names,
                                                 const LoadedModel& loaded) {
  if (!options.has_any()) return nullptr;
  check_takes_adapters(*loaded.model, options.modules.empty() ? "--lora-folder" : "--lora-modules");
  auto table = std::make_shared<AdapterTable>(
      model_names, options.folder,
      [config = loaded.plan.config](const std::filesystem::path& folder, const std::string& name) {
        return load_adapter(folder, config, name);
      });
  for (const auto& [name, folder] : check_lora_options(options)) table->add(name, folder);
  return table;
}

}  // namespace halley::cli
