// Dequantizes the quad layouts to exact f32 weights, in registers. Compiled once for each of
// Highway's targets.
#if defined(HALLEY_KERNELS_GEMM_QUAD_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HALLEY_KERNELS_GEMM_QUAD_WEIGHTS_INL_H_
#undef HALLEY_KERNELS_GEMM_QUAD_WEIGHTS_INL_H_
#else
#define HALLEY_KERNELS_GEMM_QUAD_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "halley/base/checked_math.h"
#include "halley/core/float4.h"
#include "halley/kernels/gemm/panel_tile-inl.h"

// Loops over the vectors of a panel's width. One feature at a time there is nothing to keep in
// registers, and the code would be large.
#undef HALLEY_UNROLL_PANEL
#if HWY_TARGET == HWY_SCALAR
#define HALLEY_UNROLL_PANEL _Pragma("GCC unroll 1")
#else
#define HALLEY_UNROLL_PANEL HALLEY_UNROLL
#endif

HWY_BEFORE_NAMESPACE();
namespace halley::panel_gemm::HWY_NAMESPACE {

using I32 = hn::RebindToSigned<F32>;
using QuantVec = hn::Vec<U32>;
constexpr int64_t kQuadInputs = 4;
constexpr int64_t kPairInputs = 2 * kQuadInputs;
constexpr size_t kUnitPairs = kQuadUnitInputs / kPairInputs;

// Readers of one layout each: load<kOdd>() gives the quantized values of quad 2 * pair + kOdd of a
// unit for the features of vector v, those of one feature in the 4 bytes of a lane; raw<J>() the
// J-th of them as f32, kRawScale times too small, raw_at() the same for any J.

HWY_INLINE QuantVec load_lanes(const std::byte* row, int v) {
  return hn::Load(U32(), reinterpret_cast<const uint32_t*>(row) + v * kLanes);
}

// Byte J of every lane as an integer.
template <int J>
HWY_INLINE QuantVec byte_of(QuantVec quantized) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (J == 1 || J == 2) {
    constexpr uint32_t kNoByte = 0x80808000u;  // gives zeros
    alignas(16) static constexpr uint32_t kIndices[4] = {kNoByte + J, kNoByte + 4 + J,
                                                         kNoByte + 8 + J, kNoByte + 12 + J};
    return hn::TableLookupBytesOr0(quantized, hn::LoadDup128(U32(), kIndices));
  }
#endif
  if constexpr (J > 0) quantized = hn::ShiftRight<8 * J>(quantized);
  if constexpr (J < 3) quantized = hn::And(quantized, hn::Set(U32(), 0xFF));
  return quantized;
}

// Values that QuantParams dequantize, four in a lane.
template <class Values>
struct GroupedValues {
  using Quad = QuantVec;
  static constexpr bool kHasGroups = true;

  static HWY_INLINE Vec raw_at(Quad quantized, int64_t j) {
    return Values::template raw<0>(hn::ShiftRightSame(quantized, static_cast<int>(8 * j)));
  }
};

struct IntegerValues : GroupedValues<IntegerValues> {
  static constexpr float kRawScale = 1.0f;

  template <int J>
  static HWY_INLINE Vec raw(QuantVec quantized) {
    return hn::ConvertTo(F32(), hn::BitCast(I32(), byte_of<J>(quantized)));
  }
};

struct U8Values : IntegerValues {
  static constexpr size_t kUnitBytes = 1024;

  template <int kOdd>
  static HWY_INLINE QuantVec load(const std::byte* unit, size_t pair, int v) {
    return load_lanes(unit + (2 * pair + kOdd) * kQuadValues, v);
  }
};

struct U4Values : IntegerValues {
  static constexpr size_t kUnitBytes = 512;

  template <int kOdd>
  static HWY_INLINE QuantVec load(const std::byte* unit, size_t pair, int v) {
    QuantVec lanes = load_lanes(unit + pair * kQuadValues, v);
    if constexpr (kOdd == 1) lanes = hn::ShiftRight<4>(lanes);
    return hn::And(lanes, hn::Set(U32(), 0x0F0F0F0F));
  }
};

struct U2Values : IntegerValues {
  static constexpr size_t kUnitBytes = 256;

