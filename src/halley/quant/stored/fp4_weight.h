// Reads weights of 4-bit floats (e2m1), two a byte, with scales of groups: NVFP4 and MXFP4.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// The facts of such a weight that the format's module gives.
struct Fp4WeightSpec {
  const char* format = "";
  std::string values_name;  // u8 [stored_rows, K / 2], the earlier input in the low half
  /// [stored_rows, K / group_size]: f8_e4m3, or f8_e8m0, which files also call u8.
  std::string scale_name;
  bool has_e8m0_scales = false;
  int64_t group_size = 16;
  /// A factor of all scales, f32, a scalar or [1]; empty: 1. compressed-tensors stores its
  /// reciprocal.
  std::string global_name = {};
  bool is_global_reciprocal = false;
  /// Tensors that belong to the weight and are not read, where they are there.
  std::vector<std::string> unused_names = {};
};

/// w = e2m1 * scale * global. Throws CheckpointError where a tensor is missing or of another type
/// or shape, K is odd, or the global scale is not finite and above zero; check_data() where a scale
/// is not finite.
std::unique_ptr<StoredWeight> open_fp4_weight(const TensorSource& source,
                                              const LinearSpec::Part& part, int64_t in_features,
                                              const Fp4WeightSpec& spec);

/// The tensors that open_fp4_weight() reads.
std::vector<TensorInfo> expected_fp4_tensors(const LinearSpec::Part& part, int64_t in_features,
                                             const Fp4WeightSpec& spec);

}  // namespace halley
