#include "halley/quant/compressed_tensors/packed_rows.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/compressed_tensors/compressed_tensors.h"
#include "halley/quant/stored/byte_weight.h"
#include "halley/quant/stored/part_tensors.h"
#include "halley/quant/stored/scale_grid.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

uint32_t load_word(const std::byte* data, int64_t index) {
  uint32_t word;
  std::memcpy(&word, data + index * 4, sizeof(word));
  return word;
}

/// Unpacks four codes of a dense stream, the first in the low bits, to a byte each.
template <int kBits>
uint32_t spread_quad(uint32_t codes) {
  if constexpr (kBits == 8) return codes;
  constexpr uint32_t kPair = (1u << (2 * kBits)) - 1;
  constexpr uint32_t kOne = (1u << kBits) - 1;
  const uint32_t pairs = (codes & kPair) | ((codes & (kPair << (2 * kBits))) << (16 - 2 * kBits));
  return (pairs & (kOne * 0x00010001u)) |
         ((pairs & ((kOne << kBits) * 0x00010001u)) << (8 - kBits));
}

/// The four codes of quad `quad` of a row, low bits first; reads no byte that holds none of them.
template <int kBits>
uint32_t load_quad(const std::byte* row, int64_t quad) {
  if constexpr (kBits == 8) return load_word(row, quad);
  if constexpr (kBits == 2) return static_cast<uint32_t>(row[quad]);
  const int64_t first_bit = quad * 4 * kBits;
  uint16_t half;
  std::memcpy(&half, row + first_bit / 8, sizeof(half));
  return uint32_t{half} >> (first_bit % 8);
}

/// Value `index` of `stride`-spaced words: words of one row (stride 1) or of one column.
struct WordStream {
  const std::byte* words = nullptr;
  int64_t stride = 1;
  int bits = 4;
  WordPacking packing = WordPacking::kDense;

  uint8_t value(int64_t index) const {
    const uint32_t mask = (1u << bits) - 1;
    if (packing == WordPacking::kPadded) {
      const int64_t per_word = 32 / bits;
      const uint32_t word = load_word(words, index / per_word * stride);
      return static_cast<uint8_t>((word >> (index % per_word * bits)) & mask);
    }
    const int64_t first_bit = index * bits;
    const int64_t shift = first_bit % 32;
    uint64_t both = load_word(words, first_bit / 32 * stride);
    if (shift + bits > 32) {
      both |= uint64_t{load_word(words, (first_bit / 32 + 1) * stride)} << 32;
    }
    return static_cast<uint8_t>((both >> shift) & mask);
  }
};

PackedLayout layout_of(int bits) {
  if (bits == 2) return PackedLayout::kU2Quad;
  if (bits == 3) return PackedLayout::kU3Quad;
  return bits == 4 ? PackedLayout::kU4Quad : PackedLayout::kU8Quad;
}

class PackedRows : public StoredWeight {
 public:
  struct Data {
    std::string where;  // of weight_g_idx, for messages
    TensorView words;   // [stored_rows, words]
    WordPacking packing = WordPacking::kDense;
    int64_t row_begin = 0;
    int64_t num_rows = 0;  // of the part
    int64_t K = 0;
    ScaleGrid scales;
    std::optional<TensorView> zeros;  // [words along N, groups]
    std::optional<TensorView> group_index;
  };

  PackedRows(WeightDesc desc, Data data) : StoredWeight(std::move(desc)), data_(std::move(data)) {}

  void check_data() const override {
    data_.scales.check(data_.row_begin, data_.num_rows);
    if (data_.group_index) check_group_index();
  }

