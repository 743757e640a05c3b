// Look-ups among a source's tensors, which are sorted by name.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// Null where none has the name.
inline const TensorInfo* find_sorted(const std::vector<TensorInfo>& infos, std::string_view name) {
  const auto it = std::lower_bound(
      infos.begin(), infos.end(), name,
      [](const TensorInfo& info, std::string_view key) { return info.name < key; });
  return it != infos.end() && it->name == name ? &*it : nullptr;
}

}  // namespace halley
