// Scales and scaled zeros of quantized weights: reads pieces of their tensors, and rejects values
// that no quantizer writes.
#pragma once

#include <cstdint>
#include <string>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/tensor.h"

namespace halley {

/// Elements [begin, begin + count) in row-major order as f32, to out[0], out[stride], ... The
/// view's type is f16, bf16 or f32; its data need not be aligned.
void read_f32(const TensorView& view, int64_t begin, int64_t count, float* out, int64_t stride = 1);

/// Rows and columns of a matrix.
struct MatrixRange {
  int64_t row_begin = 0, row_end = 0;
  int64_t column_begin = 0, column_end = 0;
};

/// Throws CheckpointError that names the layer, the tensor [R, C] and the index of the first scale
/// of the range that is NaN, infinite or zero. Negative scales are legal.
void check_scales(const TensorSource& source, const std::string& layer, const TensorInfo& info,
                  const MatrixRange& range);

/// The same for scaled zeros (scale * zero in floating point): rejects NaN and infinity alone.
void check_scaled_zeros(const TensorSource& source, const std::string& layer,
                        const TensorInfo& info, const MatrixRange& range);

}  // namespace halley
