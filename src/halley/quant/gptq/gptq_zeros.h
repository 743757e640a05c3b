// What the words of zero points tell of how they are meant.
#pragma once

#include <cstdint>

#include "halley/core/tensor.h"

namespace halley {

/// Counts over a tensor qzeros [G, W] of `num_features` fields of `bits` bits a row.
struct ZeroCounts {
  int64_t num_fields = 0;
  /// Fields that hold 2^(b-1) - 1 and 2^(b-1): what symmetric weights have in the two storages.
  int64_t num_below_middle = 0;
  int64_t num_middle = 0;
  /// Words in which a field of all ones is followed by nothing but ones.
  int64_t num_saturated_words = 0;
  /// Those of them in which the ones are half of the word or more.
  int64_t num_half_saturated_words = 0;
  /// Words in which a field of all ones is followed by something else.
  int64_t num_masked_words = 0;

  /// Some tools subtract 1 from a zero point of 0 without masking the result: it sets all higher
  /// bits of its word, and the fields there are lost. A tool that masks leaves words of the third
  /// kind as well. Then only long runs are suspicious, for short ones come about by themselves.
  int64_t num_spoilt_words() const {
    return num_masked_words == 0 ? num_saturated_words : num_half_saturated_words;
  }
};

/// Of qzeros of storage gptq.
ZeroCounts count_zeros(const TensorView& qzeros, int bits, int64_t num_features);

}  // namespace halley
