// For tests of formats: tensors that a test makes in memory, and the dequantized values of a
// weight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "halley/base/check.h"
#include "halley/checkpoint/safetensors/sorted_tensors.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/quant/base/format.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// Tensors lie at odd addresses: nothing may count on alignment.
class MemoryTensors : public TensorSource {
 public:
  template <typename T>
  MemoryTensors& add(const std::string& name, DType dtype, const Shape& shape,
                     const std::vector<T>& elements) {
    std::vector<std::byte>& bytes = data_[name];
    bytes.resize(elements.size() * sizeof(T) + 1);
    std::memcpy(bytes.data() + 1, elements.data(), elements.size() * sizeof(T));
    TensorInfo info = {
        .name = name, .dtype = dtype, .shape = shape, .num_bytes = elements.size() * sizeof(T)};
    remove(name);
    infos_.insert(std::lower_bound(infos_.begin(), infos_.end(), name, before), std::move(info));
    return *this;
  }
  /// Random bytes from a seed: any codes.
  MemoryTensors& add_bytes(const std::string& name, DType dtype, const Shape& shape) {
    const auto num_bits = num_elements_of(shape).value() * bits_of(dtype);
    std::vector<uint8_t> bytes(static_cast<size_t>(num_bits / 8));
    uint32_t state = 12345;
    for (uint8_t& byte : bytes) {
      state = state * 1664525u + 1013904223u;
      byte = static_cast<uint8_t>(state >> 24);
      if (dtype == DType::kF8E4M3 && (byte & 0x7F) == 0x7F) byte = 0;
    }
    return add(name, dtype, shape, bytes);
  }
  MemoryTensors& fill(const std::string& name, const Shape& shape, float value) {
    const std::vector<float> values(static_cast<size_t>(num_elements_of(shape).value()), value);
    return add(name, DType::kF32, shape, values);
  }
  void remove(std::string_view name) {
    std::erase_if(infos_, [&](const TensorInfo& info) { return info.name == name; });
  }

  std::string description() const override { return "model"; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override { return find_sorted(infos_, name); }
  TensorView view(const TensorInfo& info) const override {
    return {data_.at(info.name).data() + 1, info.dtype, info.shape};
  }

 private:
  static bool before(const TensorInfo& info, std::string_view name) { return info.name < name; }

  std::vector<TensorInfo> infos_;
  std::map<std::string, std::vector<std::byte>> data_;
};

inline LinearSpec::Part whole_part(const std::string& name, int64_t num_rows) {
  return {.name = name, .out_features = num_rows, .stored_rows = num_rows};
}

/// Dequantizes a weight in a quad layout to [num_rows, K], read as the loader reads it, in blocks
/// that do not begin where panels do; checks that nothing but the block's codes is written.
inline std::vector<float> dequantized(const StoredWeight& weight, int64_t num_rows, int64_t K) {
  weight.check_data();
  const WeightDesc& desc = weight.desc();
  const int64_t num_groups = (K + desc.group_size - 1) / desc.group_size;
  const auto num_quads = static_cast<size_t>((K + 3) / 4);
  std::vector<int32_t> order = weight.input_perm();
  std::vector<float> out(static_cast<size_t>(num_rows * K));
  for (int64_t begin = 0; begin < num_rows; begin += 7) {
    const int64_t count = std::min<int64_t>(7, num_rows - begin);
    std::vector<float> groups(static_cast<size_t>(num_groups * 64));
    weight.read_groups(begin, count, groups.data());
    std::vector<uint8_t> codes(num_quads * kQuadValues, 0xA5);
    for (int64_t k = 0; k < K; k += kQuadUnitInputs) {
      const CodeBlock block = {.row_begin = begin,
                               .num_rows = count,
                               .k_begin = k,
                               .k_end = std::min(K, k + kQuadUnitInputs)};
      weight.read_codes(block, codes.data() + k / 4 * kQuadValues);
    }
    const CodeBlock all = {.row_begin = 0, .num_rows = count, .k_begin = 0, .k_end = K};
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t packed = 0; packed < K; ++packed) {
        const auto at = static_cast<size_t>(packed);
        const int64_t k = order.empty() ? packed : order[at];
        const int64_t code_input = desc.has_packed_codes ? packed : k;
        const uint8_t code = *code_at(codes.data(), all, r, code_input);
        const auto group = static_cast<size_t>(packed / desc.group_size * 64 + r);
        const double number = value_of(desc.layout, code);
        const double scale = groups[group], zero = groups[group + 32];
        const double w =
            desc.zero_kind == ZeroKind::kPoint ? scale * (number - zero) : scale * number - zero;
        out[static_cast<size_t>((begin + r) * K + k)] = static_cast<float>(w);
      }
    }
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto k = static_cast<int64_t>(i / kQuadValues * 4 + i % 4);
      const auto r = static_cast<int64_t>(i % kQuadValues / 4);
      if (r >= count || k >= K) HALLEY_CHECK(codes[i] == 0xA5, r, k);
    }
  }
  return out;
}

}  // namespace halley
