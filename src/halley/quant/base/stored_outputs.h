// Some outputs of a linear layer as its checkpoint has them: what a self-check at load compares a
// kernel with, so that it notices wrong packing and not wrong kernels alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/precision.h"
#include "halley/core/tensor.h"
#include "halley/quant/base/open_section.h"

namespace halley {

/// One output: a row of W, dequantized in f64.
struct StoredOutput {
  int64_t index = 0;      // of the section's outputs
  std::vector<double> w;  // [PackedWeight::num_inputs()], in the order of stored inputs
  /// The largest |zero| of its groups in units of the weight: kernels may sum codes and subtract
  /// zeros afterwards.
  double zero_magnitude = 0;
  double bias = 0;
};

/// At most `count` of N outputs, the first and the last among them.
std::vector<int64_t> checked_outputs(int64_t N, int64_t count);

/// Reads codes, groups and orders of the section's StoredWeights, and nothing that was packed.
/// Comes behind pack_section(), which checks the data, and before release_tensors(). `precision` is
/// of a weight that has two. The bias stays 0.
std::vector<StoredOutput> read_outputs(ExecContext& context, const OpenSection& section,
                                       std::span<const int64_t> indices,
                                       Precision precision = Precision::kFull);

/// The same of a table [N, K] of f16, bf16 or f32.
std::vector<StoredOutput> read_outputs(const TensorView& rows, std::span<const int64_t> indices);

}  // namespace halley
