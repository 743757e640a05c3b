// Statistics of qzeros that tell which convention their writer followed.
#pragma once

#include <cstdint>

#include "halley/core/tensor.h"

namespace halley {

/// Counts over a tensor qzeros [G, W] of `num_features` fields of `bits` bits a row.
struct ZeroCounts {
  int64_t num_fields = 0;
  /// Fields that hold 2^(b-1) - 1 and 2^(b-1): the values of symmetric weights in gptq and gptq_v2.
  int64_t num_below_middle = 0;
  int64_t num_middle = 0;
  /// Words in which a field of all ones is followed by nothing but ones.
  int64_t num_saturated_words = 0;
  /// Those of them in which the ones are half of the word or more.
  int64_t num_half_saturated_words = 0;
  /// Words in which a field of all ones is followed by something else.
  int64_t num_masked_words = 0;

  /// Words in which zero points are lost: some tools subtract 1 from a zero point of 0 without
  /// masking the result, which sets all higher bits of the word. A tool that masks also leaves
  /// words of the third kind; then only long runs are suspicious, since short ones occur by chance.
  int64_t num_spoilt_words() const {
    return num_masked_words == 0 ? num_saturated_words : num_half_saturated_words;
  }
};

/// Counts over qzeros of checkpoint_format gptq.
ZeroCounts count_zeros(const TensorView& qzeros, int bits, int64_t num_features);

}  // namespace halley
