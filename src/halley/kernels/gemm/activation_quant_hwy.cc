// round_activations() in vectors.
#include <algorithm>

#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/activation_step.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/gemm/activation_quant_hwy.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "halley/kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using Vec = hn::Vec<F32>;

/// Stores body(vector of x) for all of x, the last vector padded with zeros.
template <class Body>
HWY_INLINE void for_vectors(const float* x, size_t size, float* out, const Body& body) {
  const F32 d;
  const size_t num_lanes = hn::Lanes(d);
  size_t k = 0;
  for (; k + num_lanes <= size; k += num_lanes) {
    hn::StoreU(body(hn::LoadU(d, x + k)), d, out + k);
  }
  if (k < size) store_first(body(load_first(d, x + k, size - k)), d, out + k, size - k);
}

/// Not finite where a value is not: as integers the bits of magnitudes have the order of the
/// values, and those of infinity and NaN are the largest.
float largest_magnitude(const float* x, size_t size) {
  const F32 d;
  const U32 du;
  const size_t num_lanes = hn::Lanes(d);
  auto largest = hn::Zero(du);
  const auto mask = hn::Set(du, 0x7FFFFFFFu);
  size_t k = 0;
  for (; k + num_lanes <= size; k += num_lanes) {
    largest = hn::Max(largest, hn::And(hn::BitCast(du, hn::LoadU(d, x + k)), mask));
  }
  if (k < size) {
    largest = hn::Max(largest, hn::And(hn::BitCast(du, load_first(d, x + k, size - k)), mask));
  }
  return hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(du, largest)));
}

void round_to_e4m3(const float* x, size_t size, const ActivationStep& step, float* out) {
  const F32 d;
  const U32 du;
  const auto inverse = hn::Set(d, step.inverse);
  const auto scale = hn::Set(d, step.scale);
  const auto quant_max = hn::Set(d, 448.0f);
  for_vectors(x, size, out, [&](Vec value) HWY_ATTR {
    const Vec quantized = hn::Mul(value, inverse);
    const Vec magnitude = hn::Min(hn::Abs(quantized), quant_max);
    const auto bits = hn::BitCast(du, magnitude);
    const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1u));
    const auto carried = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFFu)));
    const Vec normal = hn::BitCast(d, hn::And(carried, hn::Set(du, 0xFFF00000u)));
    // The sum's last bit is 2^-9, the step of the subnormal numbers.
    const auto shift = hn::Set(d, 0x1p14f);
    const Vec subnormal = hn::Sub(hn::Add(magnitude, shift), shift);
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(d, 0x1p-6f));
    return hn::Mul(scale, hn::CopySign(hn::IfThenElse(is_subnormal, subnormal, normal), quantized));
  });
}

void round_to_integers(const float* x, size_t size, const ActivationStep& step, QuantLimits limits,
                       float* out) {
  const F32 d;
  const auto smallest = hn::Set(d, limits.smallest), largest = hn::Set(d, limits.largest);
  const auto inverse = hn::Set(d, step.inverse);
  const auto scale = hn::Set(d, step.scale);
  for_vectors(x, size, out, [&](Vec value) HWY_ATTR {
    const Vec quantized = hn::Clamp(hn::Mul(value, inverse), smallest, largest);
    // An integer has no negative zero.
    return hn::Mul(scale, hn::Add(hn::Round(quantized), hn::Zero(d)));
  });
}

}  // namespace

void round_activations_target(const QuantParams& quant, const float* x, size_t num_inputs,
                              float* rounded, float row_magnitude) {
  const bool has_blocks = quant.activation == ActivationQuant::kS4S8Block128;
  const bool is_grouped = quant.activation == ActivationQuant::kE4m3Group128 || has_blocks;
  const bool is_s8 = quant.activation == ActivationQuant::kS8Token ||
                     quant.activation == ActivationQuant::kS8Static;
  const size_t group_size = is_grouped ? size_t{kActivationGroup} : num_inputs;
  for (size_t begin = 0; begin < num_inputs; begin += group_size) {
    const size_t size = std::min(group_size, num_inputs - begin);
    float largest = largest_magnitude(x + begin, size);
    if (!is_grouped) largest = std::max(largest, row_magnitude);  // NaN stays
    const auto start = static_cast<int64_t>(begin);
    const ActivationStep step =
        has_blocks ? block_step(quant, start, largest) : activation_step(quant, largest);
    if (has_blocks || is_s8) {
      const QuantLimits limits = has_blocks ? block_limits(quant, start) : kS8Limits;
      round_to_integers(x + begin, size, step, limits, rounded + begin);
    } else {
      round_to_e4m3(x + begin, size, step, rounded + begin);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley {

HWY_EXPORT(round_activations_target);

void round_activations_simd(const QuantParams& quant, const float* x, int64_t num_inputs,
                            float* rounded, float row_magnitude) {
  HWY_DYNAMIC_DISPATCH(round_activations_target)
  (quant, x, static_cast<size_t>(num_inputs), rounded, row_magnitude);
}

}  // namespace halley
#endif  // HWY_ONCE
