#include "halley/checkpoint/safetensors/tensor_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "halley/base/check.h"
#include "halley/checkpoint/safetensors/sorted_tensors.h"

namespace halley {
namespace {

bool comes_before(const TensorInfo& info, std::string_view name) { return info.name < name; }

}  // namespace

void TensorStore::set(const std::string& name, DType dtype, const Shape& shape,
                      std::vector<std::byte> data) {
  TensorInfo info = {.name = name, .dtype = dtype, .shape = shape, .num_bytes = data.size()};
  const int64_t num_bits = num_elements_of(shape).value() * bits_of(dtype);
  HALLEY_CHECK(num_bits == static_cast<int64_t>(data.size()) * 8, name, num_bits, data.size());
  remove(name);
  infos_.insert(std::lower_bound(infos_.begin(), infos_.end(), name, comes_before),
                std::move(info));
  data_[name] = std::move(data);
}

void TensorStore::set_f32(const std::string& name, const Shape& shape,
                          std::span<const float> values) {
  std::vector<std::byte> data(values.size_bytes());
  if (!data.empty()) std::memcpy(data.data(), values.data(), data.size());
  set(name, DType::kF32, shape, std::move(data));
}

void TensorStore::remove(std::string_view name) {
  std::erase_if(infos_, [&](const TensorInfo& info) { return info.name == name; });
  if (const auto it = data_.find(name); it != data_.end()) data_.erase(it);
}

std::span<float> TensorStore::f32(std::string_view name) {
  const TensorInfo* info = find(name);
  HALLEY_CHECK(info != nullptr && info->dtype == DType::kF32, name);
  std::vector<std::byte>& data = data_.find(name)->second;
  return {reinterpret_cast<float*>(data.data()), data.size() / sizeof(float)};
}

const TensorInfo* TensorStore::find(std::string_view name) const {
  return find_sorted(infos_, name);
}

TensorView TensorStore::view(const TensorInfo& info) const {
  return {data_.at(info.name).data(), info.dtype, info.shape};
}

}  // namespace halley
