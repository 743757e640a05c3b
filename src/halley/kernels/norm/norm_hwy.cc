#include <cmath>

#include "halley/kernels/norm/norm_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/norm/norm_hwy.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "halley/kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {

struct Itself {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D /*d*/, hn::Vec<D> v, hn::Vec<D> sum) const {
    return hn::Add(sum, v);
  }
};

struct Square {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D /*d*/, hn::Vec<D> v, hn::Vec<D> sum) const {
    return hn::MulAdd(v, v, sum);
  }
};

struct SquaredDistance {
  float mean;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> v, hn::Vec<D> sum) const {
    const auto distance = hn::Sub(v, hn::Set(d, mean));
    return hn::MulAdd(distance, distance, sum);
  }
};

// Four running sums hide the latency of the additions; their order is fixed by `size` and the
// vector width.
template <class Accumulate>
float reduce_row(const Accumulate& accumulate, const float* x, size_t size) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    sum0 = accumulate(d, hn::LoadU(d, x + i), sum0);
    sum1 = accumulate(d, hn::LoadU(d, x + i + lanes), sum1);
    sum2 = accumulate(d, hn::LoadU(d, x + i + 2 * lanes), sum2);
    sum3 = accumulate(d, hn::LoadU(d, x + i + 3 * lanes), sum3);
  }
  for (; i + lanes <= size; i += lanes) sum0 = accumulate(d, hn::LoadU(d, x + i), sum0);
  if (i < size) {
    // Lanes behind the row's end must add nothing, whatever f(0) is.
    const auto before = sum1;
    const auto after = accumulate(d, load_first(d, x + i, size - i), before);
    sum1 = hn::IfThenElse(hn::FirstN(d, size - i), after, before);
  }
  return sum_lanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

// y[i] = (x[i] - mean) * scale * (weight[i] + weight_offset) + bias[i]
struct ScaleShift {
  const NormParameters& parameters;
  float mean;
  float scale;

  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x, hn::Vec<D> weight, hn::Vec<D> bias) const {
    const auto normed = hn::Mul(hn::Sub(x, hn::Set(d, mean)), hn::Set(d, scale));
    const auto gain = hn::Add(weight, hn::Set(d, parameters.weight_offset));
    return parameters.bias == nullptr ? hn::Mul(normed, gain) : hn::MulAdd(normed, gain, bias);
  }

  void row(const float* x, size_t size, float* y) const {
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d);
    const float* weight = parameters.weight;
    const float* bias = parameters.bias;
    size_t i = 0;
    for (; i + lanes <= size; i += lanes) {
      const auto b = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + i);
      hn::StoreU((*this)(d, hn::LoadU(d, x + i), hn::LoadU(d, weight + i), b), d, y + i);
    }
    if (i == size) return;
    const size_t rest = size - i;
    const auto b = bias == nullptr ? hn::Zero(d) : load_first(d, bias + i, rest);
    const auto v = (*this)(d, load_first(d, x + i, rest), load_first(d, weight + i, rest), b);
    store_first(v, d, y + i, rest);
  }
};

void rms_norm_rows_simd(const NormParameters& parameters, int64_t group_size, ConstMatrix x,
                        Matrix y) {
  const auto size = static_cast<size_t>(group_size);
  for (int64_t m = 0; m < x.num_rows; ++m) {
    for (int64_t begin = 0; begin < x.num_cols; begin += group_size) {
      const float* from = x.row<float>(m) + begin;
      const float mean = reduce_row(Square(), from, size) / static_cast<float>(group_size);
      const float scale = 1.0f / std::sqrt(mean + parameters.epsilon);
      ScaleShift{parameters, 0.0f, scale}.row(from, size, y.row<float>(m) + begin);
    }
  }
}

void layer_norm_rows_simd(const NormParameters& parameters, ConstMatrix x, Matrix y) {
  const auto size = static_cast<size_t>(x.num_cols);
  const auto count = static_cast<float>(x.num_cols);
  for (int64_t m = 0; m < x.num_rows; ++m) {
    const float* from = x.row<float>(m);
    const float mean = reduce_row(Itself(), from, size) / count;
    // A second pass: mean(x^2) - mean^2 would cancel where |mean| is large.
    const float variance = reduce_row(SquaredDistance{mean}, from, size) / count;
    const float scale = 1.0f / std::sqrt(variance + parameters.epsilon);
    ScaleShift{parameters, mean, scale}.row(from, size, y.row<float>(m));
  }
}

void add_rows_range_simd(ConstMatrix x, Matrix y) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto size = static_cast<size_t>(x.num_cols);
  for (int64_t m = 0; m < x.num_rows; ++m) {
    const float* from = x.row<float>(m);
    float* to = y.row<float>(m);
    size_t i = 0;
    for (; i + lanes <= size; i += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
    }
    for (; i < size; ++i) to[i] += from[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley {
HWY_EXPORT(rms_norm_rows_simd);
HWY_EXPORT(layer_norm_rows_simd);
HWY_EXPORT(add_rows_range_simd);

void rms_norm_rows(const NormParameters& parameters, int64_t group_size, ConstMatrix x, Matrix y) {
  HWY_DYNAMIC_DISPATCH(rms_norm_rows_simd)(parameters, group_size, x, y);
}

void layer_norm_rows(const NormParameters& parameters, ConstMatrix x, Matrix y) {
  HWY_DYNAMIC_DISPATCH(layer_norm_rows_simd)(parameters, x, y);
}

void add_rows_range(ConstMatrix x, Matrix y) { HWY_DYNAMIC_DISPATCH(add_rows_range_simd)(x, y); }

}  // namespace halley
#endif  // HWY_ONCE
