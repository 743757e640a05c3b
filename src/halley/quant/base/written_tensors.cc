#include "halley/quant/base/written_tensors.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"

namespace halley {

CheckpointTensor written_f16(std::string name, Shape shape, std::span<const float> values) {
  std::vector<uint16_t> bits(values.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = f32_to_f16(values[i]);
    HALLEY_CHECK(f16_to_f32(bits[i]) == values[i], name, i, values[i]);
  }
  return written_tensor(std::move(name), DType::kF16, std::move(shape), bits);
}

std::vector<float> transposed(std::span<const float> values, int64_t num_rows,
                              int64_t num_columns) {
  std::vector<float> out(values.size());
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t column = 0; column < num_columns; ++column) {
      out[static_cast<size_t>(column * num_rows + row)] =
          values[static_cast<size_t>(row * num_columns + column)];
    }
  }
  return out;
}

void reject_to_write(const std::string& layer, const std::string& expected,
                     const std::string& got) {
  throw UnsupportedError(str("layer ", quote(layer), ": expected ", expected, ", got ", got,
                             ". Leave the layer out by an override, or choose another format or "
                             "other settings."));
}

void require_multiple(const std::string& layer, const char* dimension, int64_t size,
                      int64_t multiple) {
  if (size % multiple == 0) return;
  reject_to_write(layer, str(dimension, " in multiples of ", multiple), str(size));
}

void require_bits(const std::string& layer, const QuantizedWeight& weight,
                  std::initializer_list<int> allowed) {
  if (std::find(allowed.begin(), allowed.end(), weight.bits) != allowed.end()) return;
  reject_to_write(layer, str("bits among ", std::vector<int>(allowed)), str(weight.bits));
}

void require_whole_groups(const std::string& layer, const QuantizedWeight& weight) {
  if (weight.K % weight.group_size == 0) return;
  reject_to_write(layer, str("a group size that divides its ", weight.K, " inputs (K)"),
                  str(weight.group_size));
}

void require_consecutive_groups(const std::string& layer, const QuantizedWeight& weight) {
  if (weight.group_of_input.empty()) return;
  reject_to_write(layer, "groups of consecutive inputs", "act-order groups (g_idx)");
}

void check_sizes(const QuantizedWeight& weight) {
  HALLEY_CHECK(weight.group_size > 0 && weight.N >= 0 && weight.K >= 0, weight.group_size);
  const auto num_codes = static_cast<size_t>(weight.N * weight.K);
  const auto num_grids = static_cast<size_t>(weight.N * weight.num_groups());
  HALLEY_CHECK(weight.codes.size() == num_codes, weight.codes.size(), num_codes);
  HALLEY_CHECK(weight.scales.size() == num_grids, weight.scales.size(), num_grids);
  HALLEY_CHECK(weight.zeros.size() == num_grids, weight.zeros.size(), num_grids);
  const size_t num_ordered = weight.group_of_input.size();
  HALLEY_CHECK(num_ordered == 0 || num_ordered == static_cast<size_t>(weight.K), num_ordered);
}

}  // namespace halley