  template <int kOdd>
  static HWY_INLINE QuantVec load(const std::byte* unit, size_t pair, int v) {
    const auto shift = static_cast<int>(pair % 2 * 4 + 2 * kOdd);
    const QuantVec lanes = load_lanes(unit + pair / 2 * kQuadValues, v);
    return hn::And(hn::ShiftRightSame(lanes, shift), hn::Set(U32(), 0x03030303));
  }
};

struct U3Values : IntegerValues {
  static constexpr size_t kUnitBytes = 384;

  template <int kOdd>
  static HWY_INLINE QuantVec load(const std::byte* unit, size_t pair, int v) {
    const auto shift = static_cast<int>(2 * pair + kOdd);
    const QuantVec lanes = load_lanes(unit + 2 * kQuadValues, v);
    const QuantVec high = hn::And(hn::ShiftRightSame(lanes, shift), hn::Set(U32(), 0x01010101));
    return hn::Or(U2Values::load<kOdd>(unit, pair, v), hn::ShiftLeft<2>(high));
  }
};

struct F8E4M3Values : GroupedValues<F8E4M3Values> {
  static constexpr size_t kUnitBytes = 1024;
  // Sign, exponent and mantissa at the bits that f32 has for them are the value times 2^-120,
  // subnormals included.
  static constexpr float kRawScale = 0x1p120f;

  template <int kOdd>
  static HWY_INLINE QuantVec load(const std::byte* unit, size_t pair, int v) {
    return U8Values::load<kOdd>(unit, pair, v);
  }
  template <int J>
  static HWY_INLINE Vec raw(QuantVec quantized) {
    if constexpr (J < 3) quantized = hn::ShiftLeft<8 * (3 - J)>(quantized);
    const auto spread = hn::BitCast(U32(), hn::ShiftRight<4>(hn::BitCast(I32(), quantized)));
    const auto number = hn::And(spread, hn::Set(U32(), 0x87F00000u));
    const auto nan = hn::Set(U32(), 0x07F00000u);
    const auto is_nan = hn::Eq(hn::And(spread, nan), nan);
    return hn::BitCast(F32(), hn::Or(number, hn::VecFromMask(U32(), is_nan)));
  }
};

// Signed bytes: twice the values.
struct E2m1Values : GroupedValues<E2m1Values> {
  static constexpr size_t kUnitBytes = U4Values::kUnitBytes;
  static constexpr float kRawScale = 0.5f;

  template <int kOdd>
  static HWY_INLINE QuantVec load(const std::byte* unit, size_t pair, int v) {
    const QuantVec lanes = U4Values::load<kOdd>(unit, pair, v);
#if HWY_TARGET == HWY_SCALAR
    uint32_t halves = 0;
    for (int i = 0; i < 4; ++i) {
      const auto half = static_cast<uint8_t>(kE2m1Halves[hn::GetLane(lanes) >> (8 * i) & 15u]);
      halves |= uint32_t{half} << (8 * i);
    }
    return hn::Set(U32(), halves);
#else
    alignas(16) static constexpr std::array<int8_t, 16> kHalves = kE2m1Halves;
    const auto table = hn::LoadDup128(U32(), reinterpret_cast<const uint32_t*>(kHalves.data()));
    return hn::TableLookupBytes(table, lanes);
#endif
  }
  template <int J>
  static HWY_INLINE Vec raw(QuantVec quantized) {
    if constexpr (J < 3) quantized = hn::ShiftLeft<8 * (3 - J)>(quantized);
    return hn::ConvertTo(F32(), hn::ShiftRight<24>(hn::BitCast(I32(), quantized)));
  }
};

// Both bytes of core/nested_float.h, joined to the f16 values of a lane, in two vectors.
struct NestedF16Values {
  struct Quad {
    QuantVec even, odd;  // inputs 0 and 2, 1 and 3: the later in the high half
  };
  static constexpr size_t kUnitBytes = 1024;
  static constexpr bool kHasGroups = false;
  // Exponent and mantissa at the bits that f32 has for them are the value times 2^-112.
  static constexpr float kRawScale = 0x1p112f;

