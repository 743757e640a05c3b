// The parts of the integer dot-product GEMM: a core that multiplies quantized weights by int8
// slices of x, the floating-point work around it, and the work partition. Internal to kernels/gemm.
//
// Along K there are spans of 128 inputs, and in each span blocks: inputs that share a scale of the
// weight. A row of x becomes integers once per call. s8 activations are the values of
// quantize_s8(), one slice; so are blocks of s8 and s4 activations, with a scale for each span, the
// activations' own block. Otherwise x is rounded, block by block, to a fixed point of 21 bits,
//   x = scale * (d2 * 128^2 + d1 * 128 + d0) with slices in [-64, 64), scale = max|x| / kFixedMax,
// or of 16 bits: x = scale * (d1 * 256 + d0) with slices in [-128, 128), max|x| / kFixedMax16.
// Weights times slices are accumulated exactly in integers over a block; then, for each row and
// feature,
//   t_d = sum_d - zero * (sum of the slices d of x)        (exact in f32 for integer zeros)
//   y += (scale * (t2 * 128^2 + (t1 * 128 + t0))) * weight_scale
// or its counterpart for ZeroKind::kOffset. y is one chain over the blocks, so that no division of
// rows, panels or threads changes a bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"

namespace halley::dot_gemm {

inline constexpr int64_t kSpanInputs = 128;
inline constexpr int64_t kSpanQuads = kSpanInputs / 4;
inline constexpr int64_t kSpanUnits = kSpanInputs / kQuadUnitInputs;
/// The smallest block: vectors of x hold 8 inputs, and weights of 4 bits come in pairs of quads.
inline constexpr int64_t kBlockInputsMin = 8;
inline constexpr int64_t kBlocksPerSpanMax = kSpanInputs / kBlockInputsMin;

/// Rows of int8 slices in one register tile: 2 rows of x with 3 slices, 3 with 2, or 6 with one.
inline constexpr int64_t kTileSliceRows = 6;
inline constexpr int64_t kFixedSlices = 3;
/// The largest integer whose slices all lie in [-64, 63].
inline constexpr int32_t kFixedMax = 63 * (128 * 128 + 128 + 1);
/// The same for 16 bits: two slices in [-128, 127].
inline constexpr int32_t kFixedMax16 = 127 * (256 + 1);

/// Inputs of a block of a weight: kSpanInputs where its groups allow it, otherwise the largest part
/// of a span that no border of a group divides.
int64_t block_inputs(int64_t group_size, int64_t K);

/// R rows of slices times the weights of a panel, over num_pairs pairs of quads: sets acc [R,
/// kPanelRows]. weights and acc are aligned to 64 bytes.
struct DotArgs {
  const uint8_t* weights;  // as kU8Quad, or as kU4Quad
  const uint32_t* words;   // [num_pairs * 2 * words_per_quad, R]
  int64_t num_pairs;       // at least 1
  int64_t flush_pairs;     // so many cannot overflow a core that accumulates in 16 bits
  int32_t* acc;
  /// Distance of the prefetch into the second-level cache; for weights that are read in place.
  int64_t ahead_bytes;
};

/// Exact dot products of quantized weights and slices, for one instruction set.
struct DotCore {
  const char* name;
  /// Words of 4 bytes of one slice's quad: 1, the 4 slices as s8, or 2, the slices 0 and 2, then 1
  /// and 3, as s16.
  int64_t words_per_quad;
  using Rows = std::array<void (*)(const DotArgs& args), kTileSliceRows>;
  Rows multiply_bytes;  // [R - 1]
  /// The same in place, for a panel that is used only once. Null unless weights have 4 bits.
  const Rows* multiply_u4;
};

/// One row of x to be cut into slices. Word w of span s of slice row d goes to words[s *
/// span_stride + w * word_stride + d].
struct RowSlices {
  const float* x = nullptr;
  const QuantParams* quant = nullptr;
  int64_t K = 0;
  int64_t block_inputs = 0;
  int64_t words_per_quad = 1;
  uint32_t* words = nullptr;
  int64_t word_stride = 0;
  int64_t span_stride = 0;
  struct BlockFactors* factors = nullptr;  // block b's at factors[b * factors_stride]
  int64_t factors_stride = 0;
  float magnitude = 0;  // ExecContext::row_magnitude()
};

/// The scale of a row's block, and the sums of its slices for the zero points, as f32, all exact.
struct BlockFactors {
  float scale;     // of the fixed point, or of the span; 1 where the row has one scale
  float high_sum;  // of the highest slice; 0 for quantized activations
  float low_sum;   // of the rest: d1 * 128 + d0, d0, or the only slice
};

/// Accumulators of one block of a tile, to be scaled and added to y [num_rows, kPanelRows].
struct BlockAccumulators {
  const int32_t* acc;  // [num_rows, slices, kPanelRows]; the slice of the highest value first
  const float* group;  // kPanelRows scales, kPanelRows zeros
  ZeroKind zero_kind;
  const BlockFactors* factors;  // of each row
  int64_t num_rows;
  float* y;
};

/// One row of the table of kernels.
struct DotKernel {
  int64_t num_slices;  // kFixedSlices, 2, or 1 for quantized activations
  const DotCore& (*core)();
  int64_t flush_pairs;
  bool is_u4;        // multiply_u4 can read the packed weights
  bool is_in_place;  // unpack() copies nothing
  /// The weights of num_units units as bytes: in `scratch` (kSpanQuads * kQuadValues bytes), or in
  /// place.
  const uint8_t* (*unpack)(const std::byte* packed, int64_t num_units, uint8_t* scratch);
  /// Returns the row's factor of y: 1, or its per-token scale.
  float (*make_slices)(const RowSlices& row);
  void (*add_block)(const BlockAccumulators& block);
};

/// y = x W^T + bias with one kernel, on all threads of the context.
void run(const DotKernel& kernel, ExecContext& context, const PackedWeight& weight,
         const float* bias, ConstMatrix x, Matrix y);

/// Each returns the kernel for this machine, or for the target that Highway's dispatch was set to.
const DotKernel& w2a21_kernel();
const DotKernel& w3a21_kernel();
const DotKernel& w4a21_kernel();
const DotKernel& w4a16_kernel();
const DotKernel& w4a8_kernel();
const DotKernel& w4ax_kernel();
const DotKernel& w8a8_kernel();

/// Each returns a core with the instructions of the dispatch's target: for weights of up to 4 bits,
/// and of 8.
const DotCore& narrow_core();
const DotCore& wide_core();
/// The core with the AVX512-VNNI instructions, for weights of any size; call only where
/// has_avx512_vnni().
const DotCore& vnni_core();
bool has_avx512_vnni();

}  // namespace halley::dot_gemm
