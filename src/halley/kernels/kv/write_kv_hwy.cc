#include <algorithm>
#include <cstring>
#include <limits>

#include "halley/core/float16.h"
#include "halley/kernels/kv/kv_rows.h"
#include "halley/kernels/kv/kv_scale.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/kv/write_kv_hwy.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "halley/kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {

void store_f16(const float* from, size_t size, uint16_t* to) {
  size_t i = 0;
  // Elsewhere the conversion is not one instruction, and does not round to nearest even.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> df16;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, hn::LoadU(d, from + i))), d16, to + i);
  }
#endif
  for (; i < size; ++i) to[i] = f32_to_f16(from[i]);
}

void store_bf16(const float* from, size_t size, uint16_t* to) {
  const hn::ScalableTag<uint32_t> d;
  const hn::Rebind<float, decltype(d)> df;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    const auto value = hn::LoadU(df, from + i);
    const auto bits = hn::BitCast(d, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFu)));
    // Rounding could carry a NaN into infinity or zero: it is cut and made quiet instead.
    const auto quiet = hn::Or(bits, hn::Set(d, 0x400000u));
    const auto is_nan = hn::RebindMask(d, hn::IsNaN(value));
    const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
    hn::StoreU(hn::TruncateTo(d16, upper), d16, to + i);
  }
  for (; i < size; ++i) to[i] = f32_to_bf16(from[i]);
}

struct RowRange {
  float min, max;
  bool is_finite;
};

RowRange range_of(const float* from, size_t size) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto first = hn::Set(d, from[0]);
  auto low = first, high = first, zeros = hn::Zero(d);
  for (size_t i = 0; i < size; i += lanes) {
    auto value = first;
    if (i + lanes <= size) {
      value = hn::LoadU(d, from + i);
    } else {
      value = hn::IfThenElse(hn::FirstN(d, size - i), load_first(d, from + i, size - i), first);
    }
    low = hn::Min(low, value);
    high = hn::Max(high, value);
    zeros = hn::Add(zeros, hn::Mul(value, hn::Zero(d)));  // NaN once a value is not finite
  }
  return {hn::GetLane(hn::MinOfLanes(d, low)), hn::GetLane(hn::MaxOfLanes(d, high)),
          hn::AllTrue(d, hn::Eq(zeros, hn::Zero(d)))};
}

// round((x - zero) / scale) in [0, top_code]
struct EncodeInt {
  float scale, zero, top_code;

  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToSigned<D>> operator()(D d, hn::Vec<D> x) const {
    constexpr float kRoundShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const hn::RebindToSigned<D> di;
    const auto steps = hn::Div(hn::Sub(x, hn::Set(d, zero)), hn::Set(d, scale));
    const auto bounded = hn::Min(hn::Max(steps, hn::Zero(d)), hn::Set(d, top_code));
    const auto shifted = hn::BitCast(di, hn::Add(bounded, hn::Set(d, kRoundShift)));
    return hn::And(shifted, hn::Set(di, 0xFF));
  }
};

// x / scale in e4m3
struct EncodeE4M3 {
  float scale;

  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToSigned<D>> operator()(D d, hn::Vec<D> x) const {
    const hn::RebindToUnsigned<D> du;
    const auto quotient = hn::Div(x, hn::Set(d, scale));
    const auto magnitude = hn::Min(hn::Abs(quotient), hn::Set(d, kE4M3Max));
    const auto sign = hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(du, quotient)));
    const auto bits = hn::BitCast(du, magnitude);
    const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1u));
    const auto rounded = hn::ShiftRight<20>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFFu))));
    const auto normal = hn::Sub(rounded, hn::Set(du, 120u << 3));  // exponent bias 127 to 7
    // Below the normal numbers the adder rounds to multiples of 2^-9, of which 2^14 is the ulp.
    const auto shift = hn::Set(d, 0x1p14f);
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(magnitude, shift)), hn::BitCast(du, shift));
    const auto is_small = hn::RebindMask(du, hn::Lt(magnitude, hn::Set(d, 0x1p-6f)));
    return hn::BitCast(hn::RebindToSigned<D>(),
                       hn::Or(hn::IfThenElse(is_small, subnormal, normal), sign));
  }
};

constexpr size_t kChunk = 64;  // elements: even, and whole vectors of any width