  template <int kOdd>
  static HWY_INLINE Quad load(const std::byte* unit, const std::byte* lower_unit, size_t pair,
                              int v) {
    const QuantVec upper = U8Values::load<kOdd>(unit, pair, v);
    const QuantVec lower = U8Values::load<kOdd>(lower_unit, pair, v);
    // join_f16() in all bytes at once. None borrows from its neighbour: where a lower byte begins
    // with 1, the last 7 bits of the upper one are above zero.
    const QuantVec is_up = hn::And(hn::ShiftRight<7>(lower), hn::Set(U32(), 0x01010101));
    const QuantVec top = hn::And(hn::Sub(upper, is_up), hn::Set(U32(), 0x7E7E7E7E));
    const QuantVec high =
        hn::Or(hn::ShiftRight<1>(top), hn::And(upper, hn::Set(U32(), 0x80808080)));
    const QuantVec second = hn::Set(U32(), 0xFF00FF00);
    return {.even = hn::Or(hn::And(hn::ShiftLeft<8>(high), second), hn::AndNot(second, lower)),
            .odd = hn::Or(hn::And(high, second), hn::AndNot(second, hn::ShiftRight<8>(lower)))};
  }
  template <int J>
  static HWY_INLINE Vec raw(const Quad& quad) {
    QuantVec half = J % 2 == 0 ? quad.even : quad.odd;
    if constexpr (J < 2) half = hn::ShiftLeft<16>(half);
    const auto spread = hn::BitCast(U32(), hn::ShiftRight<3>(hn::BitCast(I32(), half)));
    return hn::BitCast(F32(), hn::And(spread, hn::Set(U32(), 0x8FFFE000u)));
  }
  static HWY_INLINE Vec raw_at(const Quad& quad, int64_t j) {
    if (j < 2) return j == 0 ? raw<0>(quad) : raw<1>(quad);
    return j == 2 ? raw<2>(quad) : raw<3>(quad);
  }
};

// The upper bytes alone, e4m3 without NaN times 2^-8.
struct NestedF8Values {
  using Quad = QuantVec;
  static constexpr size_t kUnitBytes = 1024;
  static constexpr bool kHasGroups = false;
  static constexpr float kRawScale = 0x1p112f;

  template <int kOdd>
  static HWY_INLINE Quad load(const std::byte* unit, const std::byte*, size_t pair, int v) {
    return U8Values::load<kOdd>(unit, pair, v);
  }
  template <int J>
  static HWY_INLINE Vec raw(Quad quantized) {
    if constexpr (J < 3) quantized = hn::ShiftLeft<8 * (3 - J)>(quantized);
    const auto spread = hn::BitCast(U32(), hn::ShiftRight<4>(hn::BitCast(I32(), quantized)));
    return hn::BitCast(F32(), hn::And(spread, hn::Set(U32(), 0x87F00000u)));
  }
  static HWY_INLINE Vec raw_at(Quad quantized, int64_t j) {
    return raw<0>(hn::ShiftRightSame(quantized, static_cast<int>(8 * j)));
  }
};

// The scales and zeros of one group of a panel, and how they dequantize raw values.
struct GroupParams {
  Vec scale[kPanelVecs];
  Vec zero[kPanelVecs];
};

// raw * scale - zero, where `scale` holds scale * kRawScale and `zero` the subtrahend.
template <class Values>
struct FusedGroup : GroupParams {
  HWY_INLINE Vec weight(Vec raw, int v) const { return hn::MulSub(raw, scale[v], zero[v]); }
};

// The definition, operation after operation.
template <class Values>
struct PlainGroup : GroupParams {
  ZeroKind zero_kind;

  HWY_INLINE Vec weight(Vec raw, int v) const {
    const Vec value = hn::Mul(raw, hn::Set(F32(), Values::kRawScale));
    if (zero_kind == ZeroKind::kOffset) return hn::MulSub(value, scale[v], zero[v]);
    return hn::Mul(hn::Sub(value, zero[v]), scale[v]);
  }
};

// No scales and zeros at all.
template <class Values>
struct PlainValues {
  HWY_INLINE Vec weight(Vec raw, int) const {
    return hn::Mul(raw, hn::Set(F32(), Values::kRawScale));
  }
};

