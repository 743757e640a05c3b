// The work around the cores of the integer dot-product GEMM: weights unpacked to bytes, rows of x
// cut into int8 slices, exact accumulators scaled into y. Compiled once for each of Highway's
// targets.
#if defined(HALLEY_KERNELS_GEMM_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HALLEY_KERNELS_GEMM_DOT_TILE_INL_H_
#undef HALLEY_KERNELS_GEMM_DOT_TILE_INL_H_
#else
#define HALLEY_KERNELS_GEMM_DOT_TILE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <hwy/highway.h>

#include "halley/kernels/gemm/activation_step.h"
#include "halley/kernels/gemm/dot_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace halley::dot_gemm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---- Weights ----

// Four quantized weights in each lane; shifts cross bytes, and the mask removes what came across.
using QuantWords = hn::CappedTag<uint32_t, 16>;
using QuantVec = hn::Vec<QuantWords>;
constexpr int64_t kQuantBytes = static_cast<int64_t>(hn::MaxLanes(QuantWords())) * 4;

HWY_INLINE QuantVec load_quantized(const std::byte* from) {
  return hn::Load(QuantWords(), reinterpret_cast<const uint32_t*>(from));
}
HWY_INLINE void store_quantized(QuantVec weights, uint8_t* to) {
  hn::Store(weights, QuantWords(), reinterpret_cast<uint32_t*>(to));
}

struct FourBits {
  static constexpr int64_t kBits = 4;
  static HWY_INLINE void unpack(const std::byte* unit, uint8_t* quads) {
    const auto mask = hn::Set(QuantWords(), 0x0F0F0F0F);
    for (int64_t byte = 0; byte < 4 * kQuadValues; byte += kQuantBytes) {
      const QuantVec packed = load_quantized(unit + byte);
      uint8_t* to = quads + byte / kQuadValues * 2 * kQuadValues + byte % kQuadValues;
      store_quantized(hn::And(packed, mask), to);
      store_quantized(hn::And(hn::ShiftRight<4>(packed), mask), to + kQuadValues);
    }
  }
};

// The low two bits of quad kQuad of four; with the high bit, of quad kQuad of the unit.
template <int kQuad>
HWY_INLINE QuantVec two_bits(QuantVec packed) {
  return hn::And(hn::ShiftRight<2 * kQuad>(packed), hn::Set(QuantWords(), 0x03030303));
}
template <int kQuad>
HWY_INLINE QuantVec third_bit(QuantVec packed) {
  const auto mask = hn::Set(QuantWords(), 0x04040404);
  if constexpr (kQuad <= 2) {
    return hn::And(hn::ShiftLeft<2 - kQuad>(packed), mask);
  } else {
    return hn::And(hn::ShiftRight<kQuad - 2>(packed), mask);
  }
}

struct TwoBits {
  static constexpr int64_t kBits = 2;
  static HWY_INLINE void unpack(const std::byte* unit, uint8_t* quads) {
    for (int64_t byte = 0; byte < 2 * kQuadValues; byte += kQuantBytes) {
      const QuantVec packed = load_quantized(unit + byte);
      uint8_t* to = quads + byte / kQuadValues * 4 * kQuadValues + byte % kQuadValues;
      store_quantized(two_bits<0>(packed), to);
      store_quantized(two_bits<1>(packed), to + kQuadValues);
      store_quantized(two_bits<2>(packed), to + 2 * kQuadValues);
      store_quantized(two_bits<3>(packed), to + 3 * kQuadValues);
    }
  }
};

