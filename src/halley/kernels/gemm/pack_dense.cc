#include "halley/kernels/gemm/pack_dense.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/kernels/gemm/pack_quads.h"

namespace halley {
namespace {

// The addresses of one panel's rows in the source; null for features beyond N.
using PanelSource = std::array<const std::byte*, kPanelRows>;

// Element, or pair of elements, `index` of every row side by side: out is [num_words][kPanelRows].
// The source need not be aligned.
template <typename Word>
void interleave(const PanelSource& rows, int64_t num_words, Word* out) {
  // Runs of 512 bytes of a row, so that the hardware reads ahead; the output of all rows' runs
  // stays in a first-level cache.
  constexpr int64_t kRunBytes = 512;
  constexpr auto kRun = kRunBytes / static_cast<int64_t>(sizeof(Word));
  for (int64_t begin = 0; begin < num_words; begin += kRun) {
    const int64_t end = std::min(num_words, begin + kRun);
    for (size_t row = 0; row < rows.size(); ++row) {
      Word* to = out + begin * kPanelRows + static_cast<int64_t>(row);
      if (rows[row] == nullptr) {
        for (int64_t i = begin; i < end; ++i, to += kPanelRows) *to = 0;
        continue;
      }
      const std::byte* from = rows[row] + begin * static_cast<int64_t>(sizeof(Word));
      if (num_words - end >= kRun) {
        for (int64_t line = 0; line < kRunBytes; line += 64) {
          __builtin_prefetch(from + kRunBytes + line);
        }
      }
      for (int64_t i = begin; i < end; ++i, to += kPanelRows, from += sizeof(Word)) {
        std::memcpy(to, from, sizeof(Word));
      }
    }
  }
}

void pack_panel(PackedLayout layout, const PanelSource& rows, int64_t K, std::byte* out) {
  switch (layout) {
    case PackedLayout::kF32Panel:
      return interleave(rows, K, reinterpret_cast<uint32_t*>(out));
    case PackedLayout::kF16Panel:
      return interleave(rows, K, reinterpret_cast<uint16_t*>(out));
    case PackedLayout::kBf16PairPanel: {
      auto* pairs = reinterpret_cast<uint32_t*>(out);
      interleave(rows, K / 2, pairs);
      if (K % 2 == 0) return;
      for (size_t row = 0; row < rows.size(); ++row) {
        uint16_t last[2] = {0, 0};
        if (rows[row] != nullptr) std::memcpy(&last[0], rows[row] + 2 * (K - 1), 2);
        std::memcpy(pairs + K / 2 * kPanelRows + static_cast<int64_t>(row), last, sizeof(last));
      }
      return;
    }
    default:
      break;
  }
  HALLEY_CHECK(false, layout);
}

int64_t rows_of(const TensorView& part) { return part.shape.at(0); }

}  // namespace

PackedLayout dense_layout_for(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return PackedLayout::kF32Panel;
    case DType::kF16:
      return PackedLayout::kF16Panel;
    case DType::kBf16:
      return PackedLayout::kBf16PairPanel;
    default:
      throw UnsupportedError(str("weights: expected f16, bf16 or f32, got ", name_of(dtype),
                                 ". Convert the checkpoint to one of these types."));
  }
}

PackedWeight pack_dense(ExecContext& context, std::span<const TensorView> parts) {
  HALLEY_CHECK(!parts.empty());
  PackedWeight weight;
  weight.layout = dense_layout_for(parts[0].dtype);
  weight.K = parts[0].shape.at(1);
  for (const TensorView& part : parts) {
    HALLEY_CHECK(part.shape.size() == 2 && part.shape[1] == weight.K, part.shape, weight.K);
    HALLEY_CHECK(part.dtype == parts[0].dtype, part.dtype, parts[0].dtype);
    weight.N += rows_of(part);
  }
  weight.data = HostBuffer(packed_bytes(weight.layout, weight.N, weight.K));
  const size_t panel_bytes = packed_bytes(weight.layout, kPanelRows, weight.K);
  const int64_t row_bytes = weight.K * (bits_of(parts[0].dtype) / 8);
  context.pool.run(ceil_div(weight.N, kPanelRows), [&](int64_t panel, int) {
    PanelSource rows{};
    int64_t part_begin = 0;
    for (const TensorView& part : parts) {
      const int64_t begin = std::max(part_begin, panel * kPanelRows);
      const int64_t end = std::min(part_begin + rows_of(part), (panel + 1) * kPanelRows);
      for (int64_t n = begin; n < end; ++n) {
        rows[static_cast<size_t>(n - panel * kPanelRows)] =
            part.data + (n - part_begin) * row_bytes;
      }
      part_begin += rows_of(part);
    }
    pack_panel(weight.layout, rows, weight.K,
               weight.data.data() + static_cast<size_t>(panel) * panel_bytes);
  });
  return weight;
}

void unpack_row(const PackedWeight& weight, int64_t n, float* out, Precision precision) {
  HALLEY_CHECK(0 <= n && n < weight.N, n, weight.N);
  if (is_quantized(weight.layout)) return unpack_quantized_row(weight, n, out);
  if (has_low_precision(weight.layout)) return unpack_nested_row(weight, n, precision, out);
  const int64_t K = weight.K;
  if (weight.layout == PackedLayout::kF32RowMajor) {
    std::memcpy(out, weight.data.data() + static_cast<size_t>(n * K) * sizeof(float),
                static_cast<size_t>(K) * sizeof(float));
    return;
  }
  const std::byte* panel = weight.data.data() + static_cast<size_t>(n / kPanelRows) *
                                                    packed_bytes(weight.layout, kPanelRows, K);
  const int64_t column = n % kPanelRows;
  switch (weight.layout) {
    case PackedLayout::kF32Panel:
      for (int64_t k = 0; k < K; ++k) {
        out[k] = reinterpret_cast<const float*>(panel)[k * kPanelRows + column];
      }
      return;
    case PackedLayout::kF16Panel:
      for (int64_t k = 0; k < K; ++k) {
        out[k] = f16_to_f32(reinterpret_cast<const uint16_t*>(panel)[k * kPanelRows + column]);
      }
      return;
    case PackedLayout::kBf16PairPanel:
      for (int64_t k = 0; k < K; ++k) {
        const int64_t pair = k / 2 * kPanelRows + column;
        out[k] = bf16_to_f32(reinterpret_cast<const uint16_t*>(panel)[2 * pair + k % 2]);
      }
      return;
    default:
      break;
  }
}

}  // namespace halley
