#include "halley/quant/awq/awq_weight.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/packed_weight.h"
#include "halley/quant/base/code_words.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/scale_tensor.h"

namespace halley {
namespace {

constexpr float kMiddle = 8;  // the zero point of symmetric weights
constexpr int64_t kCodesPerWord = 8;
constexpr int64_t kTurns = 4;        // outputs interleaved in the words of a row
constexpr int64_t kTurnInputs = 64;  // consecutive inputs of one output
constexpr int kBits = 4;
/// Prefetch distance of ByInputWeight; more lines would evict each other from a cache whose sets a
/// power-of-two stride uses unevenly.
constexpr int64_t kPrefetchInputs = 16;

/// Version gemm: output 8c + i of word c is nibble kNibbleOf[i].
constexpr std::array<int, 8> kNibbleOf = {0, 4, 1, 5, 2, 6, 3, 7};

/// Views of one layer's tensors, checked.
struct AwqParts {
  const TensorInfo* scales = nullptr;
  const TensorInfo* zeros = nullptr;  // null where the weights are symmetric
  TensorView code_words, scale_view, zero_view;
  int64_t num_groups = 0;
};

class AwqWeight : public StoredWeight {
 public:
  AwqWeight(const AwqLayerSource& layer, WeightDesc desc, AwqParts parts)
      : StoredWeight(std::move(desc)),
        source_(layer.source),
        part_(layer.part),
        in_features_(layer.in_features),
        parts_(std::move(parts)) {}

 protected:
  int64_t stored_row(int64_t row) const { return part_.row_begin + row; }

  const TensorSource& source_;
  LinearSpec::Part part_;
  int64_t in_features_;
  AwqParts parts_;
};

// ---- version gemm: qweight [K, N/8], qzeros [G, N/8], scales [G, N]
// ---------------------------------

class ByInputWeight : public AwqWeight {
 public:
  using AwqWeight::AwqWeight;

