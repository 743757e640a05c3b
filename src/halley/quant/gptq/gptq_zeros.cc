#include "halley/quant/gptq/gptq_zeros.h"

#include <optional>

#include "halley/quant/base/code_words.h"

namespace halley {
namespace {

/// Evidence in one word for a writer that does not mask zero - 1.
enum class WordSays : uint8_t { kNothing, kSaturated, kHalfSaturated, kMasked };

/// `first_field_bit` is where the first field that begins in the word begins.
WordSays read_word(uint32_t word, int first_field_bit, int bits) {
  const uint32_t field_mask = (1u << bits) - 1;
  for (int begin = first_field_bit; begin + bits < 32; begin += bits) {
    if (((word >> begin) & field_mask) != field_mask) continue;
    const uint32_t rest_of_ones = ~uint32_t{0} >> begin;
    if ((word >> begin) != rest_of_ones) return WordSays::kMasked;
    return begin <= 16 ? WordSays::kHalfSaturated : WordSays::kSaturated;
  }
  return WordSays::kNothing;
}

/// A word whose fields all hold `value`; fields of 3 bits cross words.
std::optional<uint32_t> repeated(uint32_t value, int bits) {
  if (32 % bits != 0) return std::nullopt;
  uint32_t word = 0;
  for (int begin = 0; begin < 32; begin += bits) word |= value << begin;
  return word;
}

}  // namespace

ZeroCounts count_zeros(const TensorView& qzeros, int bits, int64_t num_features) {
  const int64_t num_words = qzeros.shape[1];
  const uint32_t middle = 1u << (bits - 1);
  const auto all_below = repeated(middle - 1, bits), all_middle = repeated(middle, bits);
  // A last word that is only partly used tells nothing of its writer.
  const int64_t num_whole_words = num_features * bits / 32;
  ZeroCounts counts;
  for (int64_t row = 0; row < qzeros.shape[0]; ++row) {
    const std::byte* words = qzeros.data + row * num_words * 4;
    counts.num_fields += num_features;
    for (int64_t i = 0; i < num_whole_words; ++i) {
      // The first field that begins in word i of fields of 3 bits begins at bit 0, 1 or 2.
      const int first_bit = bits == 3 ? static_cast<int>(i % 3) : 0;
      const WordSays says = read_word(load_word<uint32_t>(words, i), first_bit, bits);
      const bool is_half = says == WordSays::kHalfSaturated;
      counts.num_saturated_words += is_half || says == WordSays::kSaturated ? 1 : 0;
      counts.num_half_saturated_words += is_half ? 1 : 0;
      counts.num_masked_words += says == WordSays::kMasked ? 1 : 0;
    }
    const int64_t fields_per_word = 32 / bits;
    for (int64_t n = 0; n < num_features;) {
      if (all_below && n + fields_per_word <= num_features) {
        const uint32_t word = load_word<uint32_t>(words, n / fields_per_word);
        if (word == *all_below || word == *all_middle) {
          (word == *all_below ? counts.num_below_middle : counts.num_middle) += fields_per_word;
          n += fields_per_word;
          continue;
        }
      }
      const uint32_t field = code_of_stream(words, n, bits);
      counts.num_below_middle += field == middle - 1 ? 1 : 0;
      counts.num_middle += field == middle ? 1 : 0;
      ++n;
    }
  }
  return counts;
}

}  // namespace halley
