#include "halley/quant/gptq/gptq_weight.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/packed_weight.h"
#include "halley/quant/base/code_words.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/scale_tensor.h"
#include "halley/quant/gptq/gptq_zeros.h"

namespace halley {
namespace {

PackedLayout layout_of(int bits) {
  switch (bits) {
    case 2:
      return PackedLayout::kU2Quad;
    case 3:
      return PackedLayout::kU3Quad;
    case 4:
      return PackedLayout::kU4Quad;
    default:
      return PackedLayout::kU8Quad;
  }
}

/// Unpacks 32 inputs of each of `num_rows` outputs: kBits words each, words[w][row], packed along
/// the inputs.
template <int kBits>
void spread_unit(const uint32_t (*words)[kPanelRows], UnitCodes* codes) {
  if constexpr (kBits == 3) {
    // 96 bits, 12 of a quad.
    for (int64_t row = 0; row < kPanelRows; ++row) {
      const uint64_t low = words[0][row] | (uint64_t{words[1][row]} << 32);
      const uint64_t high = (low >> 48) | (uint64_t{words[2][row]} << 16);
      for (int quad = 0; quad < 4; ++quad) {
        codes->quads[quad][row] = spread_quad<3>(static_cast<uint32_t>(low >> (12 * quad)) & 0xFFF);
        codes->quads[quad + 4][row] =
            spread_quad<3>(static_cast<uint32_t>(high >> (12 * quad)) & 0xFFF);
      }
    }
  } else {
    constexpr int kQuadsPerWord = 8 / kBits;
    constexpr uint32_t kQuadMask = kBits == 8 ? ~uint32_t{0} : (1u << (4 * kBits % 32)) - 1;
    for (int word = 0; word < kBits; ++word) {
      for (int quad = 0; quad < kQuadsPerWord; ++quad) {
        uint32_t* to = codes->quads[word * kQuadsPerWord + quad];
        for (int64_t row = 0; row < kPanelRows; ++row) {
          const uint32_t bits = (words[word][row] >> (4 * kBits * quad)) & kQuadMask;
          to[row] = kBits == 8 ? bits : spread_quad<kBits>(bits);
        }
      }
    }
  }
}

/// How qzeros are read.
struct ZeroMeaning {
  uint32_t added = 0;  // to a stored zero point: 1 (gptq) or 0 (gptq_v2)
  bool is_symmetric = false;
  std::vector<std::string> warnings;
};

std::string mislabelled_zeros(const GptqLayerSource& layer, GptqStorage storage) {
  const GptqStorage label = layer.checkpoint.storage();
  const auto stored = [&](GptqStorage s) {
    return (1 << (layer.settings.bits - 1)) - (s == GptqStorage::kZeroMinusOne ? 1 : 0);
  };
  return str(tensor_message(layer, ".qzeros"), "expected ", stored(label),
             " in all fields, as field '", layer.checkpoint.field_path("checkpoint_format"), "' (",
             name_of(label), ") stores symmetric weights, got ", stored(storage), ", which is ",
             name_of(storage), ". Read as ", name_of(storage), "; correct the configuration.");
}

[[noreturn]] void reject_unsymmetric(const GptqLayerSource& layer, const ZeroCounts& counts) {
  const int64_t num_middle = std::max(counts.num_middle, counts.num_below_middle);
  throw CheckpointError(
      str(tensor_message(layer, ".qzeros"), "expected one zero point in the middle, since field '",
          layer.checkpoint.field_path("sym"), "' is true, got ", counts.num_fields - num_middle,
          " others among ", counts.num_fields,
          ". State sym false if the model was quantized so; else the file is damaged."));
}

std::string spoilt_zeros(const GptqLayerSource& layer, int64_t num_words) {
  return str(
      tensor_message(layer, ".qzeros"), "expected fields that were masked one by one, got ",
      num_words,
      " words in which a field of all ones is followed by nothing but ones: the mark of tools "
      "that spoil the rest of a word where a zero point is 0. Compare the model's quality, "
      "and quantize it again as gptq_v2 if it suffered.");
}

ZeroMeaning read_zero_meaning(const GptqLayerSource& layer, const TensorView& qzeros) {
  const GptqStorage label = layer.checkpoint.storage();
  GptqStorage storage = label;
  const ZeroCounts counts = count_zeros(qzeros, layer.settings.bits, layer.part.stored_rows);
  ZeroMeaning meaning;
  if (layer.settings.is_symmetric != false && counts.num_fields > 0) {
    const bool is_below = counts.num_below_middle == counts.num_fields;
    const bool is_middle = counts.num_middle == counts.num_fields;
    if (is_below) storage = GptqStorage::kZeroMinusOne;
    if (is_middle) storage = GptqStorage::kZero;
    meaning.is_symmetric = is_below || is_middle;
  }
  meaning.added = storage == GptqStorage::kZeroMinusOne ? 1 : 0;
  if (layer.settings.is_symmetric == true && !meaning.is_symmetric && counts.num_fields > 0) {
    reject_unsymmetric(layer, counts);
  }
  // Other parts of one stored tensor would repeat the warning.
  if (layer.part.row_begin != 0) return meaning;
  if (storage != label) meaning.warnings.push_back(mislabelled_zeros(layer, storage));
  const int64_t num_spoilt = counts.num_spoilt_words();
  if (meaning.added == 1 && !meaning.is_symmetric && num_spoilt > 0) {
    meaning.warnings.push_back(spoilt_zeros(layer, num_spoilt));
  }
  return meaning;
}

/// The permutation that sorts inputs by group, stably.
std::vector<int32_t> sort_by_group(const std::vector<int32_t>& group_of) {
  std::vector<int32_t> order(group_of.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return group_of[static_cast<size_t>(a)] < group_of[static_cast<size_t>(b)];
  });
  return order;
}

std::vector<int32_t> read_group_indices(const GptqLayerSource& layer, int64_t group_size,
                                        int64_t num_groups) {
  const int64_t K = layer.in_features;
  TensorInfo expected;
  expected.name = layer.part.name + ".g_idx";
  expected.dtype = DType::kI32;
  expected.shape = {K};
  const TensorView view = layer.source.view(find_stored(layer, expected));
  std::vector<int32_t> group_of(static_cast<size_t>(K));
  std::vector<int64_t> num_inputs(static_cast<size_t>(num_groups), 0);
  for (int64_t k = 0; k < K; ++k) {
    const auto group = load_word<int32_t>(view.data, k);
    if (group < 0 || group >= num_groups) {
      throw CheckpointError(str(tensor_message(layer, ".g_idx"), "expected a group in [0, ",
                                num_groups, "), got ", group, " at [", k,
                                "]. The file is damaged, or 'group_size' is not its own."));
    }
    group_of[static_cast<size_t>(k)] = group;
    ++num_inputs[static_cast<size_t>(group)];
  }
  for (int64_t group = 0; group < num_groups; ++group) {
    const int64_t expected_inputs = std::min(group_size, K - group * group_size);
    const int64_t got = num_inputs[static_cast<size_t>(group)];
    if (got == expected_inputs) continue;
    throw CheckpointError(str(tensor_message(layer, ".g_idx"), "expected ", expected_inputs,
                              " inputs in group ", group, ", got ", got,
                              ". The file is damaged, or 'group_size' is not its own."));
  }
  return group_of;
}

/// Reads g_idx as a permutation; empty where groups are consecutive.
std::vector<int32_t> read_perm(const GptqLayerSource& layer, int64_t group_size) {
  const auto& has_act_order = layer.settings.has_act_order;
  const bool needs_order = has_act_order == true && layer.settings.group_size != -1;
  if (!needs_order && layer.source.find(layer.part.name + ".g_idx") == nullptr) return {};
  const auto group_of =
      read_group_indices(layer, group_size, ceil_div(layer.in_features, group_size));
  if (std::is_sorted(group_of.begin(), group_of.end())) return {};
  if (has_act_order == false) {
    const auto index = std::is_sorted_until(group_of.begin(), group_of.end()) - group_of.begin();
    throw CheckpointError(str(
        tensor_message(layer, ".g_idx"), "expected groups in ascending order, since field '",
        layer.checkpoint.field_path("desc_act"), "' is false, got ",
        group_of[static_cast<size_t>(index)], " after ", group_of[static_cast<size_t>(index - 1)],
        " at [", index, "]. State desc_act true if the model was quantized so."));
  }
  return sort_by_group(group_of);
}

/// Views and facts of one layer, checked.
struct GptqParts {
  const TensorInfo* scales = nullptr;
  TensorView code_words, zero_words, scale_view;
  int bits = 0;
  uint32_t zero_added = 0;
  std::vector<int32_t> input_perm;
};

class GptqWeight : public StoredWeight {
 public:
  GptqWeight(const GptqLayerSource& layer, WeightDesc desc, GptqParts parts,
             std::vector<std::string> warnings)
      : StoredWeight(std::move(desc)),
        source_(layer.source),
        part_(layer.part),
        parts_(std::move(parts)) {
    for (std::string& text : warnings) warn(std::move(text));
  }