  void check_data() const override {
    check_scales(source_, part_.name, *parts_.scales,
                 {.row_begin = 0,
                  .row_end = parts_.num_groups,
                  .column_begin = part_.row_begin,
                  .column_end = part_.row_begin + part_.out_features});
  }
  void read_codes(const CodeBlock& block, uint8_t* quads) const override;
  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override;
};

/// Unpacks eight outputs of four inputs, two words of each input at once, the first in the low
/// half.
void spread_features(const uint64_t* words, uint32_t* features) {
  constexpr uint64_t kNibbles = 0x0F0F0F0F0F0F0F0Fu;
  constexpr uint64_t kBytes = 0x00FF00FF00FF00FFu;
  constexpr uint64_t kPairs = 0x0000FFFF0000FFFFu;
  // Nibbles 0, 2, 4, 6 are features 0, 4, 1, 5; the others 2, 6, 3, 7.
  for (int half = 0; half < 2; ++half, features += 2) {
    const int shift = kBits * half;
    const uint64_t a = (words[0] >> shift) & kNibbles, b = (words[1] >> shift) & kNibbles;
    const uint64_t c = (words[2] >> shift) & kNibbles, d = (words[3] >> shift) & kNibbles;
    // Transposes 4 x 4 bytes: first bytes in pairs, then pairs.
    const uint64_t even_ab = (a & kBytes) | ((b & kBytes) << 8);
    const uint64_t even_cd = (c & kBytes) | ((d & kBytes) << 8);
    const uint64_t odd_ab = ((a >> 8) & kBytes) | (b & ~kBytes);
    const uint64_t odd_cd = ((c >> 8) & kBytes) | (d & ~kBytes);
    const auto put = [features](int64_t feature, uint64_t quads) {
      features[feature] = static_cast<uint32_t>(quads);
      features[feature + kCodesPerWord] = static_cast<uint32_t>(quads >> 32);
    };
    put(0, (even_ab & kPairs) | ((even_cd & kPairs) << 16));
    put(4, (odd_ab & kPairs) | ((odd_cd & kPairs) << 16));
    put(1, ((even_ab >> 16) & kPairs) | (even_cd & ~kPairs));
    put(5, ((odd_ab >> 16) & kPairs) | (odd_cd & ~kPairs));
  }
}

void ByInputWeight::read_codes(const CodeBlock& block, uint8_t* quads) const {
  const int64_t input_bytes = part_.stored_rows / kCodesPerWord * 4;
  const int64_t row_begin = stored_row(block.row_begin);
  const int64_t first_word = row_begin / kCodesPerWord;
  const int64_t num_words = ceil_div(row_begin + block.num_rows, kCodesPerWord) - first_word;
  const std::byte* words_of_rows = parts_.code_words.data + first_word * 4;
  // Rows that begin within a word take parts of up to five, and words come in pairs.
  uint32_t features[kPanelRows + 2 * kCodesPerWord];
  const uint32_t* rows = features + row_begin % kCodesPerWord;
  const auto row_bytes = static_cast<size_t>(block.num_rows) * 4;
  for (int64_t k = block.k_begin; k < block.k_end; k += 4) {
    const int64_t num_inputs = std::min<int64_t>(4, block.k_end - k);
    const std::byte* inputs = words_of_rows + k * input_bytes;
    // Each input lies about a page further, which hardware prefetchers do not follow.
    for (int64_t i = k + kPrefetchInputs; i < std::min(k + kPrefetchInputs + 4, in_features_);
         ++i) {
      __builtin_prefetch(words_of_rows + i * input_bytes);
    }
    for (int64_t word = 0; word < num_words; word += 2) {
      uint64_t words[4] = {};
      for (int64_t i = 0; i < num_inputs; ++i) {
        const std::byte* from = inputs + i * input_bytes + word * 4;
        words[i] =
            word + 1 < num_words ? load_word<uint64_t>(from, 0) : load_word<uint32_t>(from, 0);
      }
      spread_features(words, features + word * kCodesPerWord);
    }
    uint8_t* out = quads + (k - block.k_begin) / 4 * kQuadValues;
    if (num_inputs == 4) {
      std::memcpy(out, rows, row_bytes);
      continue;
    }
    for (int64_t row = 0; row < block.num_rows; ++row) {
      std::memcpy(out + 4 * row, rows + row, static_cast<size_t>(num_inputs));
    }
  }
}

void ByInputWeight::read_groups(int64_t row_begin, int64_t num_rows, float* groups) const {
  const int64_t column = stored_row(row_begin);
  for (int64_t group = 0; group < parts_.num_groups; ++group, groups += 2 * kPanelRows) {
    read_f32(parts_.scale_view, group * part_.stored_rows + column, num_rows, groups);
    for (int64_t row = 0; row < num_rows; ++row) {
      float zero = kMiddle;
      if (parts_.zeros != nullptr) {
        const int64_t n = column + row;
        const auto word = load_word<uint32_t>(parts_.zero_view.data,
                                              (group * part_.stored_rows + n) / kCodesPerWord);
        const int nibble = kNibbleOf[static_cast<size_t>(n % kCodesPerWord)];
        zero = static_cast<float>((word >> (kBits * nibble)) & 15u);
      }
      groups[kPanelRows + row] = zero;
    }
  }
}

// ---- by feature: qweight [N, K/8], qzeros [N, W], scales [N, 8W] --------------------------------

class ByFeatureWeight : public AwqWeight {
 public:
  using AwqWeight::AwqWeight;

  void check_data() const override {
    check_scales(source_, part_.name, *parts_.scales,
                 {.row_begin = part_.row_begin,
                  .row_end = part_.row_begin + part_.out_features,
                  .column_begin = 0,
                  .column_end = parts_.num_groups});
  }
  void read_codes(const CodeBlock& block, uint8_t* quads) const override;
  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override;
};

void ByFeatureWeight::read_codes(const CodeBlock& block, uint8_t* quads) const {
  const int64_t words_per_row = in_features_ / kCodesPerWord;
  UnitCodes codes;
  for (int64_t k = block.k_begin; k < block.k_end; k += kQuadUnitInputs) {
    const int64_t num_inputs = std::min(kQuadUnitInputs, block.k_end - k);
    for (int64_t row = 0; row < block.num_rows; ++row) {
      const int64_t first = stored_row(block.row_begin + row) * words_per_row + k / kCodesPerWord;
      for (int64_t i = 0; i < ceil_div(num_inputs, kCodesPerWord); ++i) {
        const auto word = load_word<uint32_t>(parts_.code_words.data, first + i);
        codes.quads[2 * i][row] = spread_quad<kBits>(word & 0xFFFFu);
        codes.quads[2 * i + 1][row] = spread_quad<kBits>(word >> 16);
      }
    }
    codes.write(0, block.num_rows, num_inputs, quads);
    quads += kQuadUnitInputs / 4 * kQuadValues;
  }
}

void ByFeatureWeight::read_groups(int64_t row_begin, int64_t num_rows, float* groups) const {
  const int64_t scales_per_row = parts_.scale_view.shape[1];
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t n = stored_row(row_begin + row);
    read_f32(parts_.scale_view, n * scales_per_row, parts_.num_groups, groups + row,
             2 * kPanelRows);
    for (int64_t group = 0; group < parts_.num_groups; ++group) {
      const bool has_zeros = parts_.zeros != nullptr;
      groups[group * 2 * kPanelRows + kPanelRows + row] =
          has_zeros ? static_cast<float>(
                          code_of_stream(parts_.zero_view.data, n * scales_per_row + group, kBits))
                    : kMiddle;
    }
  }
}

// ---- interleaved: qweight i16 [N/4, K], scales and scaled zeros [8W, N] -------------------------

class InterleavedWeight : public AwqWeight {
 public:
  using AwqWeight::AwqWeight;

