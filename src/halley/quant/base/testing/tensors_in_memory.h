// For tests of formats: tensors in memory, and the dequantized values of a stored weight.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "halley/checkpoint/safetensors/sorted_tensors.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// Tensors of a test, at odd addresses.
class TensorsInMemory : public TensorSource {
 public:
  template <typename Element>
  void set(const std::string& name, DType dtype, const Shape& shape,
           const std::vector<Element>& elements) {
    std::vector<std::byte> bytes(1 + elements.size() * sizeof(Element));
    if (!elements.empty()) {
      std::memcpy(bytes.data() + 1, elements.data(), elements.size() * sizeof(Element));
    }
    ASSERT_EQ(num_elements_of(shape).value() * bits_of(dtype) / 8,
              static_cast<int64_t>(bytes.size() - 1))
        << name;
    remove(name);
    const TensorInfo info = {
        .name = name, .dtype = dtype, .shape = shape, .num_bytes = bytes.size() - 1};
    infos_.insert(std::lower_bound(infos_.begin(), infos_.end(), name, comes_before), info);
    data_[name] = std::move(bytes);
  }
  void remove(const std::string& name) {
    infos_.erase(std::remove_if(infos_.begin(), infos_.end(),
                                [&](const TensorInfo& info) { return info.name == name; }),
                 infos_.end());
  }

  std::string description() const override { return "tensors"; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override { return find_sorted(infos_, name); }
  TensorView view(const TensorInfo& info) const override {
    return {data_.at(info.name).data() + 1, info.dtype, info.shape};
  }

 private:
  static bool comes_before(const TensorInfo& info, std::string_view name) {
    return info.name < name;
  }

  std::vector<TensorInfo> infos_;  // sorted by name
  std::map<std::string, std::vector<std::byte>> data_;
};

/// Reads a block's codes as the loader does, and checks that nothing else is written.
inline std::vector<uint8_t> read_block(const StoredWeight& weight, const CodeBlock& block) {
  constexpr uint8_t kUntouched = 0xEE;
  const int64_t num_quads = (block.k_end - block.k_begin + 3) / 4;
  std::vector<uint8_t> quads(static_cast<size_t>(num_quads * kQuadValues), 0);
  std::vector<uint8_t> guarded(quads.size(), kUntouched);
  weight.read_codes(block, quads.data());
  weight.read_codes(block, guarded.data());
  std::vector<bool> is_of_block(quads.size(), false);
  for (int64_t row = block.row_begin; row < block.row_begin + block.num_rows; ++row) {
    for (int64_t k = block.k_begin; k < block.k_end; ++k) {
      is_of_block[static_cast<size_t>(code_at(quads.data(), block, row, k) - quads.data())] = true;
    }
  }
  for (size_t i = 0; i < quads.size(); ++i) {
    if (is_of_block[i]) {
      EXPECT_EQ(guarded[i], quads[i]) << "byte " << i;
    } else {
      EXPECT_EQ(guarded[i], kUntouched) << "byte " << i;
    }
  }
  return quads;
}

/// The dequantized weight [num_rows, K], its inputs in stored order. The data are checked first.
inline std::vector<float> dequantized_weight(const StoredWeight& weight, int64_t num_rows,
                                             int64_t K) {
  weight.check_data();
  const WeightDesc& desc = weight.desc();
  const int64_t num_groups = (K + desc.group_size - 1) / desc.group_size;
  std::vector<int32_t> order = weight.input_perm();
  EXPECT_EQ(order.empty(), !desc.has_input_perm);
  std::vector<int64_t> group_of(static_cast<size_t>(K));
  for (int64_t k = 0; k < K; ++k) {
    const int64_t stored = order.empty() ? k : order[static_cast<size_t>(k)];
    group_of[static_cast<size_t>(stored)] = k / desc.group_size;
  }
  std::vector<float> values(static_cast<size_t>(num_rows * K), NAN);
  for (int64_t begin = 0; begin < num_rows; begin += kPanelRows) {
    const int64_t count = std::min(kPanelRows, num_rows - begin);
    std::vector<float> groups(static_cast<size_t>(num_groups * 64), NAN);
    weight.read_groups(begin, count, groups.data());
    const CodeBlock block = {.row_begin = begin, .num_rows = count, .k_begin = 0, .k_end = K};
    std::vector<uint8_t> quads = read_block(weight, block);
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t k = 0; k < K; ++k) {
        const auto at = static_cast<size_t>(group_of[static_cast<size_t>(k)] * 64 + row);
        const double scale = groups[at], zero = groups[at + 32];
        const double code = *code_at(quads.data(), block, begin + row, k);
        const bool is_point = desc.zero_kind == ZeroKind::kPoint;
        values[static_cast<size_t>((begin + row) * K + k)] =
            static_cast<float>(is_point ? scale * (code - zero) : scale * code - zero);
      }
    }
  }
  return values;
}

}  // namespace halley