struct ThreeBits {
  static constexpr int64_t kBits = 3;
  template <int kFirst>
  static HWY_INLINE void unpack_half(QuantVec packed, QuantVec high, uint8_t* to) {
    store_quantized(hn::Or(two_bits<0>(packed), third_bit<kFirst>(high)), to);
    store_quantized(hn::Or(two_bits<1>(packed), third_bit<kFirst + 1>(high)), to + kQuadValues);
    store_quantized(hn::Or(two_bits<2>(packed), third_bit<kFirst + 2>(high)), to + 2 * kQuadValues);
    store_quantized(hn::Or(two_bits<3>(packed), third_bit<kFirst + 3>(high)), to + 3 * kQuadValues);
  }
  static HWY_INLINE void unpack(const std::byte* unit, uint8_t* quads) {
    for (int64_t byte = 0; byte < kQuadValues; byte += kQuantBytes) {
      const QuantVec high = load_quantized(unit + 2 * kQuadValues + byte);
      unpack_half<0>(load_quantized(unit + byte), high, quads + byte);
      unpack_half<4>(load_quantized(unit + kQuadValues + byte), high,
                     quads + byte + 4 * kQuadValues);
    }
  }
};

template <class Format>
const uint8_t* unpack(const std::byte* packed, int64_t num_units, uint8_t* scratch) {
  for (int64_t unit = 0; unit < num_units; ++unit) {
    Format::unpack(packed + unit * Format::kBits * kQuadValues, scratch + unit * 8 * kQuadValues);
  }
  return scratch;
}

const uint8_t* bytes_in_place(const std::byte* packed, int64_t /*num_units*/,
                              uint8_t* /*scratch*/) {
  return reinterpret_cast<const uint8_t*>(packed);
}

// ---- Slices ----

using F32x8 = hn::CappedTag<float, static_cast<size_t>(kBlockInputsMin)>;
using I32x8 = hn::RebindToSigned<F32x8>;
constexpr int64_t kXLanes = static_cast<int64_t>(hn::MaxLanes(F32x8()));

// The inputs of one span in packed order, zeros behind the last: in place, or in `buffer`.
HWY_INLINE const float* span_inputs(const RowSlices& row, int64_t span, float* buffer) {
  const int64_t begin = span * kSpanInputs;
  const int64_t count = std::min(kSpanInputs, row.K - begin);
  const bool in_order = row.quant->input_perm.empty();
  if (in_order && count == kSpanInputs) return row.x + begin;
  std::fill_n(buffer, kSpanInputs, 0.0f);
  if (in_order) {
    std::copy_n(row.x + begin, count, buffer);
  } else {
    const int32_t* order = row.quant->input_perm.data() + begin;
    for (int64_t i = 0; i < count; ++i) buffer[i] = row.x[order[i]];
  }
  return buffer;
}

// The largest magnitude of `count` inputs, a multiple of kXLanes; NaN where one is not finite.
HWY_INLINE float largest_magnitude(const float* x, int64_t count) {
  const I32x8 i32;
  const auto mask = hn::Set(i32, 0x7FFFFFFF);
  auto largest = hn::Zero(i32);
  for (int64_t i = 0; i < count; i += kXLanes) {
    const auto bits = hn::BitCast(i32, hn::LoadU(F32x8(), x + i));
    largest = hn::Max(largest, hn::And(bits, mask));  // positive f32 order as their bits
  }
  const int32_t bits = hn::GetLane(hn::MaxOfLanes(i32, largest));
  return bits < 0x7F800000 ? std::bit_cast<float>(bits) : std::numeric_limits<float>::quiet_NaN();
}

HWY_INLINE void store_slices(hn::Vec<I32x8> slices, int8_t* to) {
  const hn::Rebind<int8_t, I32x8> i8;
  hn::StoreU(hn::DemoteTo(i8, slices), i8, to);
}