// quantized [kChunk]; values behind `count` are not defined
template <class Encode>
HWY_INLINE void encode_chunk(const float* from, size_t count, const Encode& encode,
                             uint8_t* quantized) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::DemoteTo(d8, encode(d, hn::LoadU(d, from + i))), d8, quantized + i);
  }
  if (i == count) return;
  hn::StoreU(hn::DemoteTo(d8, encode(d, load_first(d, from + i, count - i))), d8, quantized + i);
}

template <class Encode>
void store_bytes(const float* from, size_t size, const Encode& encode, std::byte* to) {
  HWY_ALIGN uint8_t quantized[kChunk];
  for (size_t begin = 0; begin < size; begin += kChunk) {
    const size_t count = std::min(kChunk, size - begin);
    encode_chunk(from + begin, count, encode, quantized);
    std::memcpy(to + begin, quantized, count);
  }
}

template <class Encode>
void store_half_bytes(const float* from, size_t size, const Encode& encode, std::byte* to) {
  HWY_ALIGN uint8_t quantized[kChunk];
  for (size_t begin = 0; begin < size; begin += kChunk) {
    const size_t count = std::min(kChunk, size - begin);
    encode_chunk(from + begin, count, encode, quantized);
    if (count % 2 != 0) quantized[count] = 0;
    for (size_t i = 0; i < count; i += 2) {
      to[(begin + i) / 2] = static_cast<std::byte>(quantized[i] | quantized[i + 1] << 4);
    }
  }
}

void store_int(bool is_4_bit, const float* from, size_t size, const RowRange& range, KvRow to) {
  const float top_code = is_4_bit ? 15.0f : 255.0f;
  const IntRowScale bits = int_row_scale(range.min, range.max, top_code);
  std::memcpy(to.scale, &bits.scale, sizeof(bits.scale));
  std::memcpy(to.scale + sizeof(bits.scale), &bits.zero, sizeof(bits.zero));
  const EncodeInt encode{f16_to_f32(bits.scale), f16_to_f32(bits.zero), top_code};
  if (is_4_bit) {
    store_half_bytes(from, size, encode, to.data);
  } else {
    store_bytes(from, size, encode, to.data);
  }
}

void store_not_finite(KvDType dtype, size_t size, KvRow to) {
  std::memset(to.data, 0, dtype == KvDType::kInt4 ? (size + 1) / 2 : size);
  constexpr uint16_t kNanAndZero[] = {0x7E00, 0};  // f16
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (dtype == KvDType::kFp8E4M3) {
    std::memcpy(to.scale, &nan, sizeof(nan));
  } else {
    std::memcpy(to.scale, kNanAndZero, sizeof(kNanAndZero));
  }
}

void store_scaled_row(KvDType dtype, const float* from, size_t size, float fixed_scale, KvRow to) {
  const RowRange range = range_of(from, size);
  if (!range.is_finite) {
    store_not_finite(dtype, size, to);
  } else if (dtype == KvDType::kFp8E4M3) {
    const float scale =
        fixed_scale > 0 ? fixed_scale : fp8_row_scale(std::max(-range.min, range.max));
    std::memcpy(to.scale, &scale, sizeof(scale));
    store_bytes(from, size, EncodeE4M3{scale}, to.data);
  } else {
    store_int(dtype == KvDType::kInt4, from, size, range, to);
  }
}

void store_kv_row_simd(KvDType dtype, const float* from, size_t size, float fixed_scale, KvRow to) {
  if (dtype == KvDType::kF32) {
    std::memcpy(to.data, from, size * sizeof(float));
  } else if (dtype == KvDType::kF16) {
    store_f16(from, size, reinterpret_cast<uint16_t*>(to.data));
  } else if (dtype == KvDType::kBf16) {
    store_bf16(from, size, reinterpret_cast<uint16_t*>(to.data));
  } else {
    store_scaled_row(dtype, from, size, fixed_scale, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley {
HWY_EXPORT(store_kv_row_simd);

void store_kv_row(KvDType dtype, const float* from, size_t size, float fixed_scale, KvRow to) {
  HWY_DYNAMIC_DISPATCH(store_kv_row_simd)(dtype, from, size, fixed_scale, to);
}

}  // namespace halley
#endif  // HWY_ONCE
