// The codes of the quad layouts as exact f32 weights, in registers. Compiled once for each of
// Highway's targets.
#if defined(HALLEY_KERNELS_GEMM_QUAD_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HALLEY_KERNELS_GEMM_QUAD_WEIGHTS_INL_H_
#undef HALLEY_KERNELS_GEMM_QUAD_WEIGHTS_INL_H_
#else
#define HALLEY_KERNELS_GEMM_QUAD_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "halley/base/checked_math.h"
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
using CodeVec = hn::Vec<U32>;
constexpr int64_t kQuadInputs = 4;
constexpr int64_t kPairInputs = 2 * kQuadInputs;
constexpr size_t kUnitPairs = kQuadUnitInputs / kPairInputs;

// How to read one layout: load<kOdd>() gives the codes of quad 2 * pair + kOdd of a unit for the
// features of vector v, those of one feature in the 4 bytes of a lane; raw<J>() the J-th of them as
// numbers that are kRawScale times too small, raw_at() the same for any J.

HWY_INLINE CodeVec load_lanes(const std::byte* row, int v) {
  return hn::Load(U32(), reinterpret_cast<const uint32_t*>(row) + v * kLanes);
}

// Byte J of every lane as a number.
template <int J>
HWY_INLINE CodeVec byte_of(CodeVec codes) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (J == 1 || J == 2) {
    constexpr uint32_t kNoByte = 0x80808000u;  // gives zeros
    alignas(16) static constexpr uint32_t kPlaces[4] = {kNoByte + J, kNoByte + 4 + J,
                                                        kNoByte + 8 + J, kNoByte + 12 + J};
    return hn::TableLookupBytesOr0(codes, hn::LoadDup128(U32(), kPlaces));
  }
#endif
  if constexpr (J > 0) codes = hn::ShiftRight<8 * J>(codes);
  if constexpr (J < 3) codes = hn::And(codes, hn::Set(U32(), 0xFF));
  return codes;
}

// Codes that QuantParams explain, four in a lane.
template <class Codes>
struct GroupedCodes {
  using Quad = CodeVec;
  static constexpr bool kHasGroups = true;

  static HWY_INLINE Vec raw_at(Quad codes, int64_t j) {
    return Codes::template raw<0>(hn::ShiftRightSame(codes, static_cast<int>(8 * j)));
  }
};

struct IntegerCodes : GroupedCodes<IntegerCodes> {
  static constexpr float kRawScale = 1.0f;

  template <int J>
  static HWY_INLINE Vec raw(CodeVec codes) {
    return hn::ConvertTo(F32(), hn::BitCast(I32(), byte_of<J>(codes)));
  }
};

struct U8Codes : IntegerCodes {
  static constexpr size_t kUnitBytes = 1024;

  template <int kOdd>
  static HWY_INLINE CodeVec load(const std::byte* unit, size_t pair, int v) {
    return load_lanes(unit + (2 * pair + kOdd) * kQuadValues, v);
  }
};

struct U4Codes : IntegerCodes {
  static constexpr size_t kUnitBytes = 512;

  template <int kOdd>
  static HWY_INLINE CodeVec load(const std::byte* unit, size_t pair, int v) {
    CodeVec lanes = load_lanes(unit + pair * kQuadValues, v);
    if constexpr (kOdd == 1) lanes = hn::ShiftRight<4>(lanes);
    return hn::And(lanes, hn::Set(U32(), 0x0F0F0F0F));
  }
};

struct U2Codes : IntegerCodes {
  static constexpr size_t kUnitBytes = 256;

  template <int kOdd>
  static HWY_INLINE CodeVec load(const std::byte* unit, size_t pair, int v) {
    const auto shift = static_cast<int>(pair % 2 * 4 + 2 * kOdd);
    const CodeVec lanes = load_lanes(unit + pair / 2 * kQuadValues, v);
    return hn::And(hn::ShiftRightSame(lanes, shift), hn::Set(U32(), 0x03030303));
  }
};

struct U3Codes : IntegerCodes {
  static constexpr size_t kUnitBytes = 384;

