#include "halley/quant/at_load/rounded_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/nested_float.h"
#include "halley/core/tensor.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/quant/solve/grid_rule.h"
#include "halley/quant/stored/float8_tensors.h"

namespace halley {
namespace {

template <typename Element>
Element load(const std::byte* data, int64_t index) {
  Element element;
  std::memcpy(&element, data + index * static_cast<int64_t>(sizeof(element)), sizeof(element));
  return element;
}

/// The view of a dense weight [N, K], whose data need not be aligned.
class DenseRows {
 public:
  explicit DenseRows(TensorView view) : view_(std::move(view)) {}

  int64_t N() const { return view_.shape[0]; }
  int64_t K() const { return view_.shape[1]; }

  /// Inputs [k_begin, k_begin + out.size()) of row n. A loop for each type: all weights of a model
  /// pass here twice while it is loaded.
  void read(int64_t n, int64_t k_begin, std::span<float> out) const {
    const std::byte* from = view_.data + (n * K() + k_begin) * (bits_of(view_.dtype) / 8);
    const auto count = static_cast<int64_t>(out.size());
    switch (view_.dtype) {
      case DType::kF16:
        for (int64_t k = 0; k < count; ++k) out[k] = f16_to_f32(load<uint16_t>(from, k));
        return;
      case DType::kBf16:
        for (int64_t k = 0; k < count; ++k) out[k] = bf16_to_f32(load<uint16_t>(from, k));
        return;
      case DType::kF32:
        std::memcpy(out.data(), from, out.size_bytes());
        return;
      default:
        HALLEY_CHECK(false, name_of(view_.dtype));
    }
  }

  /// Throws CheckpointError for the first value that is none.
  void check_finite(const std::string& where) const {
    std::vector<float> row(static_cast<size_t>(K()));
    for (int64_t n = 0; n < N(); ++n) {
      read(n, 0, row);
      // x - x is 0 of numbers and NaN of the rest.
      float differences = 0;
      for (const float value : row) differences += value - value;
      if (differences == 0) continue;
      const auto bad = std::find_if(row.begin(), row.end(), [](float x) { return x - x != 0; });
      throw CheckpointError(str(where, ": expected finite weights, got ", *bad, " at [", n, ", ",
                                bad - row.begin(), "]. The file is damaged: fetch it again."));
    }
  }

 private:
  TensorView view_;
};

WeightDesc desc_of(const StoredWeight& dense, const AtLoadMethod& method) {
  WeightDesc desc = dense.desc();
  desc.format = kQuantAtLoad.name;
  desc.layout = method.layout;
  desc.bits = has_low_precision(method.layout) ? 16 : code_bits(method.layout);
  desc.is_symmetric = method.is_symmetric;
  desc.activation = method.activation;
  if (is_quantized(method.layout)) {
    desc.group_size = fitting_group(method.group_size, dense.dense_rows().shape[1]);
  }
  return desc;
}

class RoundedWeight : public StoredWeight {
 public:
  RoundedWeight(std::unique_ptr<StoredWeight> dense, const AtLoadMethod& method, std::string where)
      : StoredWeight(desc_of(*dense, method)),
        dense_(std::move(dense)),
        rows_(dense_->dense_rows()),
        where_(std::move(where)) {}

  void check_data() const override { rows_.check_finite(where_); }

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    write(block, quads, [&](int64_t n, std::span<const float> values, uint8_t* codes) {
      round(n, block.k_begin, values, codes);
    });
  }

 protected:
  const std::string& where() const { return where_; }
  const DenseRows& rows() const { return rows_; }
  int64_t num_groups() const { return ceil_div(rows_.K(), desc().group_size); }

  /// Writes code k of each row's values by `encode(row, values, codes)`.
  template <typename Encode>
  void write(const CodeBlock& block, uint8_t* quads, const Encode& encode) const {
    const auto count = static_cast<size_t>(block.k_end - block.k_begin);
    std::vector<float> values(count);
    std::vector<uint8_t> codes(count);
    for (int64_t r = 0; r < block.num_rows; ++r) {
      rows_.read(block.row_begin + r, block.k_begin, values);
      encode(block.row_begin + r, values, codes.data());
      for (size_t i = 0; i < count; ++i) {
        *code_at(quads, block, block.row_begin + r, block.k_begin + static_cast<int64_t>(i)) =
            codes[i];
      }
    }
  }

 private:
  /// Rounds inputs from k_begin on of row n.
  virtual void round(int64_t n, int64_t k_begin, std::span<const float> values,
                     uint8_t* codes) const = 0;

  std::unique_ptr<StoredWeight> dense_;
  DenseRows rows_;
  std::string where_;
};

/// Grids of rows are made by whoever needs a row first.
class IntegerWeight final : public RoundedWeight {
 public:
  IntegerWeight(std::unique_ptr<StoredWeight> dense, const AtLoadMethod& method, std::string where)
      : RoundedWeight(std::move(dense), method, std::move(where)),
        rule_(make_minmax_rule({.bits = desc().bits,
                                .group_size = desc().group_size,
                                .is_symmetric = method.is_symmetric},
                               {})),
        made_(static_cast<size_t>(rows().N())),
        grids_(static_cast<size_t>(rows().N() * num_groups())) {
    if (method.group_size == 0 || desc().group_size == std::min(method.group_size, rows().K())) {
      return;
    }
    warn(str(this->where(), ": groups of ", desc().group_size, ": ", method.group_size,
             " do not divide its ", rows().K(), " inputs"));
  }

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    for (int64_t r = 0; r < num_rows; ++r) {
      const std::span<const Grid> grids = grids_of(row_begin + r);
      for (size_t g = 0; g < grids.size(); ++g) {
        float* to = groups + static_cast<int64_t>(g) * 2 * kPanelRows + r;
        to[0] = grids[g].scale;
        to[kPanelRows] = grids[g].zero;
      }
    }
  }