  void check_data() const override {
    check_scales(source_, part_.name, *parts_.scales,
                 {.row_begin = 0,
                  .row_end = parts_.scales->shape[0],
                  .column_begin = part_.row_begin,
                  .column_end = part_.row_begin + part_.out_features});
  }
  std::vector<int32_t> input_perm() const override { return parts_.input_perm; }
  void read_codes(const CodeBlock& block, uint8_t* quads) const override;
  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override;

 private:
  template <int kBits>
  void read_units(const CodeBlock& block, uint8_t* quads) const;

  const TensorSource& source_;
  LinearSpec::Part part_;
  GptqParts parts_;
};

template <int kBits>
void GptqWeight::read_units(const CodeBlock& block, uint8_t* quads) const {
  const int64_t num_features = part_.stored_rows;
  const int64_t column = part_.row_begin + block.row_begin;
  const auto row_bytes = static_cast<size_t>(block.num_rows) * 4;
  uint32_t words[kBits][kPanelRows] = {};
  UnitCodes codes;
  for (int64_t k = block.k_begin; k < block.k_end; k += kQuadUnitInputs) {
    const int64_t num_inputs = std::min(kQuadUnitInputs, block.k_end - k);
    const int64_t first_word = k / kQuadUnitInputs * kBits;
    const int64_t num_words = ceil_div(num_inputs * kBits, int64_t{32});
    for (int64_t word = 0; word < num_words; ++word) {
      std::memcpy(words[word],
                  parts_.code_words.data + ((first_word + word) * num_features + column) * 4,
                  row_bytes);
    }
    spread_unit<kBits>(words, &codes);
    codes.write(0, block.num_rows, num_inputs, quads);
    quads += kQuadUnitInputs / 4 * kQuadValues;
  }
}

void GptqWeight::read_codes(const CodeBlock& block, uint8_t* quads) const {
  switch (parts_.bits) {
    case 2:
      return read_units<2>(block, quads);
    case 3:
      return read_units<3>(block, quads);
    case 4:
      return read_units<4>(block, quads);
    default:
      return read_units<8>(block, quads);
  }
}

void GptqWeight::read_groups(int64_t row_begin, int64_t num_rows, float* groups) const {
  const int64_t column = part_.row_begin + row_begin;
  const int64_t num_groups = parts_.scale_view.shape[0];
  const int64_t words_per_row = parts_.zero_words.shape[1];
  const uint32_t mask = (1u << parts_.bits) - 1;
  for (int64_t group = 0; group < num_groups; ++group, groups += 2 * kPanelRows) {
    read_f32(parts_.scale_view, group * part_.stored_rows + column, num_rows, groups);
    const std::byte* words = parts_.zero_words.data + group * words_per_row * 4;
    for (int64_t row = 0; row < num_rows; ++row) {
      const uint32_t stored = code_of_stream(words, column + row, parts_.bits);
      groups[kPanelRows + row] = static_cast<float>((stored + parts_.zero_added) & mask);
    }
  }
}

}  // namespace