  template <int kOdd>
  static HWY_INLINE CodeVec load(const std::byte* unit, size_t pair, int v) {
    const auto shift = static_cast<int>(2 * pair + kOdd);
    const CodeVec lanes = load_lanes(unit + 2 * kQuadValues, v);
    const CodeVec high = hn::And(hn::ShiftRightSame(lanes, shift), hn::Set(U32(), 0x01010101));
    return hn::Or(U2Codes::load<kOdd>(unit, pair, v), hn::ShiftLeft<2>(high));
  }
};

struct F8E4M3Codes : GroupedCodes<F8E4M3Codes> {
  static constexpr size_t kUnitBytes = 1024;
  // Sign, exponent and mantissa at their places in an f32 are the value times 2^-120, subnormals
  // included.
  static constexpr float kRawScale = 0x1p120f;

  template <int kOdd>
  static HWY_INLINE CodeVec load(const std::byte* unit, size_t pair, int v) {
    return U8Codes::load<kOdd>(unit, pair, v);
  }
  template <int J>
  static HWY_INLINE Vec raw(CodeVec codes) {
    if constexpr (J < 3) codes = hn::ShiftLeft<8 * (3 - J)>(codes);
    const auto spread = hn::BitCast(U32(), hn::ShiftRight<4>(hn::BitCast(I32(), codes)));
    const auto number = hn::And(spread, hn::Set(U32(), 0x87F00000u));
    const auto nan = hn::Set(U32(), 0x07F00000u);
    const auto is_nan = hn::Eq(hn::And(spread, nan), nan);
    return hn::BitCast(F32(), hn::Or(number, hn::VecFromMask(U32(), is_nan)));
  }
};

// Both bytes of core/nested_float.h, joined to the f16 numbers of a lane, two in a vector.
struct NestedF16Codes {
  struct Quad {
    CodeVec even, odd;  // inputs 0 and 2, 1 and 3: the later in the high half
  };
  static constexpr size_t kUnitBytes = 1024;
  static constexpr bool kHasGroups = false;
  // Exponent and mantissa at their places in an f32 are the value times 2^-112.
  static constexpr float kRawScale = 0x1p112f;