// Whether FusedGroup gives what PlainGroup gives, rounded once, and its parameters. It does where
// scale * kRawScale is finite and exact and, for zero points, scale * zero is exact: as with scales
// of f16 or bf16 and the whole zeros that checkpoints have.
template <class Values>
HWY_NOINLINE bool fuse(const float* params, ZeroKind zero_kind, FusedGroup<Values>* group) {
  constexpr float kScaleMax = std::numeric_limits<float>::max() / std::max(1.0f, Values::kRawScale);
  constexpr float kScaleMin = std::numeric_limits<float>::min() / std::min(1.0f, Values::kRawScale);
  auto excess = hn::Zero(F32());  // of scales over the largest, or a rounding error
  HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
    const Vec scale = hn::Load(F32(), params + v * kLanes);
    const Vec zero = hn::Load(F32(), params + kPanelRows + v * kLanes);
    const Vec offset = zero_kind == ZeroKind::kPoint ? hn::Mul(scale, zero) : zero;
    if (zero_kind == ZeroKind::kPoint) {
      excess = hn::Max(excess, hn::Abs(hn::MulSub(scale, zero, offset)));
    }
    if constexpr (Values::kRawScale > 1.0f) {
      const auto is_large = hn::Gt(hn::Abs(scale), hn::Set(F32(), kScaleMax));
      excess = hn::IfThenElse(is_large, hn::Set(F32(), 1.0f), excess);
    }
    if constexpr (Values::kRawScale < 1.0f) {
      const auto is_small = hn::And(hn::Lt(hn::Abs(scale), hn::Set(F32(), kScaleMin)),
                                    hn::Ne(scale, hn::Zero(F32())));
      excess = hn::IfThenElse(is_small, hn::Set(F32(), 1.0f), excess);
    }
    group->scale[v] = hn::Mul(scale, hn::Set(F32(), Values::kRawScale));
    group->zero[v] = offset;
  }
  return hn::AllTrue(F32(), hn::Eq(excess, hn::Zero(F32())));
}

template <class Values>
HWY_INLINE PlainGroup<Values> plain_group(const float* params, ZeroKind zero_kind) {
  PlainGroup<Values> group;
  group.zero_kind = zero_kind;
  HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
    group.scale[v] = hn::Load(F32(), params + v * kLanes);
    group.zero[v] = hn::Load(F32(), params + kPanelRows + v * kLanes);
  }
  return group;
}

// k in [begin, end).
struct InputRange {
  int64_t begin, end;
};

// A panel's quantized values; `lower` is the second plane of layouts that have two.
struct Planes {
  const std::byte* data;
  const std::byte* lower;
};

// The address of the two quads from input k of a panel on, k a multiple of 8.
template <class Values>
struct PairAddress {
  const std::byte* unit;
  const std::byte* lower_unit;
  size_t pair;

  PairAddress(Planes panel, int64_t k)
      : unit(panel.data + unit_begin(k)),
        lower_unit(panel.lower + (Values::kHasGroups ? 0 : unit_begin(k))),
        pair(static_cast<size_t>(k) / size_t{kPairInputs} % kUnitPairs) {}
  template <int kOdd>
  HWY_INLINE typename Values::Quad load(int v) const {
    if constexpr (Values::kHasGroups) {
      return Values::template load<kOdd>(unit, pair, v);
    } else {
      return Values::template load<kOdd>(unit, lower_unit, pair, v);
    }
  }

 private:
  static HWY_INLINE size_t unit_begin(int64_t k) {
    return static_cast<size_t>(k) / kQuadUnitInputs * Values::kUnitBytes;
  }
};

// Calls sink.take(address, v, w) for every vector of weights of one input of a quad, where
// `address` is the result of sink.at(k).
template <int J, class Values, class Group, class Sink>
HWY_INLINE void take_input(const typename Values::Quad (&quantized)[kPanelVecs], int64_t k,
                           const Group& group, Sink& sink) {
  const auto address = sink.at(k + J);
  HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
    sink.take(address, v, group.weight(Values::template raw<J>(quantized[v]), v));
  }
}

