#include "halley/quant/stored/scale_grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/float4.h"
#include "halley/core/float8.h"
#include "halley/core/packed_weight.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

std::string where_of(const TensorSource& source, std::string_view name) {
  return str(source.description(), ": tensor ", quote(name));
}

template <typename Bits>
Bits load(const std::byte* data, int64_t index) {
  Bits bits;
  std::memcpy(&bits, data + static_cast<size_t>(index) * sizeof(Bits), sizeof(Bits));
  return bits;
}

/// Calls `use` with a function that gives element i as f32, so that the type is tested once.
template <typename Use>
void with_reader(const TensorView& view, const Use& use) {
  const std::byte* data = view.data;
  switch (view.dtype) {
    case DType::kF32:
      return use([data](int64_t i) { return load<float>(data, i); });
    case DType::kF16:
      return use([data](int64_t i) { return f16_to_f32(load<uint16_t>(data, i)); });
    case DType::kBf16:
      return use([data](int64_t i) { return bf16_to_f32(load<uint16_t>(data, i)); });
    case DType::kF8E4M3:
      return use([data](int64_t i) { return e4m3_to_f32(load<uint8_t>(data, i)); });
    case DType::kF8E8M0:
    case DType::kU8:
      return use([data](int64_t i) { return e8m0_to_f32(load<uint8_t>(data, i)); });
    case DType::kI8:
      return use([data](int64_t i) { return static_cast<float>(load<int8_t>(data, i)); });
    default:
      HALLEY_CHECK(false, view.dtype);
  }
}

}  // namespace

const TensorInfo& find_scales(const TensorSource& source, std::string_view name,
                              std::initializer_list<DType> dtypes, const ScaleBlocks& blocks) {
  const Shape grid = {blocks.num_row_blocks(), blocks.num_groups()};
  const TensorInfo* info = source.find(name);
  if (info == nullptr) return find_tensor(source, name, dtypes, grid);
  const bool is_column = grid[1] == 1 && info->shape == Shape{grid[0]};
  const bool is_scalar = grid[0] == 1 && grid[1] == 1 && info->shape.empty();
  return find_tensor(source, name, dtypes, is_column || is_scalar ? info->shape : grid);
}

ScaleGrid::ScaleGrid(const TensorSource& source, const TensorInfo& info, const ScaleBlocks& blocks)
    : where_(where_of(source, info.name)), view_(source.view(info)), blocks_(blocks) {}

/// visit(r, g, value) for each row and group. Values of rows in one block are the same.
template <typename Visit>
void ScaleGrid::visit(int64_t row_begin, int64_t num_rows, const Visit& visit) const {
  const int64_t num_groups = blocks_.num_groups();
  with_reader(view_, [&](const auto& element) {
    for (int64_t r = 0; r < num_rows; ++r) {
      const int64_t row_block = (row_begin + r) / blocks_.block_rows;
      for (int64_t g = 0; g < num_groups; ++g) visit(r, g, element(row_block * num_groups + g));
    }
  });
}

void ScaleGrid::check(int64_t row_begin, int64_t num_rows) const {
  visit(row_begin, num_rows, [&](int64_t r, int64_t g, float value) {
    // Small groups next to large ones have scales that e4m3 rounds to zero.
    if (std::isfinite(value) && (value != 0 || view_.dtype == DType::kF8E4M3)) return;
    const int64_t row_block = (row_begin + r) / blocks_.block_rows;
    throw CheckpointError(str(where_, ": expected finite numbers other than zero, got ", value,
                              " at [", row_block, ", ", g,
                              "]. The file is damaged or was quantized wrongly: fetch it again, or "
                              "quantize the model again."));
  });
}

void ScaleGrid::read(int64_t row_begin, int64_t num_rows, float added, float* out) const {
  visit(row_begin, num_rows,
        [&](int64_t r, int64_t g, float value) { out[g * 2 * kPanelRows + r] = value + added; });
}

double ScaleGrid::bytes_of(int64_t num_rows) const {
  const auto num_bytes = static_cast<double>(view_.num_bytes());
  if (blocks_.num_row_blocks() <= 1) return num_bytes;
  return num_bytes * static_cast<double>(num_rows) / static_cast<double>(blocks_.stored_rows);
}

float read_input_scale(const TensorSource& source, std::string_view name) {
  const ScaleBlocks one = {.stored_rows = 1, .in_features = 1};
  const TensorInfo* stored = source.find(name);
  const Shape shape = stored != nullptr && stored->shape.empty() ? Shape{} : Shape{1};
  const TensorInfo& info =
      find_tensor(source, name, {DType::kF32, DType::kF16, DType::kBf16}, shape);
  float value = 0;
  ScaleGrid(source, info, one).read(0, 1, 0.0f, &value);
  // Below it the reciprocal might overflow (core/packed_weight.h).
  if (std::isfinite(value) && value >= 0x1p-100f) return value;
  throw CheckpointError(str(where_of(source, name),
                            ": expected a finite number of at least 2^-100, got ", value,
                            ". Calibrate and quantize the model again."));
}

void check_all_zero(const TensorSource& source, std::string_view name) {
  const TensorInfo* info = source.find(name);
  if (info == nullptr) return;
  const TensorView view = source.view(*info);
  const auto* end = view.data + view.num_bytes();
  const auto* found = std::find_if(view.data, end, [](std::byte b) { return b != std::byte{0}; });
  if (found == end) return;
  throw CheckpointError(str(where_of(source, name),
                            ": expected zeros, since the configuration says symmetric, got "
                            "another number in byte ",
                            found - view.data, ". Correct the configuration."));
}

}  // namespace halley