std::string tensor_message(const GptqLayerSource& layer, const char* ending) {
  return str(layer.source.description(), ": layer ", quote(layer.part.name), ": tensor ",
             quote(layer.part.name + ending), ": ");
}

const TensorInfo& find_stored(const GptqLayerSource& layer, const TensorInfo& expected) {
  try {
    if (expected.dtype == DType::kF16) {
      return find_dense_tensor(layer.source, expected.name, expected.shape);
    }
    return find_tensor(layer.source, expected.name, {expected.dtype}, expected.shape);
  } catch (const CheckpointError& error) {
    throw CheckpointError(str("layer ", quote(layer.part.name), " (bits ", layer.settings.bits,
                              ", group_size ", layer.settings.group_size, ", ", layer.in_features,
                              " inputs): ", error.what()));
  }
}

std::vector<TensorInfo> gptq_tensors(const LinearSpec::Part& part, int64_t in_features,
                                     const GptqLayerSettings& settings) {
  const int64_t N = part.stored_rows, K = in_features;
  const int64_t num_groups = ceil_div(K, settings.inputs_per_group(K));
  const auto words = [&](int64_t num_codes) {
    return ceil_div(num_codes * settings.bits, int64_t{32});
  };
  std::vector<TensorInfo> table(3);
  table[0].name = part.name + ".qweight";
  table[0].dtype = DType::kI32;
  table[0].shape = {words(K), N};
  table[1].name = part.name + ".qzeros";
  table[1].dtype = DType::kI32;
  table[1].shape = {num_groups, words(N)};
  table[2].name = part.name + ".scales";
  table[2].dtype = DType::kF16;
  table[2].shape = {num_groups, N};
  if (settings.has_act_order == true && settings.group_size != -1) {
    table.emplace_back();
    table[3].name = part.name + ".g_idx";
    table[3].dtype = DType::kI32;
    table[3].shape = {K};
  }
  return table;
}

