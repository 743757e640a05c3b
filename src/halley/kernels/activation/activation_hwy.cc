#include "halley/kernels/activation/activation_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/activation/activation_hwy.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "halley/kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {

// Each function's limit at -infinity is zero, where the formula would give infinity * 0.
template <class D>
HWY_INLINE hn::Vec<D> zero_at_minus_infinity(D d, hn::Vec<D> x, hn::Vec<D> y) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -3.0e38f)), y);
}

struct Silu {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    const auto e = exp_f32(d, hn::Neg(x));
    return zero_at_minus_infinity(d, x, hn::Div(x, hn::Add(e, hn::Set(d, 1.0f))));
  }
};

// 0.5 x (1 + tanh u) = x / (1 + exp(-2u)), which keeps its digits where tanh u is near -1.
struct GeluTanh {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    // u = sqrt(2 / pi) (x + 0.044715 x^3)
    const auto inner =
        hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.0713548162726f), hn::Set(d, 1.59576912161f));
    const auto e = exp_f32(d, hn::Neg(hn::Mul(x, inner)));
    return zero_at_minus_infinity(d, x, hn::Div(x, hn::Add(e, hn::Set(d, 1.0f))));
  }
};

struct GeluErf {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    const auto tail = normal_tail(d, hn::Abs(x));
    const auto is_negative = hn::Lt(x, hn::Zero(d));
    const auto y = hn::Mul(x, hn::IfThenElse(is_negative, tail, hn::Sub(hn::Set(d, 1.0f), tail)));
    return zero_at_minus_infinity(d, x, y);
  }
};

struct Relu {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);  // a comparison lets NaN pass
  }
};

struct SoftCap {
  float cap;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    const auto limit = hn::Set(d, cap);
    return hn::Mul(limit, tanh_f32(d, hn::Div(x, limit)));
  }
};

template <class F>
void map_rows(const F& function, ConstMatrix x, ConstMatrix factor, Matrix y) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto size = static_cast<size_t>(x.num_cols);
  const size_t size_full = size - size % lanes;
  for (int64_t m = 0; m < x.num_rows; ++m) {
    const float* from = x.row<float>(m);
    const float* by = factor.data == nullptr ? nullptr : factor.row<float>(m);
    float* to = y.row<float>(m);
    for (size_t i = 0; i < size_full; i += lanes) {
      auto v = function(d, hn::LoadU(d, from + i));
      if (by != nullptr) v = hn::Mul(v, hn::LoadU(d, by + i));
      hn::StoreU(v, d, to + i);
    }
    if (size_full == size) continue;
    const size_t rest = size - size_full;
    auto v = function(d, load_first(d, from + size_full, rest));
    if (by != nullptr) v = hn::Mul(v, load_first(d, by + size_full, rest));
    store_first(v, d, to + size_full, rest);
  }
}

void activate_rows_simd(Activation activation, ConstMatrix x, ConstMatrix factor, Matrix y) {
  switch (activation) {
    case Activation::kSilu:
      return map_rows(Silu(), x, factor, y);
    case Activation::kGeluTanh:
      return map_rows(GeluTanh(), x, factor, y);
    case Activation::kGeluErf:
      return map_rows(GeluErf(), x, factor, y);
    case Activation::kRelu:
      return map_rows(Relu(), x, factor, y);
  }
}

void soft_cap_rows_simd(float cap, Matrix x) { map_rows(SoftCap{cap}, x, {}, x); }

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley {
HWY_EXPORT(activate_rows_simd);
HWY_EXPORT(soft_cap_rows_simd);

void activate_rows(Activation activation, ConstMatrix x, ConstMatrix factor, Matrix y) {
  HWY_DYNAMIC_DISPATCH(activate_rows_simd)(activation, x, factor, y);
}

void soft_cap_rows(float cap, Matrix x) { HWY_DYNAMIC_DISPATCH(soft_cap_rows_simd)(cap, x); }

}  // namespace halley
#endif  // HWY_ONCE