  std::vector<int32_t> input_perm() const override {
    if (!data_.group_index) return {};
    std::vector<int32_t> order(static_cast<size_t>(data_.K));
    for (size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int32_t>(k);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return group_of(a) < group_of(b); });
    return order;
  }

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    if (data_.packing == WordPacking::kPadded) return read_padded(block, quads);
    switch (desc().bits) {
      case 2:
        return read_dense<2>(block, quads);
      case 3:
        return read_dense<3>(block, quads);
      case 4:
        return read_dense<4>(block, quads);
      default:
        return read_dense<8>(block, quads);
    }
  }

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    const int64_t begin = data_.row_begin + row_begin;
    data_.scales.read(begin, num_rows, 0.0f, groups);
    const int64_t num_groups = ceil_div(data_.K, desc().group_size);
    const auto middle = static_cast<float>(1 << (desc().bits - 1));
    for (int64_t g = 0; g < num_groups; ++g) {
      float* zeros = groups + (2 * g + 1) * kPanelRows;
      if (!data_.zeros) {
        std::fill_n(zeros, num_rows, middle);
        continue;
      }
      const WordStream column = {.words = data_.zeros->data + g * 4,
                                 .stride = num_groups,
                                 .bits = desc().bits,
                                 .packing = data_.packing};
      for (int64_t r = 0; r < num_rows; ++r) zeros[r] = column.value(begin + r);
    }
  }

 private:
  const std::byte* row_words(int64_t row) const {
    return data_.words.data + (data_.row_begin + row) * data_.words.shape[1] * 4;
  }

  int32_t group_of(int64_t k) const {
    return static_cast<int32_t>(load_word(data_.group_index->data, k));
  }

  template <int kBits>
  void read_dense(const CodeBlock& block, uint8_t* quads) const {
    const int64_t quad_begin = block.k_begin / 4, quad_end = block.k_end / 4;
    for (int64_t r = 0; r < block.num_rows; ++r) {
      const std::byte* row = row_words(block.row_begin + r);
      uint8_t* to = quads + 4 * r;
      for (int64_t quad = quad_begin; quad < quad_end; ++quad, to += kQuadValues) {
        const uint32_t codes = spread_quad<kBits>(load_quad<kBits>(row, quad));
        std::memcpy(to, &codes, sizeof(codes));
      }
      const WordStream stream = {.words = row, .stride = 1, .bits = kBits};
      for (int64_t k = quad_end * 4; k < block.k_end; ++k) to[k % 4] = stream.value(k);
    }
  }

  /// The first code of a block may begin anywhere in its word.
  void read_padded(const CodeBlock& block, uint8_t* quads) const {
    const int bits = desc().bits;
    const int per_word = 32 / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t r = 0; r < block.num_rows; ++r) {
      const std::byte* row = row_words(block.row_begin + r);
      int64_t next_word = block.k_begin / per_word;
      const auto used = static_cast<int>(block.k_begin % per_word);
      int left = per_word - used;
      uint32_t word = load_word(row, next_word++) >> (used * bits);
      uint8_t* to = quads + 4 * r;
      for (int64_t k = block.k_begin; k < block.k_end; ++k) {
        if (left == 0) {
          word = load_word(row, next_word++);
          left = per_word;
        }
        to[k % 4] = static_cast<uint8_t>(word & mask);
        word >>= bits;
        --left;
        if (k % 4 == 3) to += kQuadValues;
      }
    }
  }

  void check_group_index() const {
    const int64_t G = desc().group_size;
    const int64_t num_groups = ceil_div(data_.K, G);
    std::vector<int64_t> counts(static_cast<size_t>(num_groups));
    for (int64_t k = 0; k < data_.K; ++k) {
      const int32_t group = group_of(k);
      if (group < 0 || group >= num_groups) {
        throw CheckpointError(str(data_.where, ": expected groups in [0, ", num_groups, "), got ",
                                  group, " at ", k, kDamaged));
      }
      ++counts[static_cast<size_t>(group)];
    }
    for (int64_t g = 0; g < num_groups; ++g) {
      const int64_t expected = std::min(G, data_.K - g * G);
      if (counts[static_cast<size_t>(g)] == expected) continue;
      throw CheckpointError(str(data_.where, ": expected ", expected, " inputs of group ", g,
                                ", got ", counts[static_cast<size_t>(g)], kDamaged));
    }
  }

  static constexpr const char* kDamaged =
      ". The file is damaged or was quantized wrongly: fetch it again, or quantize the model "
      "again.";

  Data data_;
};

