#include "halley/quant/stored/byte_weight.h"

#include <algorithm>
#include <cstring>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

constexpr float kSignedOffset =
    128;  // added to signed values and their zero points, stored_weight.h

ScaleBlocks blocks_of(const LinearSpec::Part& part, int64_t in_features,
                      const ByteWeightSpec& spec) {
  return {.stored_rows = part.stored_rows,
          .in_features = in_features,
          .block_rows = std::min(spec.block_rows, std::max<int64_t>(1, part.stored_rows)),
          .group_size = std::min(spec.group_size, in_features)};
}

/// Whether one of the bytes is 0x7F or 0xFF, the NaNs of e4m3.
bool has_e4m3_nan(const std::byte* data, size_t num_bytes) {
  constexpr uint64_t kMagnitudes = 0x7F7F7F7F7F7F7F7Fu;
  // A magnitude of 0x7F becomes 0; adding 0x7F to any other sets the byte's top bit and never
  // carries into the next byte.
  uint64_t no_nan = ~kMagnitudes;
  size_t i = 0;
  for (; i + 8 <= num_bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, sizeof(word));
    no_nan &= ((word & kMagnitudes) ^ kMagnitudes) + kMagnitudes;
  }
  bool has_nan = no_nan != ~kMagnitudes;
  for (; i < num_bytes; ++i) has_nan |= (data[i] & std::byte{0x7F}) == std::byte{0x7F};
  return has_nan;
}

class ByteWeight : public StoredWeight {
 public:
  struct Data {
    std::string where;  // of the weight, for messages
    TensorView codes;   // the part's rows
    int64_t row_begin = 0;
    ScaleGrid scales;
    std::optional<ScaleGrid> zeros;
  };

  ByteWeight(WeightDesc desc, Data data)
      : StoredWeight(std::move(desc)),
        data_(std::move(data)),
        is_signed_(data_.codes.dtype == DType::kI8) {}

  void check_data() const override {
    data_.scales.check(data_.row_begin, data_.codes.shape[0]);
    if (is_signed_) return;
    const int64_t K = data_.codes.shape[1];
    for (int64_t n = 0; n < data_.codes.shape[0]; ++n) {
      const std::byte* row = data_.codes.data + n * K;
      if (has_e4m3_nan(row, static_cast<size_t>(K))) fail_nan(n, row, K);
    }
  }

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    read_byte_block(data_.codes, block, is_signed_ ? 0x80 : 0, quads);
  }

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    const int64_t begin = data_.row_begin + row_begin;
    data_.scales.read(begin, num_rows, 0.0f, groups);
    const float offset = is_signed_ ? kSignedOffset : 0.0f;
    if (data_.zeros) {
      data_.zeros->read(begin, num_rows, offset, groups + kPanelRows);
      return;
    }
    const int64_t num_groups = ceil_div(data_.codes.shape[1], desc().group_size);
    for (int64_t g = 0; g < num_groups; ++g) {
      std::fill_n(groups + (2 * g + 1) * kPanelRows, num_rows, offset);
    }
  }

 private:
  [[noreturn]] void fail_nan(int64_t n, const std::byte* row, int64_t K) const {
    const auto* found = std::find_if(
        row, row + K, [](std::byte b) { return (b & std::byte{0x7F}) == std::byte{0x7F}; });
    throw CheckpointError(str(data_.where, ": expected numbers, got NaN (code ",
                              static_cast<int>(*found), ") at [", data_.row_begin + n, ", ",
                              found - row,
                              "]. The file is damaged or was quantized wrongly: fetch it again, or "
                              "quantize the model again."));
  }

  Data data_;
  bool is_signed_;
};

}  // namespace

