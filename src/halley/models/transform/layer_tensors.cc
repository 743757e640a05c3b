#include "halley/models/transform/layer_tensors.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {

void copy_tensor(const TensorSource& source, const std::string& name, const Shape& shape,
                 TensorStore& store) {
  if (store.find(name) != nullptr) return;  // parts of one stored tensor
  const TensorInfo& info = find_dense_tensor(source, name, shape);
  store.set_f32(name, shape, to_f32(source.view(info)));
  source.release(info);
}

void copy_linear(const TensorSource& source, const LinearSpec& spec, TensorStore& store) {
  reject_stacked_experts(source.description(), spec);
  for (const LinearSpec::Part& part : spec.parts) {
    copy_tensor(source, part.name + ".weight", {part.stored_rows, spec.in_features}, store);
    if (spec.has_bias) copy_tensor(source, part.name + ".bias", {part.stored_rows}, store);
  }
}

void reject_stacked_experts(const std::string& where, const LinearSpec& spec) {
  for (const LinearSpec::Part& part : spec.parts) {
    if (part.expert < 0) continue;
    throw UnsupportedError(str(
        where, ": tensor ", quote(part.name), ": expected the weights of one expert, got those of ",
        part.num_stored_experts, ". Save the checkpoint with a tensor for each expert."));
  }
}

std::vector<LinearRow> rows_of(TensorStore& store, const LinearSpec& spec, int64_t begin,
                               int64_t end) {
  const auto K = static_cast<size_t>(spec.in_features);
  std::vector<LinearRow> rows;
  int64_t part_begin = 0;
  for (const LinearSpec::Part& part : spec.parts) {
    const std::span<float> weight = store.f32(part.name + ".weight");
    const std::span<float> bias =
        spec.has_bias ? store.f32(part.name + ".bias") : std::span<float>();
    const int64_t part_end = part_begin + part.out_features;
    for (int64_t i = std::max(begin, part_begin); i < std::min(end, part_end); ++i) {
      const auto stored = static_cast<size_t>(part.row_begin + i - part_begin);
      rows.push_back({.weights = weight.subspan(stored * K, K),
                      .bias = spec.has_bias ? &bias[stored] : nullptr});
    }
    part_begin = part_end;
  }
  HALLEY_CHECK(static_cast<int64_t>(rows.size()) == end - begin, spec.display_name(), rows.size(),
               begin, end);
  return rows;
}

void divide_row(const LinearRow& row, float divisor) {
  for (float& weight : row.weights) weight /= divisor;
  if (row.bias != nullptr) *row.bias /= divisor;
}

void permute_rows(const std::vector<LinearRow>& rows, std::span<const int32_t> perm) {
  HALLEY_CHECK(rows.size() == perm.size(), rows.size(), perm.size());
  std::vector<float> weights, biases;
  for (const LinearRow& row : rows) {
    weights.insert(weights.end(), row.weights.begin(), row.weights.end());
    biases.push_back(row.bias != nullptr ? *row.bias : 0);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto from = static_cast<size_t>(perm[i]);
    const size_t K = rows[i].weights.size();
    std::copy_n(weights.begin() + static_cast<std::ptrdiff_t>(from * K), K,
                rows[i].weights.begin());
    if (rows[i].bias != nullptr) *rows[i].bias = biases[from];
  }
}

}  // namespace halley
