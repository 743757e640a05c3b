// The weight layouts that GEMM kernels read, and a weight in one of them. Kernels know layouts, not
// checkpoint formats.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "halley/core/host_buffer.h"

namespace halley {

/// How the elements of W [N, K] lie in memory. The words that describe each layout are the contract
/// between packing and kernels.
enum class PackedLayout : uint8_t {
  /// [N, K], k fastest, dense.
  kF32RowMajor,
  /// Panels of kPanelRows output features: [ceil(N/32), K, 32] elements, n fastest inside a panel,
  /// so that one k of a panel is one or a few vectors. Features beyond N are zero.
  kF32Panel,
  /// As kF32Panel with f16 elements.
  kF16Panel,
  /// bf16 in pairs of k: [ceil(N/32), ceil(K/2), 32, 2], the pair fastest, which is what a
  /// bf16 dot-product instruction reads. Features beyond N and k beyond K are zero.
  kBf16PairPanel,
  /// Quantized values in quads: [ceil(N/32), ceil(K/32)] units, each of 32 features and 32 k, in
  /// which the value (n, k) is byte n * 4 + k % 4 of quad k / 4: 8 quads of 128 values. Values
  /// beyond N or K are zero. QuantParams dequantizes them; it calls a quantized value a code.
  ///
  /// 8 bits: a byte each, quad after quad; 1024 bytes a unit.
  kU8Quad,
  /// As kU8Quad with values of type e4m3 (finite variant).
  kF8E4M3Quad,
  /// 4 bits: 128 bytes for each pair of quads, the first in the low half; 512 bytes a unit.
  kU4Quad,
  /// 2 bits: 128 bytes for four quads, quad i in bits 2i and 2i + 1; 256 bytes a unit.
  kU2Quad,
  /// 3 bits: the low two bits of all values as in kU2Quad, then 128 bytes whose bit i is the high
  /// bit of quad i's value; 384 bytes a unit.
  kU3Quad,
  /// As kU4Quad with values of type e2m1 (core/float4.h).
  kE2m1Quad,
  /// Not quantized: f16 weights of magnitude at most 1.75, each as the two bytes of
  /// core/nested_float.h. Each panel holds the upper bytes of all its units, then the lower bytes,
  /// both as in kU8Quad; 2 * 1024 bytes a unit. No QuantParams. Low precision reads the first half.
  kNestedF16Quad,
};

/// Output features of one panel.
inline constexpr int64_t kPanelRows = 32;
/// Inputs of one unit of a quad layout.
inline constexpr int64_t kQuadUnitInputs = 32;
/// Quantized values of one quad: 4 inputs of a panel's features.
inline constexpr int64_t kQuadValues = 128;

const char* name_of(PackedLayout layout);
inline std::ostream& operator<<(std::ostream& out, PackedLayout layout) {
  return out << name_of(layout);
}

/// The value of a code of a quantized layout, for QuantParams.
double value_of(PackedLayout layout, uint8_t code);

/// Whether the values of a layout need QuantParams to be dequantized.
bool is_quantized(PackedLayout layout);
/// Whether weights in this layout hold two precisions.
bool has_low_precision(PackedLayout layout);

/// How dequantization uses a zero.
enum class ZeroKind : uint8_t {
  kPoint,   // w = scale * (code - zero), rounded once
  kOffset,  // w = scale * code - zero, rounded once
};

/// How a layer's input is quantized before the GEMM, as its checkpoint declares. Ties go to even;
/// s8 codes lie in [-128, 127], e4m3 codes saturate at 448. Every operation is one in f32. A row of
/// magnitudes below 2^-100 has codes of zero; a row with a NaN or an infinity gives NaN. Where
/// groups or blocks have scales of their own, this holds for each of them.
enum class ActivationQuant : uint8_t {
  kNone,
  kS8Token,       // per-token scale = max|x| / 127, code = round(x * (127 / max|x|))
  kS8Static,      // code = round(x * (1 / scale)) with one scale from the checkpoint
  kE4m3Token,     // per-token scale = max|x| / 448, code = e4m3(x * (448 / max|x|))
  kE4m3Group128,  // the same for each row and each 128 inputs
  kE4m3Static,    // code = e4m3(x * (1 / scale)) with one scale from the checkpoint
  /// One scale covers a row's block of 128 packed inputs (the last block may be shorter). A block
  /// that begins before num_s8_inputs is as kS8Token; the others have range = s4_clip * max|x|,
  /// scale = range / 7, code = round(x * (7 / range)) within [-8, 7], zero where the range is below
  /// 2^-100.
  kS4S8Block128,
};

const char* name_of(ActivationQuant activation);
inline std::ostream& operator<<(std::ostream& out, ActivationQuant activation) {
  return out << name_of(activation);
}

/// Dequantization of the codes of a quad layout.
struct QuantParams {
  /// Consecutive packed inputs that share a scale: 1 to K; K means per-channel scales. The last
  /// group may be shorter.
  int64_t group_size = 0;
  ZeroKind zero_kind = ZeroKind::kPoint;
  /// [ceil(N/32), ceil(K / group_size), 2, 32] f32: a panel's scales, then its zeros, for each
  /// group. Zero for features beyond N.
  HostBuffer groups;
  /// The permutation of act-order (g_idx): packed input k is x[input_perm[k]]. Empty: it is x[k].
  std::vector<int32_t> input_perm;
  /// Columns of x, where input_perm picks K of more; 0: x has K.
  int64_t num_inputs = 0;
  ActivationQuant activation = ActivationQuant::kNone;
  /// For the static kinds: finite and at least 2^-100. Any other value rounds everything to NaN, so
  /// that loading must reject it.
  float activation_scale = 0;
  /// For kS4S8Block128: a multiple of 128, or K. s4_clip lies in (0, 1]; any other value rounds the
  /// blocks of 4 bits to NaN.
  int64_t num_s8_inputs = 0;
  float s4_clip = 1;
};

/// One weight matrix W [N, K] = [out_features, in_features] in a kernel's layout. Move-only.
struct PackedWeight {
  PackedLayout layout = PackedLayout::kF16Panel;
  int64_t N = 0;
  int64_t K = 0;
  HostBuffer data;
  QuantParams quant;  // of quad layouts

  int64_t num_inputs() const { return quant.num_inputs == 0 ? K : quant.num_inputs; }  // of x
  int64_t num_groups() const;  // along K; quad layouts only
  /// The scales and zeros of one panel's group: 32 scales, then 32 zeros.
  const float* group(int64_t panel, int64_t group_index) const;
  /// All that a GEMM reads: quantized values, scales, zeros.
  size_t num_bytes() const { return data.num_bytes() + quant.groups.num_bytes(); }
};

/// Returns the bytes of `data` of a weight of this layout and size.
size_t packed_bytes(PackedLayout layout, int64_t N, int64_t K);
/// Returns the bytes of `quant.groups`.
size_t group_bytes(int64_t N, int64_t K, int64_t group_size);

}  // namespace halley