ScaleBlocks blocks_of(const Part& part, int64_t in_features, const GroupScheme& scheme) {
  const bool is_grouped = scheme.group_size > 0 && scheme.group_size < in_features;
  return {.stored_rows = part.stored_rows,
          .in_features = in_features,
          .block_rows = scheme.block_rows > 0 ? 1 : std::max<int64_t>(1, part.stored_rows),
          .group_size = is_grouped ? scheme.group_size : in_features};
}

/// The packing that fits the number of a tensor's words, or nothing where both fit.
std::optional<WordPacking> packing_of(int64_t words, int64_t count, int bits) {
  const bool is_dense = words == num_words(count, bits, WordPacking::kDense);
  const bool is_padded = words == num_words(count, bits, WordPacking::kPadded);
  if (is_dense == is_padded) return std::nullopt;
  return is_dense ? WordPacking::kDense : WordPacking::kPadded;
}

/// The packing by the weight's words, else by the zero points' words.
WordPacking find_packing(const TensorSource& source, const Part& part, int64_t in_features,
                         const GroupScheme& scheme) {
  const int bits = scheme.bits;
  const int64_t per_word = 32 / bits;
  if (32 % bits == 0) return WordPacking::kDense;
  const TensorInfo* words = source.find(part.name + ".weight_packed");
  if (words == nullptr || words->shape.size() != 2) return WordPacking::kDense;
  if (const auto found = packing_of(words->shape[1], in_features, bits)) return *found;
  const bool fits = words->shape[1] == num_words(in_features, bits, WordPacking::kDense);
  const TensorInfo* zeros = source.find(part.name + ".weight_zero_point");
  if (!scheme.is_symmetric && zeros != nullptr && zeros->shape.size() == 2) {
    if (const auto found = packing_of(zeros->shape[0], part.stored_rows, bits)) return *found;
  }
  const bool is_one_word =
      in_features <= per_word && (scheme.is_symmetric || part.stored_rows <= per_word);
  if (!fits || is_one_word) return WordPacking::kDense;
  throw UnsupportedError(str(source.description(), ": tensor ", quote(words->name),
                             ": expected a number of words that tells how ", bits,
                             " bits are packed, got ", words->shape[1], " for ", in_features,
                             " inputs, which dense and padded words both have. Quantize the model "
                             "again with 4 bits."));
}

constexpr const char* kShapeSuffix = ".weight_shape";

/// weight_shape repeats the shape before packing.
void check_shape_tensor(const TensorSource& source, const Part& part, int64_t in_features) {
  const std::string name = part.name + kShapeSuffix;
  const TensorInfo* stored = source.find(name);
  if (stored == nullptr) return;
  const TensorInfo& info = find_tensor(source, name, {DType::kI64, DType::kI32}, {2});
  const TensorView view = source.view(info);
  Shape got;
  for (int64_t i = 0; i < 2; ++i) {
    int64_t size = static_cast<int32_t>(load_word(view.data, i));
    if (info.dtype == DType::kI64) std::memcpy(&size, view.data + i * 8, sizeof(size));
    got.push_back(size);
  }
  const Shape expected = {part.stored_rows, in_features};
  if (got == expected) return;
  throw CheckpointError(str(source.description(), ": tensor ", quote(name), ": expected ", expected,
                            ", got ", got, ". Check that config.json belongs to these weights."));
}

/// Throws where a tensor that changes the meaning of others is present and not declared.
void reject_undeclared_tensors(const TensorSource& source, const Part& part,
                               const GroupScheme& scheme) {
  reject_undeclared_tensor(source, part.name + ".weight", "weight_packed is there");
  if (scheme.is_symmetric) {
    reject_undeclared_tensor(source, part.name + ".weight_zero_point",
                             str("'", scheme.path, "' is symmetric"));
  }
  if (!scheme.has_input_perm) {
    reject_undeclared_tensor(source, part.name + ".weight_g_idx",
                             str("'", scheme.path, "' has no actorder \"group\""));
  }
}

}  // namespace

