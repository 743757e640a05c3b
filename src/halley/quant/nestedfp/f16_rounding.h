// Rounds a tensor to f16 and counts what that changes; the magnitudes decide where the format fits.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "halley/core/exec_context.h"
#include "halley/core/tensor.h"
#include "halley/json/json.h"

namespace halley {

/// Values rounded to f16, to nearest even. Indices count the elements, -1: there is none.
struct F16Rounding {
  int64_t num_values = 0;
  int64_t num_changed = 0;    // f16 has another value in their place; overflows are not among them
  int64_t num_zeroed = 0;     // of the changed ones, those that became zero
  int64_t num_beyond = 0;     // a magnitude beyond 1.75 after rounding, overflows included
  int64_t num_overflows = 0;  // f16 holds nothing near: 65520 and more
  int64_t first_beyond = -1, first_overflow = -1, first_not_finite = -1;
  /// The largest |f16(x) - x| / |x| of a changed value, 1 where x became zero, and the largest
  /// |f16(x) - x|.
  double worst_relative_error = 0, worst_absolute_error = 0;
  /// Before rounding; of no values infinity and -infinity.
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();

  /// Adds the counts of elements that follow.
  void append(const F16Rounding& next);
};

/// Rounds a tensor `name` of f16, bf16 or f32 and writes the bits of all elements to `bits`, or
/// nothing where that is empty. The same counts and bits for any number of threads. Throws
/// CheckpointError with name and index for NaN and infinities, UnsupportedError for other types.
F16Rounding round_to_f16(ExecContext& context, const std::string& name, const TensorView& view,
                         std::span<uint16_t> bits);

/// {"num_values": ..., "num_changed": ..., "num_zeroed": ..., "num_overflows": ...,
/// "worst_relative_error": ..., "worst_absolute_error": ...}
OrderedJson to_json(const F16Rounding& rounding);
/// The members of to_json(); the rest is absent.
F16Rounding f16_rounding_of(const Json& json);

/// The index of element i as text: "[2, 17]".
std::string index_in_words(const Shape& shape, int64_t i);

/// The value of element i of a tensor of f16, bf16 or f32.
float value_at(const TensorView& view, int64_t i);

}  // namespace halley
