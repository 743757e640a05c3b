// What the integer dot-product GEMM consists of: a core that multiplies codes by digits of x, the
// floating-point work around it, and the division of the work. Internal to kernels/gemm.
//
// Along K there are spans of 128 inputs, and in each span blocks: inputs that share a scale of the
// weight. A row of x becomes integers once per call. For s8 activations they are the codes of
// quantize_s8(), one digit; for blocks of s8 and s4 activations also, with a scale of each span,
// the activations' own block. Otherwise x is rounded, block by block, to a fixed point of 21 bits,
//   x = scale * (d2 * 128^2 + d1 * 128 + d0) with digits in [-64, 64), scale = max|x| / kFixedMax,
// or of 16 bits: x = scale * (d1 * 256 + d0) with digits in [-128, 128), max|x| / kFixedMax16.
// Codes times digits are summed exactly in integers over a block; then, for each row and feature,
//   t_d = sum_d - zero * (sum of the digits d of x)        (exact in f32 for zeros that are codes)
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
/// The smallest block: vectors of x hold 8 inputs, and codes of 4 bits come in pairs of quads.
inline constexpr int64_t kBlockInputsMin = 8;
inline constexpr int64_t kBlocksPerSpanMax = kSpanInputs / kBlockInputsMin;

/// Digits of rows of x that one register tile takes: 2 rows of 3 digits, 3 of 2, or 6 of one.
inline constexpr int64_t kTileDigitRows = 6;
inline constexpr int64_t kFixedDigits = 3;
/// The largest number whose digits all lie in [-64, 63].
inline constexpr int32_t kFixedMax = 63 * (128 * 128 + 128 + 1);
/// The same for 16 bits: two digits in [-128, 127].
inline constexpr int32_t kFixedMax16 = 127 * (256 + 1);

/// Inputs of a block of a weight: kSpanInputs where its groups allow it, otherwise the largest part
/// of a span that no border of a group divides.
int64_t block_inputs(int64_t group_size, int64_t K);

/// R rows of digits times the codes of a panel, over num_pairs pairs of quads: sums [R, kPanelRows]
/// are set. codes and sums are aligned to 64 bytes.
struct DotArgs {
  const uint8_t* codes;   // as kU8Quad, or as kU4Quad
  const uint32_t* words;  // [num_pairs * 2 * words_per_quad, R]
  int64_t num_pairs;      // at least 1
  int64_t flush_pairs;    // so many cannot overflow a core that adds up in 16 bits
  int32_t* sums;
  /// So far ahead of the codes memory is brought into the second-level cache meanwhile; for codes
  /// that are read in place.
  int64_t ahead_bytes;
};

/// Exact sums of products of codes and digits, for one instruction set.
struct DotCore {
  const char* name;
  /// Words of 4 bytes of one digit's quad: 1, the 4 digits as s8, or 2, the digits 0 and 2, then 1
  /// and 3, as s16.
  int64_t words_per_quad;
  using Rows = std::array<void (*)(const DotArgs& args), kTileDigitRows>;
  Rows multiply_bytes;  // [R - 1]
  /// The same in place, for a panel that is used only once. Null where codes have other sizes.
  const Rows* multiply_u4;
};

/// One row of x to be made digits. Word w of span s of digit row d goes to
/// words[s * span_stride + w * word_stride + d].
struct RowDigits {
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
};

/// What a row's block is multiplied by, and the sums of its digits, as f32, all exact.
struct BlockFactors {
  float scale;     // of the fixed point, or of the span's codes; 1 where the row has one scale
  float high_sum;  // of the highest digit; 0 for codes
  float low_sum;   // of the rest: d1 * 128 + d0, d0, or the codes
};

/// Sums of one block of a tile, to be added to y [num_rows, kPanelRows].
struct BlockSums {
  const int32_t* sums;  // [num_rows, digits, kPanelRows]; the digit of the highest value first
  const float* group;   // kPanelRows scales, kPanelRows zeros
  ZeroKind zero_kind;
  const BlockFactors* factors;  // of each row
  int64_t num_rows;
  float* y;
};

/// One row of the table of kernels.
struct DotKernel {
  int64_t num_digits;  // kFixedDigits, 2, or 1 for codes of activations
  const DotCore& (*core)();
  int64_t flush_pairs;
  bool is_u4;        // the packed codes are what multiply_u4 reads
  bool is_in_place;  // unpack() copies nothing
  /// Codes of num_units units as bytes: in `scratch` (kSpanQuads * kQuadValues bytes), or in place.
  const uint8_t* (*unpack)(const std::byte* packed, int64_t num_units, uint8_t* scratch);
  /// Returns the row's factor of y: 1, or the scale of its s8 codes.
  float (*make_digits)(const RowDigits& row);
  void (*add_block)(const BlockSums& block);
};

/// y = x W^T + bias with one kernel, on all threads of the context.
void run(const DotKernel& kernel, ExecContext& context, const PackedWeight& weight,
         const float* bias, ConstMatrix x, Matrix y);

/// The kernels for this machine, or for the target that Highway's dispatch was set to.
const DotKernel& w2a21_kernel();
const DotKernel& w3a21_kernel();
const DotKernel& w4a21_kernel();
const DotKernel& w4a16_kernel();
const DotKernel& w4a8_kernel();
const DotKernel& w4ax_kernel();
const DotKernel& w8a8_kernel();

/// Cores for codes of up to 4 bits, and of 8, with the instructions of the dispatch's target.
const DotCore& narrow_core();
const DotCore& wide_core();
/// The core with the AVX512-VNNI instructions, for all codes; call only where has_avx512_vnni().
const DotCore& vnni_core();
bool has_avx512_vnni();

}  // namespace halley::dot_gemm
