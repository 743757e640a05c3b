// For tests: a checkpoint of testdata with its f16 weights split into two planes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/quant/base/written_format.h"

namespace halley {

/// Largest relative difference of logits between both precisions: two roundings to 4 significant
/// bits in each GEMM of 2 layers, and experts that a rounded router ranks otherwise.
inline constexpr double kLowDifferenceMax = 0.25;

/// The layers that have a tensor of their own, which fused experts have not.
std::vector<std::string> linear_names(const DecoderConfig& config, const TensorSource& source);

/// The checkpoint as a quantizer writes it.
struct TwoPlaneCheckpoint {
  EditableSource source;
  WrittenFormat format;

  TwoPlaneCheckpoint(const DecoderConfig& config, const TensorSource& from);
  LoadOptions options() const;
};

/// The root mean square of the differences, in units of that of `expected`.
double difference(std::span<const float> logits, std::span<const float> expected);

/// Bytes of the weights that a step reads.
size_t bytes_read(const CausalLm& model);

}  // namespace halley