// The slices of a span, [slices][kSpanInputs], into the words of the row.
template <int64_t kSlices>
HWY_INLINE void store_words(const RowSlices& row, int64_t span, const int8_t* slices) {
  uint32_t* words = row.words + span * row.span_stride;
  for (int64_t d = 0; d < kSlices; ++d, slices += kSpanInputs) {
    if (row.words_per_quad == 1) {
      for (int64_t quad = 0; quad < kSpanQuads; ++quad) {
        std::memcpy(words + quad * row.word_stride + d, slices + quad * 4, sizeof(uint32_t));
      }
    } else {
      for (int64_t quad = 0; quad < kSpanQuads; ++quad) {
        for (int64_t half = 0; half < 2; ++half) {
          const int16_t pair[2] = {slices[quad * 4 + half], slices[quad * 4 + half + 2]};
          std::memcpy(words + (2 * quad + half) * row.word_stride + d, pair, sizeof(pair));
        }
      }
    }
  }
}

// The fixed-point formats: three int8 slices of 7 bits, or two of 8.
template <int64_t kSlices>
struct FixedPoint;
template <>
struct FixedPoint<3> {
  static constexpr int kSliceBits = 7;
  static constexpr int32_t kMax = kFixedMax;
};
template <>
struct FixedPoint<2> {
  static constexpr int kSliceBits = 8;
  static constexpr int32_t kMax = kFixedMax16;
};

// Cuts off the lowest slice, in [-2^(bits-1), 2^(bits-1)); `fixed` keeps the part above it.
template <int kBits>
HWY_INLINE hn::Vec<I32x8> take_slice(hn::Vec<I32x8>& fixed) {
  const I32x8 i32;
  const auto mask = hn::Set(i32, (1 << kBits) - 1);
  const auto half = hn::Set(i32, 1 << (kBits - 1));
  const auto slice = hn::Sub(hn::And(hn::Add(fixed, half), mask), half);
  fixed = hn::ShiftRight<kBits>(hn::Sub(fixed, slice));
  return slice;
}

// A block as fixed point; a block of tiny values is zero, one with a NaN or an infinity is NaN.
template <int64_t kSlices>
HWY_INLINE BlockFactors split_block(const float* x, int64_t count, int8_t* slices) {
  constexpr int kBits = FixedPoint<kSlices>::kSliceBits;
  constexpr auto kMax = static_cast<float>(FixedPoint<kSlices>::kMax);
  const I32x8 i32;
  const float largest = largest_magnitude(x, count);
  if (!(largest >= kSmallestMagnitude)) {
    for (int64_t d = 0; d < kSlices; ++d) std::fill_n(slices + d * kSpanInputs, count, 0);
    return {largest < kSmallestMagnitude ? 0.0f : largest, 0.0f, 0.0f};
  }
  const auto inverse = hn::Set(F32x8(), kMax / largest);
  auto high_sum = hn::Zero(i32), low_sum = hn::Zero(i32);
  for (int64_t i = 0; i < count; i += kXLanes) {
    auto fixed = hn::NearestInt(hn::Mul(hn::LoadU(F32x8(), x + i), inverse));
    const auto d0 = take_slice<kBits>(fixed);
    store_slices(d0, slices + (kSlices - 1) * kSpanInputs + i);
    auto low = d0;
    if constexpr (kSlices == 3) {
      const auto d1 = take_slice<kBits>(fixed);
      store_slices(d1, slices + kSpanInputs + i);
      low = hn::Add(low, hn::ShiftLeft<kBits>(d1));
    }
    store_slices(fixed, slices + i);
    high_sum = hn::Add(high_sum, fixed);
    low_sum = hn::Add(low_sum, low);
  }
  return {largest / kMax, static_cast<float>(hn::GetLane(hn::SumOfLanes(i32, high_sum))),
          static_cast<float>(hn::GetLane(hn::SumOfLanes(i32, low_sum)))};
}

template <int64_t kSlices>
float make_fixed_slices(const RowSlices& row) {
  HWY_ALIGN float buffer[kSpanInputs];
  HWY_ALIGN int8_t slices[kSlices * kSpanInputs];
  BlockFactors* factors = row.factors;
  for (int64_t span = 0; span * kSpanInputs < row.K; ++span) {
    const float* x = span_inputs(row, span, buffer);
    for (int64_t i = 0; i < kSpanInputs; i += row.block_inputs, factors += row.factors_stride) {
      *factors = split_block<kSlices>(x + i, row.block_inputs, slices + i);
    }
    store_words<kSlices>(row, span, slices);
  }
  return 1.0f;
}

