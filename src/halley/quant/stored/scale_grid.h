// The scales of a quantized weight, or its zero points, as a small tensor of one value per block.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "halley/base/checked_math.h"
#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// The blocks of a weight [stored_rows, K]: block_rows x group_size weights share one value. The
/// last block of either direction may be smaller.
struct ScaleBlocks {
  int64_t stored_rows = 0;
  int64_t in_features = 0;
  int64_t block_rows = 1;
  int64_t group_size = 1;

  int64_t num_row_blocks() const { return ceil_div(stored_rows, block_rows); }
  int64_t num_groups() const { return ceil_div(in_features, group_size); }
};

/// The tensor `name` of one of the types, [num_row_blocks, num_groups]. [num_row_blocks] is taken
/// too where there is one group, and a scalar where there is one value. Throws CheckpointError as
/// find_tensor().
const TensorInfo& find_scales(const TensorSource& source, std::string_view name,
                              std::initializer_list<DType> dtypes, const ScaleBlocks& blocks);

/// A tensor that find_scales() gave, of type f32, f16, bf16, f8_e4m3, f8_e8m0 (u8 is the same) or
/// i8. Immutable; views into the source.
class ScaleGrid {
 public:
  ScaleGrid(const TensorSource& source, const TensorInfo& info, const ScaleBlocks& blocks);

  /// Throws CheckpointError that names tensor and index unless the values that stored rows
  /// [row_begin, row_begin + num_rows) use are finite and, but for f8_e4m3, not zero.
  void check(int64_t row_begin, int64_t num_rows) const;
  /// Writes the value of stored row row_begin + r and group g, plus `added`, to out[g * 64 + r].
  void read(int64_t row_begin, int64_t num_rows, float added, float* out) const;
  /// Stored bytes that those rows use.
  double bytes_of(int64_t num_rows) const;

 private:
  template <typename Visit>
  void visit(int64_t row_begin, int64_t num_rows, const Visit& visit) const;

  std::string where_;
  TensorView view_;
  ScaleBlocks blocks_;
};

/// Reads a static per-tensor scale of activations: f32, f16 or bf16, a scalar or [1]. Throws
/// CheckpointError that names the tensor where it is missing, of another shape or type, or not
/// finite and above zero.
float read_input_scale(const TensorSource& source, std::string_view name);

/// Throws CheckpointError where there is a tensor `name` that is not all zero bits: zero points of
/// a weight that the configuration declares symmetric.
void check_all_zero(const TensorSource& source, std::string_view name);

}  // namespace halley
