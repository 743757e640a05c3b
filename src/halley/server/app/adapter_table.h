// The LoRA adapters that requests may name as their model.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "halley/models/base/low_rank.h"

namespace halley {

/// Thread-safe. A request keeps its adapter to its end, whatever becomes of the table's entry.
class AdapterTable {
 public:
  static constexpr size_t kAdaptersMax = 256;

  /// Loads the adapter in a folder; throws Error.
  using Load = std::function<std::shared_ptr<const Adapter>(const std::filesystem::path& folder,
                                                            const std::string& name)>;
  /// `model_names` are taken. `folder` has the adapters that clients may load and unload; empty:
  /// they may not.
  AdapterTable(std::vector<std::string> model_names, std::filesystem::path folder, Load load)
      : model_names_(std::move(model_names)), folder_(std::move(folder)), load_(std::move(load)) {}

  /// Loads one that the operator names. Throws InputError where the name is taken or there are too
  /// many, and what Load throws.
  void add(const std::string& name, const std::filesystem::path& folder);

  bool is_open_to_clients() const { return !folder_.empty(); }
  /// Loads `path`, relative to the folder or below it, for a client; `replaces` one of that name.
  /// Throws ApiError: 403 for paths elsewhere, 400 for what add() throws.
  void load(const std::string& name, const std::string& path, bool replaces);
  /// Throws ApiError, 404, where there is none of that name.
  void unload(const std::string& name);

  /// Null where there is none of that name.
  std::shared_ptr<const Adapter> find(std::string_view name) const;
  /// Sorted.
  std::vector<std::string> names() const;

 private:
  void check_name(const std::string& name, bool replaces) const;
  std::filesystem::path checked_path(const std::string& path) const;
  void load_and_put(const std::string& name, const std::filesystem::path& folder, bool replaces);

  const std::vector<std::string> model_names_;
  const std::filesystem::path folder_;
  const Load load_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Adapter>, std::less<>> adapters_;
};

}  // namespace halley
