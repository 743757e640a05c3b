#include "halley/quant/awq/encode.h"

#include <array>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/written_tensors.h"

namespace halley {
namespace {

constexpr int kBits = 4;
constexpr int64_t kCodesPerWord = 8;

/// Output 8c + i of word c is nibble kNibbleOf[i].
constexpr std::array<int, 8> kNibbleOf = {0, 4, 1, 5, 2, 6, 3, 7};

/// [N, num_columns], a byte each, to words [num_columns, N/8].
std::vector<uint32_t> interleaved(const std::vector<uint8_t>& values, int64_t N,
                                  int64_t num_columns) {
  const int64_t words_per_row = N / kCodesPerWord;
  std::vector<uint32_t> words(static_cast<size_t>(num_columns * words_per_row));
  for (int64_t n = 0; n < N; ++n) {
    const int shift = kBits * kNibbleOf[static_cast<size_t>(n % kCodesPerWord)];
    const uint8_t* row = values.data() + n * num_columns;
    uint32_t* to = words.data() + n / kCodesPerWord;
    for (int64_t k = 0; k < num_columns; ++k) to[k * words_per_row] |= uint32_t{row[k]} << shift;
  }
  return words;
}

}  // namespace

std::vector<CheckpointTensor> encode_awq(const std::string& name, const QuantizedWeight& weight) {
  check_sizes(weight);
  require_bits(name, weight, {kBits});
  require_multiple(name, "outputs (N)", weight.N, kCodesPerWord);
  require_whole_groups(name, weight);
  require_consecutive_groups(name, weight);
  const int64_t N = weight.N, K = weight.K, num_groups = weight.num_groups();
  const int64_t num_words = N / kCodesPerWord;
  return {written_tensor(name + ".qweight", DType::kI32, {K, num_words},
                         interleaved(weight.codes, N, K)),
          written_tensor(name + ".qzeros", DType::kI32, {num_groups, num_words},
                         interleaved(weight.zeros, N, num_groups)),
          written_f16(name + ".scales", {num_groups, N}, transposed(weight.scales, N, num_groups))};
}

OrderedJson awq_declaration(const WrittenFormat& format) {
  reject_own_settings(format, "awq");
  const std::vector<std::string> dense = dense_layers(format);
  for (const WrittenLayer& layer : format.layers) {
    if (!layer.is_quantized) continue;
    for (const std::string& text : dense) {
      if (layer.name.find(text) == std::string::npos) continue;
      throw UnsupportedError(
          str("layer ", quote(layer.name),
              ": expected a name that contains no name of a layer left out, got ", quote(text),
              " in it. Leave this layer out, too, or quantize the other."));
    }
  }
  return {{"quant_method", "awq"},
          {"bits", format.bits},
          {"group_size", format.group_size == 0 ? -1 : format.group_size},
          {"zero_point", true},
          {"version", "gemm"},
          {"modules_to_not_convert", dense}};
}

}  // namespace halley