  template <int kOdd>
  static HWY_INLINE Quad load(const std::byte* unit, const std::byte* lower_unit, size_t pair,
                              int v) {
    const CodeVec upper = U8Codes::load<kOdd>(unit, pair, v);
    const CodeVec lower = U8Codes::load<kOdd>(lower_unit, pair, v);
    // join_f16() in all bytes at once. None borrows from its neighbour: where a lower byte begins
    // with 1, the last 7 bits of the upper one are above zero.
    const CodeVec is_up = hn::And(hn::ShiftRight<7>(lower), hn::Set(U32(), 0x01010101));
    const CodeVec top = hn::And(hn::Sub(upper, is_up), hn::Set(U32(), 0x7E7E7E7E));
    const CodeVec high = hn::Or(hn::ShiftRight<1>(top), hn::And(upper, hn::Set(U32(), 0x80808080)));
    const CodeVec second = hn::Set(U32(), 0xFF00FF00);
    return {.even = hn::Or(hn::And(hn::ShiftLeft<8>(high), second), hn::AndNot(second, lower)),
            .odd = hn::Or(hn::And(high, second), hn::AndNot(second, hn::ShiftRight<8>(lower)))};
  }
  template <int J>
  static HWY_INLINE Vec raw(const Quad& quad) {
    CodeVec half = J % 2 == 0 ? quad.even : quad.odd;
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
struct NestedF8Codes {
  using Quad = CodeVec;
  static constexpr size_t kUnitBytes = 1024;
  static constexpr bool kHasGroups = false;
  static constexpr float kRawScale = 0x1p112f;

  template <int kOdd>
  static HWY_INLINE Quad load(const std::byte* unit, const std::byte*, size_t pair, int v) {
    return U8Codes::load<kOdd>(unit, pair, v);
  }
  template <int J>
  static HWY_INLINE Vec raw(Quad codes) {
    if constexpr (J < 3) codes = hn::ShiftLeft<8 * (3 - J)>(codes);
    const auto spread = hn::BitCast(U32(), hn::ShiftRight<4>(hn::BitCast(I32(), codes)));
    return hn::BitCast(F32(), hn::And(spread, hn::Set(U32(), 0x87F00000u)));
  }
  static HWY_INLINE Vec raw_at(Quad codes, int64_t j) {
    return raw<0>(hn::ShiftRightSame(codes, static_cast<int>(8 * j)));
  }
};

// The scales and zeros of one group of a panel, and what they make of raw numbers.
struct GroupParams {
  Vec scale[kPanelVecs];
  Vec zero[kPanelVecs];
};

// raw * scale - zero, where `scale` holds scale * kRawScale and `zero` what is to be subtracted.
template <class Codes>
struct FusedGroup : GroupParams {
  HWY_INLINE Vec weight(Vec raw, int v) const { return hn::MulSub(raw, scale[v], zero[v]); }
};

// The definition, operation after operation.
template <class Codes>
struct PlainGroup : GroupParams {
  ZeroKind zero_kind;

  HWY_INLINE Vec weight(Vec raw, int v) const {
    const Vec value = hn::Mul(raw, hn::Set(F32(), Codes::kRawScale));
    if (zero_kind == ZeroKind::kOffset) return hn::MulSub(value, scale[v], zero[v]);
    return hn::Mul(hn::Sub(value, zero[v]), scale[v]);
  }
};

// No scales and zeros at all.
template <class Codes>
struct PlainNumbers {
  HWY_INLINE Vec weight(Vec raw, int) const {
    return hn::Mul(raw, hn::Set(F32(), Codes::kRawScale));
  }
};

// Whether FusedGroup gives what PlainGroup gives, rounded once, and its parameters. It does where
// scale * kRawScale is finite and, for zero points, scale * zero is exact: as with scales of f16 or
// bf16 and the whole zeros that checkpoints have.
template <class Codes>
HWY_NOINLINE bool fuse(const float* params, ZeroKind zero_kind, FusedGroup<Codes>* group) {
  constexpr float kScaleMax = std::numeric_limits<float>::max() / Codes::kRawScale;
  auto excess = hn::Zero(F32());  // of scales over the largest, or a rounding error
  HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
    const Vec scale = hn::Load(F32(), params + v * kLanes);
    const Vec zero = hn::Load(F32(), params + kPanelRows + v * kLanes);
    const Vec offset = zero_kind == ZeroKind::kPoint ? hn::Mul(scale, zero) : zero;
    if (zero_kind == ZeroKind::kPoint) {
      excess = hn::Max(excess, hn::Abs(hn::MulSub(scale, zero, offset)));
    }
    if constexpr (Codes::kRawScale != 1.0f) {
      const auto is_large = hn::Gt(hn::Abs(scale), hn::Set(F32(), kScaleMax));
      excess = hn::IfThenElse(is_large, hn::Set(F32(), 1.0f), excess);
    }
    group->scale[v] = hn::Mul(scale, hn::Set(F32(), Codes::kRawScale));
    group->zero[v] = offset;
  }
  return hn::AllTrue(F32(), hn::Eq(excess, hn::Zero(F32())));
}

template <class Codes>
HWY_INLINE PlainGroup<Codes> plain_group(const float* params, ZeroKind zero_kind) {
  PlainGroup<Codes> group;
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

// A panel's codes; `lower` is the second plane of layouts that have two.
struct Planes {
  const std::byte* data;
  const std::byte* lower;
};

// Where the two quads from input k of a panel lie, k a multiple of 8.
template <class Codes>
struct PairPlace {
  const std::byte* unit;
  const std::byte* lower_unit;
  size_t pair;

  PairPlace(Planes panel, int64_t k)
      : unit(panel.data + unit_begin(k)),
        lower_unit(panel.lower + (Codes::kHasGroups ? 0 : unit_begin(k))),
        pair(static_cast<size_t>(k) / size_t{kPairInputs} % kUnitPairs) {}
  template <int kOdd>
  HWY_INLINE typename Codes::Quad load(int v) const {
    if constexpr (Codes::kHasGroups) {
      return Codes::template load<kOdd>(unit, pair, v);
    } else {
      return Codes::template load<kOdd>(unit, lower_unit, pair, v);
    }
  }

 private:
  static HWY_INLINE size_t unit_begin(int64_t k) {
    return static_cast<size_t>(k) / kQuadUnitInputs * Codes::kUnitBytes;
  }
};

// Gives sink.take(place, v, w) every vector of weights of one input of a quad, where place is what
// sink.at(k) gave.
template <int J, class Codes, class Group, class Sink>
HWY_INLINE void take_input(const typename Codes::Quad (&codes)[kPanelVecs], int64_t k,
                           const Group& group, Sink& sink) {
  const auto place = sink.at(k + J);
  HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
    sink.take(place, v, group.weight(Codes::template raw<J>(codes[v]), v));
  }
}

// Input by input: the sums of all vectors advance together, and none waits for its own last step.
template <int kOdd, class Codes, class Group, class Sink>
HWY_INLINE void take_quad(const PairPlace<Codes>& place, int64_t k, const Group& group,
                          Sink& sink) {
  if constexpr (kNumRegisters < 32) {
    // Has scales and zeros read again: kept in registers, they would push sums out.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  typename Codes::Quad codes[kPanelVecs];
  HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
    codes[v] = place.template load<kOdd>(v);
  }
  take_input<0, Codes>(codes, k, group, sink);
  take_input<1, Codes>(codes, k, group, sink);
  take_input<2, Codes>(codes, k, group, sink);
  take_input<3, Codes>(codes, k, group, sink);
}

// The weights of a range inside one group, one input at a time.
template <class Codes, class Group, class Sink>
HWY_NOINLINE void take_inputs(Planes panel, const InputRange& range, const Group& group,
                              Sink* sink) {
  for (int64_t k = range.begin; k < range.end; ++k) {
    const PairPlace<Codes> pair(panel, k);
    const bool is_odd = k % kPairInputs >= kQuadInputs;
    const auto place = sink->at(k);
    HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
      const auto quad = is_odd ? pair.template load<1>(v) : pair.template load<0>(v);
      sink->take(place, v, group.weight(Codes::raw_at(quad, k % kQuadInputs), v));
    }
  }
}

