#include "halley/kernels/rope/rope_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/rope/rope_hwy.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "halley/kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {

void apply_rope_row_simd(const RopeRow& row, float* x) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto half = static_cast<size_t>(row.rotary_dim / 2);
  for (int64_t head = 0; head < row.num_heads; ++head) {
    float* first = x + head * row.head_dim;
    float* second = first + half;
    size_t i = 0;
    for (; i + lanes <= half; i += lanes) {
      const auto cos = hn::LoadU(d, row.cos + i);
      const auto sin = hn::LoadU(d, row.sin + i);
      const auto a = hn::LoadU(d, first + i);
      const auto b = hn::LoadU(d, second + i);
      hn::StoreU(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), d, first + i);
      hn::StoreU(hn::MulAdd(a, sin, hn::Mul(b, cos)), d, second + i);
    }
    if (i == half) continue;
    const size_t rest = half - i;
    const auto cos = load_first(d, row.cos + i, rest);
    const auto sin = load_first(d, row.sin + i, rest);
    const auto a = load_first(d, first + i, rest);
    const auto b = load_first(d, second + i, rest);
    store_first(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), d, first + i, rest);
    store_first(hn::MulAdd(a, sin, hn::Mul(b, cos)), d, second + i, rest);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley {
HWY_EXPORT(apply_rope_row_simd);

void apply_rope_row(const RopeRow& row, float* x) {
  HWY_DYNAMIC_DISPATCH(apply_rope_row_simd)(row, x);
}

}  // namespace halley
#endif  // HWY_ONCE