WeightDesc describe_part(const GptqLayerSource& layer, const std::vector<TensorInfo>& table) {
  WeightDesc desc;
  desc.format = "gptq";
  desc.stored_dtype = DType::kI32;
  desc.layout = layout_of(layer.settings.bits);
  desc.bits = layer.settings.bits;
  desc.group_size = layer.settings.inputs_per_group(layer.in_features);
  double num_bytes = 0;
  for (const TensorInfo& entry : table) {
    const TensorInfo* info = layer.source.find(entry.name);
    if (info == nullptr) continue;
    desc.tensor_names.push_back(info->name);
    num_bytes += static_cast<double>(info->num_bytes);
  }
  const auto stored_rows = static_cast<double>(std::max<int64_t>(1, layer.part.stored_rows));
  desc.stored_bytes = num_bytes * static_cast<double>(layer.part.out_features) / stored_rows;
  return desc;
}

std::unique_ptr<StoredWeight> open_gptq_weight(const GptqLayerSource& layer) {
  std::vector<TensorInfo> table = gptq_tensors(layer.part, layer.in_features, layer.settings);
  GptqParts parts;
  parts.bits = layer.settings.bits;
  parts.code_words = layer.source.view(find_stored(layer, table[0]));
  parts.zero_words = layer.source.view(find_stored(layer, table[1]));
  parts.scales = &find_stored(layer, table[2]);
  parts.scale_view = layer.source.view(*parts.scales);
  ZeroMeaning zeros = read_zero_meaning(layer, parts.zero_words);
  parts.zero_added = zeros.added;
  // Tools write a g_idx even where it is trivial.
  table.resize(4);
  table[3].name = layer.part.name + ".g_idx";
  WeightDesc desc = describe_part(layer, table);
  parts.input_perm = read_perm(layer, desc.group_size);
  desc.is_symmetric = zeros.is_symmetric;
  desc.has_input_perm = !parts.input_perm.empty();
  // Layers that share their input usually have the same g_idx: they are joined.
  if (desc.has_input_perm) {
    desc.declared_perm = std::make_shared<const std::vector<int32_t>>(parts.input_perm);
  }
  return std::make_unique<GptqWeight>(layer, std::move(desc), std::move(parts),
                                      std::move(zeros.warnings));
}

}  // namespace halley