int64_t num_words(int64_t count, int bits, WordPacking packing) {
  return packing == WordPacking::kDense ? ceil_div(count * bits, int64_t{32})
                                        : ceil_div(count, int64_t{32 / bits});
}

std::unique_ptr<StoredWeight> open_packed_rows(const TensorSource& source, const Part& part,
                                               int64_t in_features, const GroupScheme& scheme) {
  const ScaleBlocks blocks = blocks_of(part, in_features, scheme);
  const WordPacking packing = find_packing(source, part, in_features, scheme);
  const TensorInfo& words =
      find_tensor(source, part.name + ".weight_packed", {DType::kI32},
                  {part.stored_rows, num_words(in_features, scheme.bits, packing)});
  const TensorInfo& scale = find_scales(source, part.name + ".weight_scale",
                                        {DType::kF32, DType::kF16, DType::kBf16}, blocks);
  check_shape_tensor(source, part, in_features);
  PackedRows::Data data = {
      .where = str(source.description(), ": tensor ", quote(part.name + ".weight_g_idx")),
      .words = source.view(words),
      .packing = packing,
      .row_begin = part.row_begin,
      .num_rows = part.out_features,
      .K = in_features,
      .scales = ScaleGrid(source, scale, blocks),
      .zeros = std::nullopt,
      .group_index = std::nullopt};
  WeightDesc desc;
  desc.format = kQuantCompressedTensors.name;
  desc.stored_dtype = DType::kI32;
  desc.layout = layout_of(scheme.bits);
  desc.bits = scheme.bits;
  desc.group_size = blocks.group_size;
  desc.is_symmetric = scheme.is_symmetric;
  desc.has_input_perm = scheme.has_input_perm;
  desc.activation = scheme.activation;
  desc.tensor_names = {words.name, scale.name};
  const std::string shape_name = part.name + kShapeSuffix;
  if (source.find(shape_name) != nullptr) desc.tensor_names.push_back(shape_name);
  desc.stored_bytes = share_of(words, part) + data.scales.bytes_of(part.out_features);
  reject_undeclared_tensors(source, part, scheme);
  if (!scheme.is_symmetric) {
    const TensorInfo& zero =
        find_tensor(source, part.name + ".weight_zero_point", {DType::kI32},
                    {num_words(part.stored_rows, scheme.bits, packing), blocks.num_groups()});
    data.zeros = source.view(zero);
    desc.tensor_names.push_back(zero.name);
    desc.stored_bytes += share_of(zero, part);
  }
  if (scheme.has_input_perm) {
    const TensorInfo& index =
        find_tensor(source, part.name + ".weight_g_idx", {DType::kI32}, {in_features});
    data.group_index = source.view(index);
    desc.tensor_names.push_back(index.name);
    desc.stored_bytes += share_of(index, part);
  }
  if (scheme.activation == ActivationQuant::kS8Static ||
      scheme.activation == ActivationQuant::kE4m3Static) {
    desc.tensor_names.push_back(part.name + ".input_scale");
    desc.activation_scale = read_input_scale(source, desc.tensor_names.back());
  }
  return std::make_unique<PackedRows>(std::move(desc), std::move(data));
}

std::vector<TensorInfo> expected_packed_tensors(const Part& part, int64_t in_features,
                                                const GroupScheme& scheme) {
  const ScaleBlocks blocks = blocks_of(part, in_features, scheme);
  const auto words = [&](int64_t count) {
    return num_words(count, scheme.bits, WordPacking::kDense);
  };
  std::vector<TensorInfo> infos = {
      info_of(part.name + ".weight_packed", DType::kI32, {part.stored_rows, words(in_features)}),
      info_of(part.name + ".weight_scale", DType::kF16,
              {blocks.num_row_blocks(), blocks.num_groups()})};
  if (!scheme.is_symmetric) {
    infos.push_back(info_of(part.name + ".weight_zero_point", DType::kI32,
                            {words(part.stored_rows), blocks.num_groups()}));
  }
  if (scheme.has_input_perm) {
    infos.push_back(info_of(part.name + ".weight_g_idx", DType::kI32, {in_features}));
  }
  return infos;
}

}  // namespace halley