// As quantize_s8() has it.
HWY_INLINE ActivationStep s8_step(const RowSlices& row) {
  HWY_ALIGN float buffer[kSpanInputs];
  float largest = row.magnitude;
  for (int64_t span = 0; span * kSpanInputs < row.K; ++span) {
    const float of_span = largest_magnitude(span_inputs(row, span, buffer), kSpanInputs);
    if (of_span != of_span) return activation_step(*row.quant, of_span);
    largest = std::max(largest, of_span);
  }
  return activation_step(*row.quant, largest);
}

// Quantizes `count` inputs and returns the sum of the results.
HWY_INLINE float quantize(const float* x, int64_t count, float inverse, QuantLimits limits,
                          int8_t* slices) {
  const I32x8 i32;
  const auto inverses = hn::Set(F32x8(), inverse);
  const auto smallest = hn::Set(F32x8(), limits.smallest),
             largest = hn::Set(F32x8(), limits.largest);
  auto sum = hn::Zero(i32);
  for (int64_t i = 0; i < count; i += kXLanes) {
    // The limits are whole: it does not matter that they come before the rounding.
    const auto scaled = hn::Mul(hn::LoadU(F32x8(), x + i), inverses);
    const auto code = hn::NearestInt(hn::Min(hn::Max(scaled, smallest), largest));
    store_slices(code, slices + i);
    sum = hn::Add(sum, code);
  }
  return static_cast<float>(hn::GetLane(hn::SumOfLanes(i32, sum)));
}

float make_s8_slices(const RowSlices& row) {
  HWY_ALIGN float buffer[kSpanInputs];
  HWY_ALIGN int8_t slices[kSpanInputs];
  const ActivationStep step = s8_step(row);
  const bool is_nan = step.scale != step.scale;
  const float inverse = is_nan ? 0.0f : step.inverse;
  BlockFactors* factors = row.factors;
  for (int64_t span = 0; span * kSpanInputs < row.K; ++span) {
    const float* x = span_inputs(row, span, buffer);
    if (is_nan) x = std::fill_n(buffer, kSpanInputs, 0.0f) - kSpanInputs;
    for (int64_t i = 0; i < kSpanInputs; i += row.block_inputs, factors += row.factors_stride) {
      *factors = {1.0f, 0.0f, quantize(x + i, row.block_inputs, inverse, kS8Limits, slices + i)};
    }
    store_words<1>(row, span, slices);
  }
  return step.scale;
}

// kS4S8Block128: its blocks are the spans.
float make_block_slices(const RowSlices& row) {
  HWY_ALIGN float buffer[kSpanInputs];
  HWY_ALIGN int8_t slices[kSpanInputs];
  BlockFactors* factors = row.factors;
  for (int64_t span = 0; span * kSpanInputs < row.K; ++span) {
    const int64_t begin = span * kSpanInputs;
    const float* x = span_inputs(row, span, buffer);
    const ActivationStep step = block_step(*row.quant, begin, largest_magnitude(x, kSpanInputs));
    const bool is_nan = step.scale != step.scale;
    if (is_nan) x = std::fill_n(buffer, kSpanInputs, 0.0f) - kSpanInputs;
    const float inverse = is_nan ? 0.0f : step.inverse;
    const QuantLimits limits = block_limits(*row.quant, begin);
    for (int64_t i = 0; i < kSpanInputs; i += row.block_inputs, factors += row.factors_stride) {
      *factors = {step.scale, 0.0f, quantize(x + i, row.block_inputs, inverse, limits, slices + i)};
    }
    store_words<1>(row, span, slices);
  }
  return 1.0f;
}