void read_byte_block(const TensorView& rows, const CodeBlock& block, uint8_t flip, uint8_t* quads) {
  const int64_t K = rows.shape[1];
  const uint32_t flip_quad = flip * 0x01010101u;
  const int64_t whole_end = block.k_begin + (block.k_end - block.k_begin) / 4 * 4;
  for (int64_t r = 0; r < block.num_rows; ++r) {
    const std::byte* row = rows.data + (block.row_begin + r) * K;
    uint8_t* to = quads + 4 * r;
    for (int64_t k = block.k_begin; k < whole_end; k += 4, to += kQuadValues) {
      uint32_t quad;
      std::memcpy(&quad, row + k, sizeof(quad));
      quad ^= flip_quad;
      std::memcpy(to, &quad, sizeof(quad));
    }
    for (int64_t k = whole_end; k < block.k_end; ++k) {
      to[k % 4] = static_cast<uint8_t>(row[k]) ^ flip;
    }
  }
}

double share_of(const TensorInfo& info, const LinearSpec::Part& part) {
  const auto num_rows = static_cast<double>(std::max<int64_t>(1, part.stored_rows));
  return static_cast<double>(info.num_bytes) * static_cast<double>(part.out_features) / num_rows;
}

std::unique_ptr<StoredWeight> open_byte_weight(const TensorSource& source,
                                               const LinearSpec::Part& part, int64_t in_features,
                                               const ByteWeightSpec& spec) {
  const ScaleBlocks blocks = blocks_of(part, in_features, spec);
  const TensorInfo& weight =
      find_tensor(source, part.name + ".weight", {spec.dtype}, {part.stored_rows, in_features});
  const TensorInfo& scale = find_scales(
      source, spec.scale_name, {DType::kF32, DType::kF16, DType::kBf16, DType::kF8E8M0}, blocks);
  ByteWeight::Data data = {
      .where = str(source.description(), ": tensor ", quote(weight.name)),
      .codes = source.view(weight).rows(part.row_begin, part.row_begin + part.out_features),
      .row_begin = part.row_begin,
      .scales = ScaleGrid(source, scale, blocks),
      .zeros = std::nullopt};
  WeightDesc desc;
  desc.format = spec.format;
  desc.stored_dtype = spec.dtype;
  desc.layout = spec.dtype == DType::kI8 ? PackedLayout::kU8Quad : PackedLayout::kF8E4M3Quad;
  desc.bits = 8;
  desc.group_size = blocks.group_size;
  desc.is_symmetric = spec.zero_name.empty();
  desc.activation = spec.activation;
  desc.tensor_names = {weight.name, scale.name};
  desc.stored_bytes = share_of(weight, part) + data.scales.bytes_of(part.out_features);
  if (!spec.zero_name.empty()) {
    const TensorInfo& zero = find_scales(source, spec.zero_name, {DType::kI8}, blocks);
    data.zeros.emplace(source, zero, blocks);
    desc.tensor_names.push_back(zero.name);
    desc.stored_bytes += data.zeros->bytes_of(part.out_features);
  }
  if (!spec.input_scale_name.empty()) {
    desc.activation_scale = read_input_scale(source, spec.input_scale_name);
    desc.tensor_names.push_back(spec.input_scale_name);
  }
  return std::make_unique<ByteWeight>(std::move(desc), std::move(data));
}

std::vector<TensorInfo> expected_byte_tensors(const LinearSpec::Part& part, int64_t in_features,
                                              const ByteWeightSpec& spec) {
  const ScaleBlocks blocks = blocks_of(part, in_features, spec);
  const Shape grid = {blocks.num_row_blocks(), blocks.num_groups()};
  std::vector<TensorInfo> infos = {
      info_of(part.name + ".weight", spec.dtype, {part.stored_rows, in_features}),
      info_of(spec.scale_name, DType::kF32, grid == Shape{1, 1} ? Shape{} : grid)};
  if (!spec.zero_name.empty()) infos.push_back(info_of(spec.zero_name, DType::kI8, grid));
  if (!spec.input_scale_name.empty()) {
    infos.push_back(info_of(spec.input_scale_name, DType::kF32, {}));
  }
  return infos;
}

}  // namespace halley
