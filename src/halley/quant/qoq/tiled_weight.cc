#include "halley/quant/qoq/tiled_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/qoq/qoq.h"
#include "halley/quant/stored/byte_weight.h"
#include "halley/quant/stored/scale_grid.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr int64_t kTileBytes = kCodeTile * kCodeTile / 2;
constexpr int kCodeMax = 15;
constexpr const char* kDamaged =
    ". The file is damaged or was quantized wrongly: fetch it again, or quantize the model again.";

std::string where_of(const TensorSource& source, const std::string& name) {
  return str(source.description(), ": tensor ", quote(name));
}

/// One row's scales and zeros.
float f16_at(const TensorView& view, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, view.data + index * 2, sizeof(bits));
  return f16_to_f32(bits);
}

int s8_at(const TensorView& view, int64_t index) { return static_cast<int8_t>(view.data[index]); }

class TiledWeight : public StoredWeight {
 public:
  struct Data {
    std::string where;  // of the model and layer, for messages
    TensorView codes;
    TensorView scales;        // s1_scales [stored_rows]
    TensorView scaled_zeros;  // s1_szeros [stored_rows], without groups
    TensorView group_scales;  // s2_scales [K/128, stored_rows], with groups
    TensorView group_zeros;   // s2_zeros, the same
    int64_t row_begin = 0;
    int64_t num_rows = 0;  // of the part
    int64_t K = 0;
    bool is_grouped = false;
  };

  TiledWeight(WeightDesc desc, Data data) : StoredWeight(std::move(desc)), data_(std::move(data)) {}

  void check_data() const override {
    for (int64_t n = data_.row_begin; n < data_.row_begin + data_.num_rows; ++n) {
      const float scale = f16_at(data_.scales, n);
      if (!std::isfinite(scale) || scale == 0) {
        throw CheckpointError(str(data_.where,
                                  ".s1_scales\": expected finite numbers other than "
                                  "zero, got ",
                                  scale, " at [", n, "]", kDamaged));
      }
      if (!data_.is_grouped) check_scaled_zero(n);
    }
    if (!data_.is_grouped) return;
    check_group_scales();
    for (int64_t row = 0; row < data_.num_rows; row += kPanelRows) check_range(row);
  }

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    for (int64_t r = 0; r < block.num_rows; ++r) {
      const int64_t n = data_.row_begin + block.row_begin + r;
      // Quads of one row lie 16 bytes apart in a tile, those of its second half 8 bytes behind.
      const std::byte* row = data_.codes.data + tile_byte_of(n, 0, data_.K);
      const int64_t shift = n % kCodeTile / 16 * 4;
      uint8_t* to = quads + 4 * r;
      for (int64_t k = block.k_begin; k < block.k_end; k += 4, to += kQuadValues) {
        uint32_t bytes;
        std::memcpy(&bytes, row + k / kCodeTile * kTileBytes + k / 4 % 4 * 16 + k / 16 % 2 * 8,
                    sizeof(bytes));
        bytes = (bytes >> shift) & 0x0F0F0F0Fu;
        std::memcpy(to, &bytes, sizeof(bytes));
      }
    }
  }

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    for (int64_t r = 0; r < num_rows; ++r) {
      const int64_t n = data_.row_begin + row_begin + r;
      const float scale = f16_at(data_.scales, n);
      if (!data_.is_grouped) {
        groups[r] = scale;
        groups[kPanelRows + r] = f16_at(data_.scaled_zeros, n);
        continue;
      }
      // An f16 times an s8 is exact in f32.
      for (int64_t g = 0; g < data_.K / kTiledGroup; ++g) {
        const int64_t index = g * data_.scales.shape[0] + permuted_output(n);
        float* group = groups + 2 * g * kPanelRows + r;
        group[0] = scale * static_cast<float>(s8_at(data_.group_scales, index));
        group[kPanelRows] = -scale * static_cast<float>(s8_at(data_.group_zeros, index));
      }
    }
  }

 private:
  void check_scaled_zero(int64_t n) const {
    const float zero = f16_at(data_.scaled_zeros, n);
    if (std::isfinite(zero)) return;
    throw CheckpointError(str(data_.where, ".s1_szeros\": expected finite numbers, got ", zero,
                              " at [", n, "]", kDamaged));
  }

  /// visit(g, n, index) for the part's rows; `index` is into s2_scales and s2_zeros.
  template <typename Visit>
  void visit_groups(const Visit& visit) const {
    const int64_t end = data_.row_begin + data_.num_rows;
    for (int64_t g = 0; g < data_.K / kTiledGroup; ++g) {
      for (int64_t n = data_.row_begin; n < end; ++n) {
        visit(g, n, g * data_.scales.shape[0] + permuted_output(n));
      }
    }
  }

  void check_group_scales() const {
    visit_groups([&](int64_t g, int64_t n, int64_t index) {
      const int scale = s8_at(data_.group_scales, index);
      if (scale > 0) return;
      throw CheckpointError(str(data_.where, ".s2_scales\": expected numbers above zero, got ",
                                scale, " at [", g, ", ", index % data_.scales.shape[0],
                                "], of output ", n, kDamaged));
    });
  }

  /// The first-level values code * s2_scale + s2_zero of some rows must fit in 8 bits: kernels that
  /// compute in 8 bits, as QServe's do, would wrap around, and nobody can tell which was meant.
  void check_range(int64_t row_begin) const {
    const int64_t num_rows = std::min(kPanelRows, data_.num_rows - row_begin);
    std::array<uint8_t, kTiledGroup / 4 * kQuadValues> quads{};
    for (int64_t g = 0; g < data_.K / kTiledGroup; ++g) {
      if (fits_any_code(g, row_begin, num_rows)) continue;
      const CodeBlock block = {.row_begin = row_begin,
                               .num_rows = num_rows,
                               .k_begin = g * kTiledGroup,
                               .k_end = (g + 1) * kTiledGroup};
      read_codes(block, quads.data());
      // Minimum and maximum for each output feature and k % 4.
      std::array<uint8_t, kQuadValues> smallest, largest;
      smallest.fill(kCodeMax);
      largest.fill(0);
      for (size_t quad = 0; quad < quads.size(); quad += kQuadValues) {
        for (size_t i = 0; i < kQuadValues; ++i) {
          smallest[i] = std::min(smallest[i], quads[quad + i]);
          largest[i] = std::max(largest[i], quads[quad + i]);
        }
      }
      for (int64_t r = 0; r < num_rows; ++r) {
        const auto at = static_cast<std::ptrdiff_t>(4 * r);
        check_code(g, row_begin + r, *std::min_element(&smallest[at], &smallest[at] + 4));
        check_code(g, row_begin + r, *std::max_element(&largest[at], &largest[at] + 4));
      }
    }
  }

  /// Most quantizers choose scales with which every code fits: then no code need be read.
  bool fits_any_code(int64_t g, int64_t row_begin, int64_t num_rows) const {
    for (int64_t n = data_.row_begin + row_begin; n < data_.row_begin + row_begin + num_rows; ++n) {
      const int64_t index = g * data_.scales.shape[0] + permuted_output(n);
      const int scale = s8_at(data_.group_scales, index), zero = s8_at(data_.group_zeros, index);
      if (kCodeMax * scale + zero > 127) return false;
    }
    return true;
  }

  void check_code(int64_t g, int64_t row, int code) const {
    const int64_t n = data_.row_begin + row;
    const int64_t index = g * data_.scales.shape[0] + permuted_output(n);
    const int scale = s8_at(data_.group_scales, index), zero = s8_at(data_.group_zeros, index);
    const int weight = code * scale + zero;
    if (weight >= -128 && weight <= 127) return;
    throw CheckpointError(str(data_.where, ".s2_scales\": expected weights of 8 bits, got ", weight,
                              " in group ", g, " of output ", n, " (code ", code, ", scale ", scale,
                              ", zero ", zero, ")", kDamaged));
  }

  Data data_;
};