// ---- Accumulators ----

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
constexpr int64_t kLanesF32 = static_cast<int64_t>(hn::MaxLanes(F32()));

// The weight of the highest slice: 128^2 of three, 256 of two.
template <int64_t kSlices>
constexpr float kHighValue = kSlices == 3 ? 16384.0f : 256.0f;

// The block's contribution to y of one row, for a vector of features. kIsScaled: x has a scale here
// that may be other than 1.
template <int64_t kSlices, bool kIsScaled, ZeroKind kZeroKind>
HWY_INLINE hn::Vec<F32> add_row(const int32_t* acc, const BlockFactors& factors,
                                hn::Vec<F32> weight_scale, hn::Vec<F32> zero, hn::Vec<F32> y) {
  constexpr bool kIsPoint = kZeroKind == ZeroKind::kPoint;
  const F32 f32;
  const I32 i32;
  auto low = hn::Load(i32, acc + (kSlices - 1) * kPanelRows);
  if constexpr (kSlices == 3) {
    low = hn::Add(low, hn::ShiftLeft<7>(hn::Load(i32, acc + kPanelRows)));
  }
  auto total = hn::ConvertTo(f32, low);
  if constexpr (kIsPoint) total = hn::NegMulAdd(zero, hn::Set(f32, factors.low_sum), total);
  if constexpr (kSlices > 1) {
    auto high = hn::ConvertTo(f32, hn::Load(i32, acc));
    if constexpr (kIsPoint) high = hn::NegMulAdd(zero, hn::Set(f32, factors.high_sum), high);
    total = hn::MulAdd(high, hn::Set(f32, kHighValue<kSlices>), total);
  }
  const auto x_scale = hn::Set(f32, factors.scale);
  if constexpr (kIsPoint) {
    if constexpr (kIsScaled) total = hn::Mul(total, x_scale);
    return hn::MulAdd(total, weight_scale, y);
  } else {
    const float x_sum = factors.high_sum * kHighValue<kSlices> + factors.low_sum;
    total = hn::NegMulAdd(zero, hn::Set(f32, x_sum), hn::Mul(total, weight_scale));
    return kIsScaled ? hn::MulAdd(total, x_scale, y) : hn::Add(total, y);
  }
}

template <int64_t kSlices, bool kIsScaled, ZeroKind kZeroKind, int kRows>
HWY_NOINLINE void add_rows(const BlockAccumulators& block) {
  const F32 f32;
  BlockFactors factors[kRows];
  std::copy_n(block.factors, kRows, factors);
  for (int64_t n = 0; n < kPanelRows; n += kLanesF32) {
    const auto weight_scale = hn::Load(f32, block.group + n);
    const auto zero = hn::Load(f32, block.group + kPanelRows + n);
    HALLEY_UNROLL for (int m = 0; m < kRows; ++m) {
      float* y = block.y + m * kPanelRows + n;
      const int32_t* acc = block.acc + m * kSlices * kPanelRows + n;
      hn::Store(add_row<kSlices, kIsScaled, kZeroKind>(acc, factors[m], weight_scale, zero,
                                                       hn::Load(f32, y)),
                f32, y);
    }
  }
}

template <int64_t kSlices, bool kIsScaled = (kSlices > 1), int kRows = kTileSliceRows / kSlices>
void add_block(const BlockAccumulators& block) {
  if constexpr (kRows > 1) {
    if (block.num_rows < kRows) return add_block<kSlices, kIsScaled, kRows - 1>(block);
  }
  if (block.zero_kind == ZeroKind::kPoint) {
    add_rows<kSlices, kIsScaled, ZeroKind::kPoint, kRows>(block);
  } else {
    add_rows<kSlices, kIsScaled, ZeroKind::kOffset, kRows>(block);
  }
}

}  // namespace halley::dot_gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
