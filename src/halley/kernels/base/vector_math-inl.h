// exp, tanh and erfc on vectors of f32 that keep NaN and infinity, 16-bit floats as f32, and loads
// and stores of a row's tail.
#if defined(HALLEY_KERNELS_BASE_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HALLEY_KERNELS_BASE_VECTOR_MATH_INL_H_
#undef HALLEY_KERNELS_BASE_VECTOR_MATH_INL_H_
#else
#define HALLEY_KERNELS_BASE_VECTOR_MATH_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The first `count` lanes from memory, zeros behind them; touches nothing else.
template <class D>
HWY_INLINE hn::Vec<D> load_first(D d, const hn::TFromD<D>* from, size_t count) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, from, count * sizeof(hn::TFromD<D>));
  return hn::Load(d, lanes);
}

/// Stores the first `count` lanes; touches nothing else.
template <class D>
HWY_INLINE void store_first(hn::Vec<D> v, D d, hn::TFromD<D>* to, size_t count) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  std::memcpy(to, lanes, count * sizeof(hn::TFromD<D>));
}

/// The sum of all lanes as a scalar; the order depends on the number of lanes alone.
template <class D>
HWY_INLINE float sum_lanes(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// bf16 bits in the lower half of each lane.
template <class D>
HWY_INLINE hn::Vec<D> load_bf16(D d, const uint16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
}

/// f16 as f32, exact, subnormals, infinities and NaN included.
template <class D>
HWY_INLINE hn::Vec<D> load_f16(D d, const uint16_t* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(d16, from)));
#else
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, from));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000u)));
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7FFFu));
  // The exponent is 112 too small after the shift; a multiplication also normalises subnormals.
  const auto value =
      hn::BitCast(d32, hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f)));
  const auto is_special = hn::Gt(magnitude, hn::Set(d32, 0x7BFFu));
  const auto special = hn::IfThenElseZero(is_special, hn::Set(d32, 0x7F800000u));
  return hn::BitCast(d, hn::Or(hn::Or(value, special), sign));
#endif
}

namespace math_detail {

// x = n ln2 + r, |r| <= ln2 / 2: returns e^r and leaves n, as bits above those of kRoundShift.
inline constexpr float kRoundShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

template <class D>
HWY_INLINE hn::Vec<D> exp_reduced(D d, hn::Vec<D> x, hn::Vec<D>& shifted) {
  shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), hn::Set(d, kRoundShift));
  const auto n = hn::Sub(shifted, hn::Set(d, kRoundShift));
  // ln2 in two parts; the first has 15 significant bits, so that n times it is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  // (e^r - 1 - r) / r^2 on [-0.347, 0.347]: a minimax fit, relative error of e^r 3.3e-10.
  auto p = hn::Set(d, 0.000198578258f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00139336870f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.00833336078f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416664630f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166666672f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  return hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
}

}  // namespace math_detail

/// e^x, within 2 ulp; subnormal results are kept, NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> exp_f32(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // Beyond these limits the result is infinity or zero; comparisons let NaN pass.
  const auto high = hn::Set(d, 89.0f);
  const auto low = hn::Set(d, -105.0f);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  hn::Vec<D> shifted;
  const auto y = math_detail::exp_reduced(d, x, shifted);
  // 2^n in two factors, since n may lie outside the exponents of f32.
  const auto bias = hn::BitCast(di, hn::Set(d, math_detail::kRoundShift));
  const auto n = hn::Sub(hn::BitCast(di, shifted), bias);
  const auto n_first = hn::ShiftRight<1>(n);
  const auto one = hn::Set(di, 127);
  const auto first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n_first, one)));
  const auto second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, n_first), one)));
  return hn::Mul(hn::Mul(y, first), second);
}

/// e^x for x <= 0 (softmax weights): as exp_f32, but results below 2^-125 are zero.
template <class D>
HWY_INLINE hn::Vec<D> exp_not_positive(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  hn::Vec<D> shifted;
  const auto y = math_detail::exp_reduced(d, x, shifted);
  const auto scale =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Set(du, 127u << 23)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -86.6f)), hn::Mul(y, scale));
}

/// tanh(x), within 4 ulp.
template <class D>
HWY_INLINE hn::Vec<D> tanh_f32(D d, hn::Vec<D> x) {
  const auto magnitude = hn::Abs(x);
  const auto one = hn::Set(d, 1.0f);
  const auto e = exp_f32(d, hn::Add(magnitude, magnitude));
  const auto large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  // Near zero the difference above loses all digits. (tanh(x)/x - 1) / x^2 in x^2 on [0, 0.65^2]:
  // a minimax fit, relative error of tanh 1e-9.
  const auto u = hn::Mul(x, x);
  auto p = hn::Set(d, 0.00221508252f);
  p = hn::MulAdd(p, u, hn::Set(d, -0.00827265624f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.0217462666f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.0539563634f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.133332908f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.333333343f));
  const auto small = hn::MulAdd(hn::Mul(x, u), p, x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small, hn::CopySign(large, x));
}

/// The tail of the normal distribution, P(X > x) = erfc(x / sqrt 2) / 2, for x >= 0; relative error
/// below 1e-6 down to the subnormal numbers.
template <class D>
HWY_INLINE hn::Vec<D> normal_tail(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  // The result is zero beyond; infinity would become NaN below.
  const auto limit = hn::Set(d, 15.5f);
  x = hn::IfThenElse(hn::Gt(x, limit), limit, x);
  // x^2 = square + rest exactly: an error of x^2 would be an error of the exponent.
  const auto top = hn::BitCast(d, hn::And(hn::BitCast(du, x), hn::Set(du, 0xFFFFF000u)));
  const auto square = hn::Mul(x, x);
  const auto below = hn::Sub(x, top);
  const auto rest = hn::Add(hn::Sub(hn::Mul(top, top), square), hn::Mul(below, hn::Add(x, top)));
  const auto half = hn::Set(d, 0.5f);
  const auto gauss = exp_f32(d, hn::Neg(hn::Mul(square, half)));
  const auto correction = hn::NegMulAdd(rest, half, hn::Set(d, 1.0f));
  // exp(z^2) erfc(z) (1 + 2z) in s = (z - 2) / (z + 2), z = x / sqrt 2 in [0, 11]: a minimax fit,
  // relative error 1.8e-8.
  const auto z = hn::Mul(x, hn::Set(d, 0.707106781f));
  const auto s = hn::Div(hn::Sub(z, hn::Set(d, 2.0f)), hn::Add(z, hn::Set(d, 2.0f)));
  auto p = hn::Set(d, -0.000390683737f);
  p = hn::MulAdd(p, s, hn::Set(d, -0.00121330656f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.00131104095f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.00861754082f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.00806194078f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.0542004742f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.164056018f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.166031763f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.0927640200f));
  p = hn::MulAdd(p, s, hn::Set(d, 1.27697837f));
  const auto scaled = hn::Div(hn::Mul(p, half), hn::MulAdd(z, hn::Set(d, 2.0f), hn::Set(d, 1.0f)));
  return hn::Mul(hn::Mul(scaled, correction), gauss);
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#endif  // HALLEY_KERNELS_BASE_VECTOR_MATH_INL_H_
