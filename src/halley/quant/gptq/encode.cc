#include "halley/quant/gptq/encode.h"

#include <cctype>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/quant/base/written_tensors.h"

namespace halley {
namespace {

/// The kernels of the tools that read these files work on 32 of either.
constexpr int64_t kSizeMultiple = 32;

int64_t num_words(int64_t num_codes, int bits) { return ceil_div(num_codes * bits, int64_t{32}); }

int64_t declared_group(int64_t group_size) { return group_size == 0 ? -1 : group_size; }

/// A regular expression that matches this name alone.
std::string pattern_of(const std::string& name) {
  std::string pattern = "^";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) == 0 && c != '_') pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

}  // namespace

GptqStorage gptq_storage(bool has_zero_points) {
  return has_zero_points ? GptqStorage::kZero : GptqStorage::kZeroMinusOne;
}

std::vector<CheckpointTensor> encode_gptq(const std::string& name, const QuantizedWeight& weight,
                                          GptqStorage storage) {
  HALLEY_CHECK(storage != GptqStorage::kTiles, name);
  check_sizes(weight);
  require_bits(name, weight, {2, 3, 4, 8});
  require_multiple(name, "outputs (N)", weight.N, kSizeMultiple);
  require_multiple(name, "inputs (K)", weight.K, kSizeMultiple);
  require_whole_groups(name, weight);
  const int64_t N = weight.N, K = weight.K, num_groups = weight.num_groups();
  const int bits = weight.bits;

  std::vector<uint32_t> codes(static_cast<size_t>(num_words(K, bits) * N));
  for (int64_t n = 0; n < N; ++n) {
    const CodeWriter column = {.words = codes.data() + n, .stride = N, .bits = bits};
    const uint8_t* row = weight.codes.data() + n * K;
    for (int64_t k = 0; k < K; ++k) column.put(k, row[k]);
  }
  const uint32_t mask = (1u << bits) - 1;
  const uint32_t subtracted = storage == GptqStorage::kZeroMinusOne ? 1 : 0;
  const int64_t words_per_row = num_words(N, bits);
  std::vector<uint32_t> zeros(static_cast<size_t>(num_groups * words_per_row));
  for (int64_t g = 0; g < num_groups; ++g) {
    const CodeWriter row = {.words = zeros.data() + g * words_per_row, .bits = bits};
    for (int64_t n = 0; n < N; ++n) {
      const uint32_t zero = weight.zeros[static_cast<size_t>(n * num_groups + g)];
      row.put(n, (zero - subtracted) & mask);
    }
  }
  std::vector<int32_t> groups(static_cast<size_t>(K));
  for (int64_t k = 0; k < K; ++k) {
    groups[static_cast<size_t>(k)] = static_cast<int32_t>(weight.group_of(k));
  }
  return {written_tensor(name + ".qweight", DType::kI32, {num_words(K, bits), N}, codes),
          written_tensor(name + ".qzeros", DType::kI32, {num_groups, words_per_row}, zeros),
          written_f16(name + ".scales", {num_groups, N}, transposed(weight.scales, N, num_groups)),
          written_tensor(name + ".g_idx", DType::kI32, {K}, groups)};
}

OrderedJson gptq_declaration(const WrittenFormat& format) {
  OrderedJson declaration = {{"quant_method", "gptq"},
                             {"bits", format.bits},
                             {"group_size", declared_group(format.group_size)},
                             {"damp_percent", format.damp},
                             {"desc_act", format.has_act_order},
                             {"static_groups", format.has_static_groups},
                             {"sym", format.is_symmetric},
                             {"lm_head", false},
                             {"checkpoint_format", name_of(gptq_storage(format.has_zero_points))},
                             {"pack_dtype", "int32"}};
  OrderedJson rules = OrderedJson::object();
  for (const WrittenLayer& layer : format.layers) {
    if (layer.name == kOutputLayer) continue;
    if (!layer.is_quantized) {
      rules["-:" + pattern_of(layer.name)] = OrderedJson::object();
    } else if (has_own_settings(format, layer)) {
      rules["+:" + pattern_of(layer.name)] = {{"bits", layer.bits},
                                              {"group_size", declared_group(layer.group_size)},
                                              {"sym", layer.is_symmetric}};
    }
  }
  if (!rules.empty()) declaration["dynamic"] = std::move(rules);
  return declaration;
}

}  // namespace halley