  void check_data() const override {
    const MatrixRange range = {.row_begin = 0,
                               .row_end = parts_.num_groups,
                               .column_begin = part_.row_begin,
                               .column_end = part_.row_begin + part_.out_features};
    check_scales(source_, part_.name, *parts_.scales, range);
    if (parts_.zeros != nullptr) check_scaled_zeros(source_, part_.name, *parts_.zeros, range);
  }
  void read_codes(const CodeBlock& block, uint8_t* quads) const override;
  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override;
};

void InterleavedWeight::read_codes(const CodeBlock& block, uint8_t* quads) const {
  UnitCodes codes;
  for (int64_t k = block.k_begin; k < block.k_end; k += kQuadUnitInputs) {
    const int64_t num_inputs = std::min(kQuadUnitInputs, block.k_end - k);
    for (int64_t row = 0; row < block.num_rows; ++row) {
      const int64_t n = stored_row(block.row_begin + row);
      // 32 inputs of a feature are eight words; word j has the inputs j, j + 8, j + 16, j + 24.
      const int64_t first_word = n / kTurns * in_features_ + k / kTurnInputs * kTurnInputs +
                                 n % kTurns * (kTurnInputs / kTurns) +
                                 k % kTurnInputs / kQuadUnitInputs * 8;
      for (int64_t half = 0; half < 2; ++half) {
        const auto words = load_word<uint64_t>(parts_.code_words.data + first_word * 2, half);
        for (int nibble = 0; nibble < 4; ++nibble) {
          const uint64_t apart = (words >> (kBits * nibble)) & 0x000F000F000F000Fu;
          const uint64_t pairs = (apart | (apart >> 8)) & 0x0000FFFF0000FFFFu;
          codes.quads[2 * nibble + half][row] = static_cast<uint32_t>(pairs | (pairs >> 16));
        }
      }
    }
    codes.write(0, block.num_rows, num_inputs, quads);
    quads += kQuadUnitInputs / 4 * kQuadValues;
  }
}

/// The file stores -(scale * zero), rounded: w = scale * code - (-stored).
void InterleavedWeight::read_groups(int64_t row_begin, int64_t num_rows, float* groups) const {
  for (int64_t group = 0; group < parts_.num_groups; ++group, groups += 2 * kPanelRows) {
    const int64_t begin = group * part_.stored_rows + stored_row(row_begin);
    read_f32(parts_.scale_view, begin, num_rows, groups);
    float* zeros = groups + kPanelRows;
    if (parts_.zeros == nullptr) {
      std::fill_n(zeros, num_rows, kMiddle);
      continue;
    }
    read_f32(parts_.zero_view, begin, num_rows, zeros);
    for (int64_t row = 0; row < num_rows; ++row) zeros[row] = -zeros[row];
  }
}

// ---- which of them ------------------------------------------------------------------------------

/// Words of zero points of an output in the layouts that pad them.
int64_t padded_words(int64_t num_groups, int64_t group_size) {
  const int64_t unit = group_size >= 128 ? 1 : group_size >= 64 ? 2 : 4;
  return round_up(ceil_div(num_groups, kCodesPerWord), unit);
}

void check_sizes(const LinearSpec::Part& part, int64_t in_features, const AwqSettings& settings,
                 AwqStorage storage) {
  const auto fail = [&](const std::string& text) {
    throw CheckpointError(str("layer ", quote(part.name), ": ", text));
  };
  if (in_features % settings.inputs_per_group(in_features) != 0) {
    fail(str("field '", settings.field_path("group_size"), "': expected a divisor of the layer's ",
             in_features, " inputs, got ", settings.group_size(),
             ". State the group size that its tool used."));
  }
  const bool is_interleaved = storage == AwqStorage::kInterleaved;
  const int64_t rows = storage == AwqStorage::kByFeature ? 1 : is_interleaved ? kTurns : 8;
  const int64_t inputs = storage == AwqStorage::kByInput ? 1 : is_interleaved ? kTurnInputs : 8;
  if (part.stored_rows % rows != 0 || in_features % inputs != 0) {
    fail(str("expected sizes that version ", name_of(storage), " can hold, a multiple of ", rows,
             " outputs and of ", inputs, " inputs, got ", part.stored_rows, " and ", in_features,
             ". Check that config.json belongs to these weights."));
  }
}

bool is_there(const TensorSource& source, const TensorInfo& entry) {
  const TensorInfo* info = source.find(entry.name);
  return info != nullptr && info->dtype == entry.dtype && info->shape == entry.shape;
}

/// Whether qweight and zeros have the shapes and types of the layout.
bool fits(const AwqLayerSource& layer, AwqStorage storage) {
  try {
    const auto table = awq_tensors(layer.part, layer.in_features, layer.checkpoint, storage);
    return is_there(layer.source, table[0]) &&
           (table.size() < 3 || storage == AwqStorage::kInterleaved ||
            is_there(layer.source, table[2]));
  } catch (const CheckpointError&) {
    return false;  // the layout does not hold these sizes
  }
}

AwqStorage decide_storage(const AwqLayerSource& layer) {
  const std::optional<AwqStorage> declared = layer.checkpoint.storage();
  if (declared && fits(layer, *declared)) return *declared;
  for (const AwqStorage other :
       {AwqStorage::kByInput, AwqStorage::kByFeature, AwqStorage::kInterleaved}) {
    if (!fits(layer, other)) continue;
    if (!declared) return other;
    const TensorInfo& codes = *layer.source.find(layer.part.name + ".qweight");
    throw CheckpointError(str(layer.source.description(), ": layer ", quote(layer.part.name),
                              ": tensor ", quote(codes.name), ": expected the layout that field '",
                              layer.checkpoint.storage_field(), "' says, ", name_of(*declared),
                              ", got ", codes.dtype, " ", codes.shape, ", which is ",
                              name_of(other), ". Correct the field."));
  }
  return declared.value_or(AwqStorage::kByInput);  // whose tensors are then found missing or wrong
}

const TensorInfo& find_stored(const AwqLayerSource& layer, const TensorInfo& expected) {
  try {
    if (expected.dtype == DType::kF16) {
      return find_dense_tensor(layer.source, expected.name, expected.shape);
    }
    return find_tensor(layer.source, expected.name, {expected.dtype}, expected.shape);
  } catch (const CheckpointError& error) {
    throw CheckpointError(str("layer ", quote(layer.part.name), " (group_size ",
                              layer.checkpoint.group_size(), ", ", layer.in_features,
                              " inputs): ", error.what()));
  }
}

/// llm-awq calls the scaled zeros by another name, and does not pad scales and zeros.
void adapt_to_llm_awq(const AwqLayerSource& layer, std::vector<TensorInfo>* table) {
  const TensorInfo* scales = layer.source.find((*table)[1].name);
  const int64_t num_groups =
      layer.in_features / layer.checkpoint.inputs_per_group(layer.in_features);
  const Shape unpadded = {round_up(num_groups, kCodesPerWord), layer.part.stored_rows};
  const bool is_unpadded = scales != nullptr && scales->shape == unpadded;
  for (size_t i = 1; i < table->size(); ++i) {
    if (is_unpadded) (*table)[i].shape = unpadded;
  }
  const std::string other_name = layer.part.name + ".scaled_zeros";
  const bool is_renamed = table->size() > 2 && layer.source.find((*table)[2].name) == nullptr &&
                          layer.source.find(other_name) != nullptr;
  if (is_renamed) (*table)[2].name = other_name;
}

void check_no_zeros(const AwqLayerSource& layer) {
  for (const char* ending : {".qzeros", ".scaled_zeros"}) {
    const std::string name = layer.part.name + ending;
    if (layer.source.find(name) == nullptr) continue;
    throw CheckpointError(str(layer.source.description(), ": layer ", quote(layer.part.name),
                              ": expected no zero points, since field '",
                              layer.checkpoint.field_path("zero_point"), "' is false, got tensor ",
                              quote(name), ". Correct the field."));
  }
}

WeightDesc describe_part(const AwqLayerSource& layer, const std::vector<TensorInfo>& table) {
  WeightDesc desc;
  desc.format = "awq";
  desc.stored_dtype = table[0].dtype;
  desc.layout = PackedLayout::kU4Quad;
  desc.bits = kBits;
  desc.group_size = layer.checkpoint.inputs_per_group(layer.in_features);
  desc.is_symmetric = table.size() < 3;
  double num_bytes = 0;
  for (const TensorInfo& entry : table) {
    desc.tensor_names.push_back(entry.name);
    num_bytes += static_cast<double>(layer.source.find(entry.name)->num_bytes);
  }
  const auto stored_rows = static_cast<double>(std::max<int64_t>(1, layer.part.stored_rows));
  desc.stored_bytes = num_bytes * static_cast<double>(layer.part.out_features) / stored_rows;
  return desc;
}

}  // namespace