 private:
  std::span<const Grid> grids_of(int64_t n) const {
    const auto G = static_cast<size_t>(num_groups());
    const std::span<Grid> grids(grids_.data() + static_cast<size_t>(n) * G, G);
    std::call_once(made_[static_cast<size_t>(n)], [&] {
      std::vector<float> row(static_cast<size_t>(rows().K()));
      rows().read(n, 0, row);
      const auto size = static_cast<size_t>(desc().group_size);
      for (size_t g = 0; g < G; ++g) {
        const size_t begin = g * size;
        const auto weights = std::span(row).subspan(begin, std::min(size, row.size() - begin));
        grids[g] = rule_->fit(n, static_cast<int64_t>(g), weights);
      }
    });
    return grids;
  }

  void round(int64_t n, int64_t k_begin, std::span<const float> values,
             uint8_t* codes) const override {
    const std::span<const Grid> grids = grids_of(n);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto group = (k_begin + static_cast<int64_t>(i)) / desc().group_size;
      codes[i] = rule_->round(grids[static_cast<size_t>(group)], values[i]);
    }
  }

  std::unique_ptr<GridRule> rule_;
  mutable std::vector<std::once_flag> made_;  // [N]
  mutable std::vector<Grid> grids_;           // [N, num_groups()]
};

class Float8Weight final : public RoundedWeight {
 public:
  Float8Weight(std::unique_ptr<StoredWeight> dense, const AtLoadMethod& method, std::string where)
      : RoundedWeight(std::move(dense), method, std::move(where)),
        made_(static_cast<size_t>(rows().N())),
        scales_(static_cast<size_t>(rows().N())) {}

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    for (int64_t r = 0; r < num_rows; ++r) {
      groups[r] = scale_of(row_begin + r);
      groups[kPanelRows + r] = 0;
    }
  }

 private:
  float scale_of(int64_t n) const {
    const auto row_index = static_cast<size_t>(n);
    std::call_once(made_[row_index], [&] {
      std::vector<float> row(static_cast<size_t>(rows().K()));
      rows().read(n, 0, row);
      float largest = 0;
      for (const float value : row) largest = std::max(largest, std::fabs(value));
      scales_[row_index] = e4m3_scale(largest);
    });
    return scales_[row_index];
  }

  void round(int64_t n, int64_t, std::span<const float> values, uint8_t* codes) const override {
    const float scale = scale_of(n);
    for (size_t i = 0; i < values.size(); ++i) codes[i] = f32_to_e4m3(values[i] / scale);
  }

  mutable std::vector<std::once_flag> made_;  // [N]
  mutable std::vector<float> scales_;         // [N]
};

class PlanesWeight final : public RoundedWeight {
 public:
  using RoundedWeight::RoundedWeight;

  void read_lower(const CodeBlock& block, uint8_t* quads) const override {
    write(block, quads, [](int64_t, std::span<const float> values, uint8_t* codes) {
      for (size_t i = 0; i < values.size(); ++i) codes[i] = split_f16(f32_to_f16(values[i])).lower;
    });
  }

 private:
  void round(int64_t, int64_t, std::span<const float> values, uint8_t* codes) const override {
    for (size_t i = 0; i < values.size(); ++i) codes[i] = split_f16(f32_to_f16(values[i])).upper;
  }
};

class KeptWeight final : public StoredWeight {
 public:
  KeptWeight(std::unique_ptr<StoredWeight> dense, std::string warning)
      : StoredWeight(dense->desc()), dense_(std::move(dense)) {
    warn(std::move(warning));
  }
  TensorView dense_rows() const override { return dense_->dense_rows(); }

 private:
  std::unique_ptr<StoredWeight> dense_;
};

}  // namespace

int64_t fitting_group(int64_t group_size, int64_t num_inputs) {
  constexpr int64_t kSmallest = 32;
  if (group_size == 0 || group_size >= num_inputs) return std::max<int64_t>(1, num_inputs);
  for (int64_t size = group_size; size >= kSmallest; size /= 2) {
    if (num_inputs % size == 0) return size;
  }
  return group_size;
}

std::string why_not_nested(const StoredWeight& dense) {
  const DenseRows rows(dense.dense_rows());
  std::vector<float> row(static_cast<size_t>(rows.K()));
  int64_t num_beyond = 0;
  for (int64_t n = 0; n < rows.N(); ++n) {
    rows.read(n, 0, row);
    for (const float value : row) num_beyond += can_split_f16(f32_to_f16(value)) ? 0 : 1;
  }
  if (num_beyond == 0) return {};
  return str(num_beyond, " of ", rows.N() * rows.K(), " weights are beyond 1.75");
}

std::unique_ptr<StoredWeight> round_weight(std::unique_ptr<StoredWeight> dense,
                                           const AtLoadMethod& method, std::string where) {
  if (has_low_precision(method.layout)) {
    return std::make_unique<PlanesWeight>(std::move(dense), method, std::move(where));
  }
  if (method.layout == PackedLayout::kF8E4M3Quad) {
    return std::make_unique<Float8Weight>(std::move(dense), method, std::move(where));
  }
  return std::make_unique<IntegerWeight>(std::move(dense), method, std::move(where));
}

std::unique_ptr<StoredWeight> keep_weight(std::unique_ptr<StoredWeight> dense,
                                          std::string warning) {
  return std::make_unique<KeptWeight>(std::move(dense), std::move(warning));
}

}  // namespace halley
