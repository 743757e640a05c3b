#include "halley/server/app/adapter_table.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNameBytesMax = 128;

bool is_adapter_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

/// Whether `path` is `folder` or below it. Both without links and "..".
bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

}  // namespace

// The mutex is held.
void AdapterTable::check_name(const std::string& name, bool replaces) const {
  if (!is_adapter_name(name)) {
    throw InputError(str("adapter: expected a name of 1 to ", kNameBytesMax,
                         " visible ASCII characters, got ", quote(name), "."));
  }
  const bool is_model =
      std::find(model_names_.begin(), model_names_.end(), name) != model_names_.end();
  if (is_model || (!replaces && adapters_.contains(name))) {
    throw InputError(str("adapter: expected a name that no model and no other adapter has, got ",
                         quote(name), "."));
  }
  if (!adapters_.contains(name) && adapters_.size() == kAdaptersMax) {
    throw InputError(str("adapter: expected at most ", kAdaptersMax, " of them, got ", quote(name),
                         " beyond. Unload another first."));
  }
}

fs::path AdapterTable::checked_path(const std::string& path) const {
  std::error_code error;
  const fs::path folder = fs::canonical(folder_, error);
  if (!error) {
    const fs::path resolved = fs::canonical(folder / path, error);
    if (!error && is_within(resolved, folder)) return resolved;
  }
  // Says the same whether the path is elsewhere or nowhere.
  throw ApiError(
      str("lora_path: expected a folder in that of --lora-folder, got ", quote(path), "."),
      {.status = 403, .param = "lora_path"});
}

void AdapterTable::load_and_put(const std::string& name, const fs::path& folder, bool replaces) {
  {
    const std::lock_guard lock(mutex_);
    check_name(name, replaces);
  }
  std::shared_ptr<const Adapter> adapter = load_(folder, name);
  const std::lock_guard lock(mutex_);
  check_name(name, replaces);  // another may have come meanwhile
  adapters_[name] = std::move(adapter);
}

void AdapterTable::add(const std::string& name, const fs::path& folder) {
  load_and_put(name, folder, false);
}

void AdapterTable::load(const std::string& name, const std::string& path, bool replaces) {
  const fs::path folder = checked_path(path);
  try {
    load_and_put(name, folder, replaces);
  } catch (const Error& error) {
    throw invalid_field("", error.what());
  }
}

void AdapterTable::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (adapters_.erase(name) > 0) return;
  throw ApiError(str("lora_name: expected a loaded adapter, got ", quote(name), "."),
                 {.status = 404, .param = "lora_name", .code = "model_not_found"});
}

std::shared_ptr<const Adapter> AdapterTable::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? nullptr : found->second;
}

std::vector<std::string> AdapterTable::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, adapter] : adapters_) names.push_back(name);
  return names;
}

}  // namespace halley
