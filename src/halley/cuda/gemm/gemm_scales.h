// How the factors of a product of codes are scaled.
#pragma once

#include <cstdint>
#include <ostream>

namespace halley::cuda {

/// What shares a scale: of X a row is a token, of W an output.
enum class ScaleSpan : uint8_t { kNone, kTensor, kRow };

const char* name_of(ScaleSpan span);
inline std::ostream& operator<<(std::ostream& out, ScaleSpan span) { return out << name_of(span); }

/// What cuBLASLt multiplies the sums with.
enum class LtScaling : uint8_t { kNone, kTensor, kVector };

/// y[m,n] = x_scale[m] * (w_scale[n] * sum - w_offset[n] * x_sum[m]) (+ bias[n]), where sum is over
/// the products of codes. All in device memory; null scales are 1.
struct RowScales {
  const float* x_scales = nullptr;  // [M], or one where is_x_tensor
  const float* w_scales = nullptr;  // [N], or one where is_w_tensor
  bool is_x_tensor = false;
  bool is_w_tensor = false;
  /// A weight is w_scale * code - w_offset: null, or [N].
  const float* w_offsets = nullptr;
  /// The sum of the codes of each row of X; with w_offsets.
  const int32_t* x_sums = nullptr;
};

}  // namespace halley::cuda