/// N and K must be whole tiles, K whole groups too.
void check_size(const TensorSource& source, const Part& part, int64_t in_features,
                bool is_grouped) {
  const int64_t step = is_grouped ? kTiledGroup : kCodeTile;
  if (part.stored_rows % kCodeTile == 0 && in_features % step == 0) return;
  throw UnsupportedError(str(where_of(source, part.name + ".qweight"),
                             ": expected outputs in multiples of ", kCodeTile,
                             " and inputs in multiples of ", step, ", got ", part.stored_rows,
                             " and ", in_features, ". Use another quantization of this model."));
}

}  // namespace

std::vector<TensorInfo> expected_tiled_tensors(const Part& part, int64_t in_features,
                                               bool is_grouped) {
  const Shape rows = {part.stored_rows};
  const Shape groups = {in_features / kTiledGroup, part.stored_rows};
  std::vector<TensorInfo> infos = {
      info_of(part.name + ".qweight", DType::kI8, {part.stored_rows, in_features / 2}),
      info_of(part.name + ".s1_scales", DType::kF16, rows)};
  if (is_grouped) {
    infos.push_back(info_of(part.name + ".s2_scales", DType::kI8, groups));
    infos.push_back(info_of(part.name + ".s2_zeros", DType::kI8, groups));
  } else {
    infos.push_back(info_of(part.name + ".s1_szeros", DType::kF16, rows));
  }
  return infos;
}

std::unique_ptr<StoredWeight> open_tiled_weight(const TensorSource& source, const Part& part,
                                                int64_t in_features, bool is_grouped) {
  check_size(source, part, in_features, is_grouped);
  WeightDesc desc;
  desc.format = kQuantQoq.name;
  desc.stored_dtype = DType::kI8;
  desc.layout = PackedLayout::kU4Quad;
  desc.bits = 4;
  desc.group_size = is_grouped ? kTiledGroup : in_features;
  desc.zero_kind = ZeroKind::kOffset;
  desc.is_symmetric = false;
  desc.activation = ActivationQuant::kS8Token;
  std::vector<TensorView> views;
  for (const TensorInfo& expected : expected_tiled_tensors(part, in_features, is_grouped)) {
    const TensorInfo& info = find_tensor(source, expected.name, {expected.dtype}, expected.shape);
    views.push_back(source.view(info));
    desc.tensor_names.push_back(info.name);
    desc.stored_bytes += share_of(info, part);
  }
  TiledWeight::Data data = {.where = str(source.description(), ": tensor \"", part.name),
                            .codes = views[0],
                            .scales = views[1],
                            .scaled_zeros = is_grouped ? TensorView() : views[2],
                            .group_scales = is_grouped ? views[2] : TensorView(),
                            .group_zeros = is_grouped ? views[3] : TensorView(),
                            .row_begin = part.row_begin,
                            .num_rows = part.out_features,
                            .K = in_features,
                            .is_grouped = is_grouped};
  return std::make_unique<TiledWeight>(std::move(desc), std::move(data));
}

}  // namespace halley