std::vector<TensorInfo> awq_tensors(const LinearSpec::Part& part, int64_t in_features,
                                    const AwqSettings& settings, AwqStorage storage) {
  check_sizes(part, in_features, settings, storage);
  const int64_t N = part.stored_rows, K = in_features;
  const int64_t group_size = settings.inputs_per_group(K);
  const int64_t num_groups = K / group_size;
  const int64_t width = padded_words(num_groups, group_size);
  std::vector<TensorInfo> table;
  switch (storage) {
    case AwqStorage::kByInput:
      table = {info_of(".qweight", DType::kI32, {K, N / kCodesPerWord}),
               info_of(".scales", DType::kF16, {num_groups, N}),
               info_of(".qzeros", DType::kI32, {num_groups, N / kCodesPerWord})};
      break;
    case AwqStorage::kByFeature:
      table = {info_of(".qweight", DType::kI32, {N, K / kCodesPerWord}),
               info_of(".scales", DType::kF16, {N, width * kCodesPerWord}),
               info_of(".qzeros", DType::kI32, {N, width})};
      break;
    case AwqStorage::kInterleaved:
      table = {info_of(".qweight", DType::kI16, {N / kTurns, K}),
               info_of(".scales", DType::kF16, {width * kCodesPerWord, N}),
               info_of(".qzeros", DType::kF16, {width * kCodesPerWord, N})};
      break;
  }
  if (!settings.has_zero_points()) table.pop_back();
  for (TensorInfo& info : table) info.name = part.name + info.name;
  return table;
}

