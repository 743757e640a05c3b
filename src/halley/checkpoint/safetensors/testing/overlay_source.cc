#include "halley/checkpoint/safetensors/testing/overlay_source.h"

#include <algorithm>

#include "halley/checkpoint/safetensors/sorted_tensors.h"

namespace halley {

OverlaySource::OverlaySource(const TensorSource& front, const TensorSource& back,
                             const std::vector<std::string>& hidden)
    : front_(front), back_(back), infos_(front.tensors()) {
  for (const TensorInfo& info : back.tensors()) {
    const bool is_hidden = std::find(hidden.begin(), hidden.end(), info.name) != hidden.end();
    if (!is_hidden && front.find(info.name) == nullptr) infos_.push_back(info);
  }
  std::sort(infos_.begin(), infos_.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
}

const TensorInfo* OverlaySource::find(std::string_view name) const {
  return find_sorted(infos_, name);
}

TensorView OverlaySource::view(const TensorInfo& info) const {
  const TensorInfo* front = front_.find(info.name);
  return front != nullptr ? front_.view(*front) : back_.view(*back_.find(info.name));
}

void OverlaySource::release(const TensorInfo& info) const {
  const TensorInfo* front = front_.find(info.name);
  if (front != nullptr) {
    front_.release(*front);
  } else {
    back_.release(*back_.find(info.name));
  }
}

}  // namespace halley