// The weights of whole pairs of quads inside one group.
template <class Codes, class Group, class Sink>
HWY_NOINLINE void take_pairs(Planes panel, const InputRange& range, const Group& group,
                             Sink* sink) {
  Sink hot = *sink;  // nobody has its address: it stays in registers
  for (int64_t k = range.begin; k < range.end; k += kPairInputs) {
    const PairPlace<Codes> place(panel, k);
    take_quad<0>(place, k, group, hot);
    take_quad<1>(place, k + kQuadInputs, group, hot);
  }
  *sink = hot;
}

// Whole pairs at once, what is before and behind them one input at a time.
template <class Codes, class Group, class Sink>
HWY_INLINE void take_all(Planes panel, const InputRange& range, const Group& group, Sink* sink) {
  const int64_t pairs_begin = std::min(range.end, round_up(range.begin, kPairInputs));
  const int64_t pairs_end = std::max(pairs_begin, range.end / kPairInputs * kPairInputs);
  take_inputs<Codes>(panel, {range.begin, pairs_begin}, group, sink);
  take_pairs<Codes>(panel, {pairs_begin, pairs_end}, group, sink);
  take_inputs<Codes>(panel, {pairs_end, range.end}, group, sink);
}

// The weights of a range inside one group.
template <class Codes, class Sink>
HWY_INLINE void take_group(Planes panel, const InputRange& range, const float* params,
                           ZeroKind zero_kind, Sink* sink) {
  FusedGroup<Codes> group;
  if (fuse<Codes>(params, zero_kind, &group)) return take_all<Codes>(panel, range, group, sink);
  take_inputs<Codes>(panel, range, plain_group<Codes>(params, zero_kind), sink);
}

// The same for codes with groups, group after group.
template <class Codes, class Sink>
HWY_INLINE void take_groups(Planes planes, const Panel& panel, const InputRange& range,
                            Sink* sink) {
  const int64_t group_size = panel.quant->group_size;
  int64_t k = range.begin;
  for (int64_t index = k / group_size; k < range.end; ++index) {
    const InputRange part{k, std::min(range.end, (index + 1) * group_size)};
    take_group<Codes>(planes, part, panel.groups + index * 2 * kPanelRows, panel.quant->zero_kind,
                      sink);
    k = part.end;
  }
}

// The weights of a range of a panel, in the order of k.
template <class Codes, class Sink>
HWY_INLINE void take_range(const Panel& panel, const InputRange& range, Sink* sink) {
  const Planes planes{panel.data, panel.lower};
  if constexpr (!Codes::kHasGroups) {
    return take_all<Codes>(planes, range, PlainNumbers<Codes>(), sink);
  } else {
    take_groups<Codes>(planes, panel, range, sink);
  }
}

}  // namespace halley::panel_gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