std::unique_ptr<StoredWeight> open_awq_weight(const AwqLayerSource& layer) {
  const AwqStorage storage = decide_storage(layer);
  if (!layer.checkpoint.has_zero_points()) check_no_zeros(layer);
  auto table = awq_tensors(layer.part, layer.in_features, layer.checkpoint, storage);
  if (storage == AwqStorage::kInterleaved) adapt_to_llm_awq(layer, &table);
  AwqParts parts;
  parts.code_words = layer.source.view(find_stored(layer, table[0]));
  parts.scales = &find_stored(layer, table[1]);
  parts.scale_view = layer.source.view(*parts.scales);
  if (table.size() > 2) {
    parts.zeros = &find_stored(layer, table[2]);
    parts.zero_view = layer.source.view(*parts.zeros);
  }
  WeightDesc desc = describe_part(layer, table);
  parts.num_groups = layer.in_features / desc.group_size;
  switch (storage) {
    case AwqStorage::kByInput:
      return std::make_unique<ByInputWeight>(layer, std::move(desc), std::move(parts));
    case AwqStorage::kByFeature:
      return std::make_unique<ByFeatureWeight>(layer, std::move(desc), std::move(parts));
    default:
      if (parts.zeros != nullptr) desc.zero_kind = ZeroKind::kOffset;
      return std::make_unique<InterleavedWeight>(layer, std::move(desc), std::move(parts));
  }
}

}  // namespace halley