// Input by input: the accumulators of all vectors advance together, and none waits for its own last
// step.
template <int kOdd, class Values, class Group, class Sink>
HWY_INLINE void take_quad(const PairAddress<Values>& address, int64_t k, const Group& group,
                          Sink& sink) {
  if constexpr (kNumRegisters < 32) {
    // The fence makes the compiler read scales and zeros again: kept in registers, they would push
    // accumulators out.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  typename Values::Quad quantized[kPanelVecs];
  HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
    quantized[v] = address.template load<kOdd>(v);
  }
  take_input<0, Values>(quantized, k, group, sink);
  take_input<1, Values>(quantized, k, group, sink);
  take_input<2, Values>(quantized, k, group, sink);
  take_input<3, Values>(quantized, k, group, sink);
}

// Dequantizes a range inside one group, one input at a time.
template <class Values, class Group, class Sink>
HWY_NOINLINE void take_inputs(Planes panel, const InputRange& range, const Group& group,
                              Sink* sink) {
  for (int64_t k = range.begin; k < range.end; ++k) {
    const PairAddress<Values> pair(panel, k);
    const bool is_odd = k % kPairInputs >= kQuadInputs;
    const auto address = sink->at(k);
    HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
      const auto quad = is_odd ? pair.template load<1>(v) : pair.template load<0>(v);
      sink->take(address, v, group.weight(Values::raw_at(quad, k % kQuadInputs), v));
    }
  }
}

// Dequantizes whole pairs of quads inside one group.
template <class Values, class Group, class Sink>
HWY_NOINLINE void take_pairs(Planes panel, const InputRange& range, const Group& group,
                             Sink* sink) {
  Sink hot = *sink;  // nobody has its address: it stays in registers
  for (int64_t k = range.begin; k < range.end; k += kPairInputs) {
    const PairAddress<Values> address(panel, k);
    take_quad<0>(address, k, group, hot);
    take_quad<1>(address, k + kQuadInputs, group, hot);
  }
  *sink = hot;
}

// Whole pairs at once, the inputs before and behind them one at a time.
template <class Values, class Group, class Sink>
HWY_INLINE void take_all(Planes panel, const InputRange& range, const Group& group, Sink* sink) {
  const int64_t pairs_begin = std::min(range.end, round_up(range.begin, kPairInputs));
  const int64_t pairs_end = std::max(pairs_begin, range.end / kPairInputs * kPairInputs);
  take_inputs<Values>(panel, {range.begin, pairs_begin}, group, sink);
  take_pairs<Values>(panel, {pairs_begin, pairs_end}, group, sink);
  take_inputs<Values>(panel, {pairs_end, range.end}, group, sink);
}

// Dequantizes a range inside one group.
template <class Values, class Sink>
HWY_INLINE void take_group(Planes panel, const InputRange& range, const float* params,
                           ZeroKind zero_kind, Sink* sink) {
  FusedGroup<Values> group;
  if (fuse<Values>(params, zero_kind, &group)) return take_all<Values>(panel, range, group, sink);
  take_inputs<Values>(panel, range, plain_group<Values>(params, zero_kind), sink);
}

// The same for quantized values with groups, group after group.
template <class Values, class Sink>
HWY_INLINE void take_groups(Planes planes, const Panel& panel, const InputRange& range,
                            Sink* sink) {
  const int64_t group_size = panel.quant->group_size;
  int64_t k = range.begin;
  for (int64_t index = k / group_size; k < range.end; ++index) {
    const InputRange part{k, std::min(range.end, (index + 1) * group_size)};
    take_group<Values>(planes, part, panel.groups + index * 2 * kPanelRows, panel.quant->zero_kind,
                       sink);
    k = part.end;
  }
}

// Dequantizes a range of a panel, in the order of k.
template <class Values, class Sink>
HWY_INLINE void take_range(const Panel& panel, const InputRange& range, Sink* sink) {
  const Planes planes{panel.data, panel.lower};
  if constexpr (!Values::kHasGroups) {
    return take_all<Values>(planes, range, PlainValues<Values>(), sink);
  } else {
    take_groups<Values>(planes, panel, range, sink);
  }
}

}  // namespace halley::panel_gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
