#include <cstring>

#include "halley/core/float16.h"
#include "halley/kernels/kv/kv_rows.h"

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

void store_kv_row_simd(DType dtype, const float* from, size_t size, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, from, size * sizeof(float));
  } else if (dtype == DType::kF16) {
    store_f16(from, size, reinterpret_cast<uint16_t*>(to));
  } else {
    store_bf16(from, size, reinterpret_cast<uint16_t*>(to));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley {
HWY_EXPORT(store_kv_row_simd);

void store_kv_row(DType dtype, const float* from, size_t size, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(store_kv_row_simd)(dtype, from, size, to);
}

}  // namespace halley
#endif  // HWY_ONCE
