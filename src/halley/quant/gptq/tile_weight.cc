#include "halley/quant/gptq/tile_weight.h"

#include <algorithm>
#include <array>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/code_words.h"
#include "halley/quant/base/scale_tensor.h"

namespace halley {
namespace {

constexpr int64_t kTileInputs = 16;
constexpr int64_t kTileFeatures = 64;
constexpr int64_t kTileWords = kTileInputs * kTileFeatures / 8;
constexpr float kZeroPoint = 8;

/// Four words of a tile hold an output's 16 inputs, word i the inputs 2i, 2i + 1, 2i + 8 and 2i
/// + 9. They lie kWordStride words apart, with words of other lanes between.
constexpr int64_t kWordStride = 4;

int64_t first_word_of(int64_t feature_in_tile) {
  const int64_t part = feature_in_tile / 16;  // which of four 16 x 16 parts
  return 16 * (feature_in_tile % 8) + part;
}

/// Two outputs share each word: the second, 8 outputs on, has nibbles 2, 3, 6 and 7.
int shift_of(int64_t feature_in_tile) { return static_cast<int>(feature_in_tile / 8 % 2 * 8); }

/// Unpacks nibbles 0 and 4 of `word`, the codes of two consecutive inputs, to a byte each.
uint32_t pair_of(uint32_t word) {
  const uint32_t apart = word & 0x000F000Fu;
  return (apart | (apart >> 8)) & 0xFFFFu;
}

void read_tile(const std::byte* tile, int64_t feature_in_tile, uint32_t quads[4]) {
  std::array<uint32_t, 4> words;
  const int64_t first = first_word_of(feature_in_tile);
  for (int64_t i = 0; i < 4; ++i) {
    words[static_cast<size_t>(i)] =
        load_word<uint32_t>(tile, first + kWordStride * i) >> shift_of(feature_in_tile);
  }
  quads[0] = pair_of(words[0]) | (pair_of(words[1]) << 16);
  quads[1] = pair_of(words[2]) | (pair_of(words[3]) << 16);
  quads[2] = pair_of(words[0] >> 4) | (pair_of(words[1] >> 4) << 16);
  quads[3] = pair_of(words[2] >> 4) | (pair_of(words[3] >> 4) << 16);
}

/// The column of output n's scale.
int64_t scale_column(int64_t n, int64_t num_groups) {
  if (num_groups == 1) {  // runs of 32 features in the order 0 1 8 9 16 17 24 25, 2 3 10 11 ...
    const int64_t in_run = n % 32;
    return n - in_run + in_run % 8 / 2 * 8 + in_run / 8 * 2 + in_run % 2;
  }
  // Runs of 64 features in the order 0 8 16 24 32 40 48 56, 1 9 17 ...
  const int64_t in_run = n % 64;
  return n - in_run + in_run % 8 * 8 + in_run / 8;
}

class TileWeight : public StoredWeight {
 public:
  TileWeight(const GptqLayerSource& layer, WeightDesc desc, const TensorInfo& codes,
             const TensorInfo& scales)
      : StoredWeight(std::move(desc)),
        source_(layer.source),
        part_(layer.part),
        scales_(scales),
        code_words_(layer.source.view(codes)),
        scale_view_(layer.source.view(scales)) {}

  /// Checks all stored scales: those of a part are scattered.
  void check_data() const override {
    check_scales(source_, part_.name, scales_,
                 {.row_begin = 0,
                  .row_end = scales_.shape[0],
                  .column_begin = 0,
                  .column_end = scales_.shape[1]});
  }
  void read_codes(const CodeBlock& block, uint8_t* quads) const override;
  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override;

 private:
  const TensorSource& source_;
  LinearSpec::Part part_;
  const TensorInfo& scales_;
  TensorView code_words_, scale_view_;
};

void TileWeight::read_codes(const CodeBlock& block, uint8_t* quads) const {
  const int64_t tiles_per_row = part_.stored_rows / kTileFeatures;
  UnitCodes codes;
  for (int64_t k = block.k_begin; k < block.k_end; k += kQuadUnitInputs) {
    const int64_t num_inputs = std::min(kQuadUnitInputs, block.k_end - k);
    for (int64_t tile = 0; tile < ceil_div(num_inputs, kTileInputs); ++tile) {
      const int64_t tile_row = k / kTileInputs + tile;
      for (int64_t row = 0; row < block.num_rows; ++row) {
        const int64_t feature = part_.row_begin + block.row_begin + row;
        const int64_t index = tile_row * tiles_per_row + feature / kTileFeatures;
        std::array<uint32_t, 4> four;
        read_tile(code_words_.data + index * kTileWords * 4, feature % kTileFeatures, four.data());
        for (int64_t quad = 0; quad < 4; ++quad) {
          codes.quads[4 * tile + quad][row] = four[static_cast<size_t>(quad)];
        }
      }
    }
    codes.write(0, block.num_rows, num_inputs, quads);
    quads += kQuadUnitInputs / 4 * kQuadValues;
  }
}

void TileWeight::read_groups(int64_t row_begin, int64_t num_rows, float* groups) const {
  const int64_t num_groups = scale_view_.shape[0];
  for (int64_t group = 0; group < num_groups; ++group, groups += 2 * kPanelRows) {
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t column = scale_column(part_.row_begin + row_begin + row, num_groups);
      read_f32(scale_view_, group * part_.stored_rows + column, 1, groups + row);
      groups[kPanelRows + row] = kZeroPoint;
    }
  }
}

}  // namespace

std::vector<TensorInfo> tile_tensors(const LinearSpec::Part& part, int64_t in_features,
                                     const GptqLayerSettings& settings, TileNames names) {
  const int64_t N = part.stored_rows, K = in_features;
  if (N % kTileFeatures != 0 || K % kTileInputs != 0) {
    throw UnsupportedError(str("layer ", quote(part.name),
                               ": expected sizes of whole Marlin tiles, a multiple of ",
                               kTileFeatures, " outputs and of ", kTileInputs, " inputs, got ", N,
                               " and ", K, ". Use a checkpoint of checkpoint_format gptq."));
  }
  const bool is_short = names == TileNames::kShort;
  std::vector<TensorInfo> table(2);
  table[0].name = part.name + (is_short ? ".B" : ".qweight");
  table[0].dtype = DType::kI32;
  table[0].shape = {K / kTileInputs, N * kTileInputs / 8};
  table[1].name = part.name + (is_short ? ".s" : ".scales");
  table[1].dtype = DType::kF16;
  table[1].shape = {ceil_div(K, settings.inputs_per_group(K)), N};
  return table;
}

std::unique_ptr<StoredWeight> open_tile_weight(const GptqLayerSource& layer) {
  const bool is_short = layer.source.find(layer.part.name + ".B") != nullptr;
  const std::vector<TensorInfo> table =
      tile_tensors(layer.part, layer.in_features, layer.settings,
                   is_short ? TileNames::kShort : TileNames::kLong);
  const TensorInfo& codes = find_stored(layer, table[0]);
  const TensorInfo& scales = find_stored(layer, table[1]);
  return std::make_unique<TileWeight>(layer, describe_part(layer, table), codes, scales);
}

}  // namespace halley
