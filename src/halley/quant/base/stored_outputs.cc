#include "halley/quant/base/stored_outputs.h"

#include <algorithm>
#include <cmath>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/nested_float.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

/// Inputs that are read at a time.
constexpr int64_t kInputsAtOnce = 8 * kQuadUnitInputs;

using Read = void (StoredWeight::*)(const CodeBlock&, uint8_t*) const;

/// One output of a part.
struct PartRow {
  const StoredWeight& weight;
  int64_t row = 0;
};

PartRow find_row(const OpenSection& section, int64_t index) {
  for (const OpenPart& part : section.parts) {
    if (index < part.spec->out_features) return {*part.weight, index};
    index -= part.spec->out_features;
  }
  HALLEY_CHECK(false, section.display_name(), index);
  return {*section.parts[0].weight, 0};
}

/// Codes of all stored inputs.
std::vector<uint8_t> read_codes(const PartRow& part, int64_t K, Read read) {
  std::vector<uint8_t> quads(static_cast<size_t>(kInputsAtOnce / 4 * kQuadValues));
  std::vector<uint8_t> codes;
  for (int64_t begin = 0; begin < K; begin += kInputsAtOnce) {
    const CodeBlock block = {.row_begin = part.row,
                             .num_rows = 1,
                             .k_begin = begin,
                             .k_end = std::min(K, begin + kInputsAtOnce)};
    (part.weight.*read)(block, quads.data());
    for (int64_t k = begin; k < block.k_end; ++k) {
      codes.push_back(*code_at(quads.data(), block, part.row, k));
    }
  }
  return codes;
}

std::vector<double> doubles_of(const TensorView& row) {
  const std::vector<float> values = to_f32(row);
  return {values.begin(), values.end()};
}

std::vector<double> nested_values(const PartRow& part, int64_t K, Precision precision) {
  const std::vector<uint8_t> upper = read_codes(part, K, &StoredWeight::read_codes);
  std::vector<double> values;
  if (precision == Precision::kLow) {
    for (const uint8_t code : upper) values.push_back(e4m3_to_f32(code) * kNestedUpperScale);
    return values;
  }
  const std::vector<uint8_t> lower = read_codes(part, K, &StoredWeight::read_lower);
  for (size_t k = 0; k < upper.size(); ++k) {
    values.push_back(f16_to_f32(join_f16({upper[k], lower[k]})));
  }
  return values;
}

void read_quantized(const PartRow& part, int64_t K, StoredOutput& output) {
  if (K == 0) return;  // nor a group
  const WeightDesc& desc = part.weight.desc();
  const std::vector<uint8_t> codes = read_codes(part, K, &StoredWeight::read_codes);
  const int64_t num_groups = ceil_div(K, desc.group_size);
  std::vector<float> groups(static_cast<size_t>(num_groups * 2 * kPanelRows));
  part.weight.read_groups(part.row, 1, groups.data());
  std::vector<int32_t> order;
  if (desc.has_input_perm) order = part.weight.input_perm();
  output.w.resize(static_cast<size_t>(desc.num_inputs == 0 ? K : desc.num_inputs));
  const bool is_point = desc.zero_kind == ZeroKind::kPoint;
  for (int64_t packed = 0; packed < K; ++packed) {
    const auto k = static_cast<size_t>(order.empty() ? packed : order[static_cast<size_t>(packed)]);
    const auto code_index = desc.has_packed_codes ? static_cast<size_t>(packed) : k;
    const auto group = static_cast<size_t>(packed / desc.group_size * 2 * kPanelRows);
    const double scale = groups[group];
    const double zero = groups[group + kPanelRows];
    const double code = value_of(desc.layout, codes[code_index]);
    output.w[k] = is_point ? scale * (code - zero) : scale * code - zero;
    const double magnitude = std::fabs(is_point ? scale * zero : zero);
    output.zero_magnitude = std::max(output.zero_magnitude, magnitude);
  }
}

}  // namespace

std::vector<int64_t> checked_outputs(int64_t N, int64_t count) {
  std::vector<int64_t> indices;
  const int64_t num_outputs = std::min(count, N);
  for (int64_t i = 0; i < num_outputs; ++i) {
    indices.push_back(i * (N - 1) / std::max<int64_t>(1, num_outputs - 1));
  }
  return indices;
}

std::vector<StoredOutput> read_outputs(ExecContext& context, const OpenSection& section,
                                       std::span<const int64_t> indices, Precision precision) {
  const PackedLayout layout = section.desc().layout;
  const int64_t K = section.in_features;
  std::vector<StoredOutput> outputs(indices.size());
  context.pool.run(static_cast<int64_t>(indices.size()), [&](int64_t i, int) {
    StoredOutput& output = outputs[static_cast<size_t>(i)];
    output.index = indices[static_cast<size_t>(i)];
    const PartRow part = find_row(section, output.index);
    if (is_quantized(layout)) {
      read_quantized(part, K, output);
    } else if (has_low_precision(layout)) {
      output.w = nested_values(part, K, precision);
    } else {
      output.w = doubles_of(part.weight.dense_rows().rows(part.row, part.row + 1));
    }
  });
  return outputs;
}

std::vector<StoredOutput> read_outputs(const TensorView& rows, std::span<const int64_t> indices) {
  std::vector<StoredOutput> outputs;
  for (const int64_t index : indices) {
    outputs.push_back({.index = index, .w = doubles_of(rows.rows(index, index + 1))});
  }
  return outputs;
}

}  // namespace halley
