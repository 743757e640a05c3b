// Rows of keys or values in a page, of any type of the cache, as f32.
#if defined(HALLEY_KERNELS_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HALLEY_KERNELS_ATTENTION_ROWS_INL_H_
#undef HALLEY_KERNELS_ATTENTION_ROWS_INL_H_
#else
#define HALLEY_KERNELS_ATTENTION_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "halley/core/float16.h"
#include "halley/kernels/base/vector_math-inl.h"
#include "halley/kernels/kv/kv_dtype.h"

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {

// What loads one vector of elements. kPerUnit: elements in one T.

struct LoadF32 {
  using T = float;
  static constexpr size_t kPerUnit = 1;

  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const float* from) const {
    return hn::LoadU(d, from);
  }
};
struct LoadF16 {
  using T = uint16_t;
  static constexpr size_t kPerUnit = 1;

  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const uint16_t* from) const {
    return load_f16(d, from);
  }
};
struct LoadBf16 {
  using T = uint16_t;
  static constexpr size_t kPerUnit = 1;

  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const uint16_t* from) const {
    return load_bf16(d, from);
  }
};

struct LoadInt8 {
  using T = uint8_t;
  static constexpr size_t kPerUnit = 1;

  float scale, zero;

  explicit LoadInt8(const std::byte* scales) {
    uint16_t bits[2];
    std::memcpy(bits, scales, sizeof(bits));
    scale = f16_to_f32(bits[0]);
    zero = f16_to_f32(bits[1]);
  }
  template <class D, class V8>
  HWY_INLINE hn::Vec<D> value_of(D d, V8 codes) const {
    const hn::RebindToSigned<D> di;
    const auto number = hn::ConvertTo(d, hn::PromoteTo(di, codes));
    return hn::MulAdd(number, hn::Set(d, scale), hn::Set(d, zero));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const uint8_t* from) const {
    const hn::Rebind<uint8_t, D> d8;
    return value_of(d, hn::LoadU(d8, from));
  }
};

struct LoadInt4 : LoadInt8 {
  static constexpr size_t kPerUnit = 2;

  using LoadInt8::LoadInt8;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const uint8_t* from) const {
    const hn::Rebind<uint8_t, D> d8;
    const hn::Repartition<uint16_t, decltype(d8)> d16;
    const hn::Rebind<uint8_t, decltype(d16)> d_pairs;
    // A byte with halves h and l becomes the two bytes l, h.
    const auto wide = hn::PromoteTo(d16, hn::LoadU(d_pairs, from));
    const auto halves = hn::And(hn::Or(wide, hn::ShiftLeft<4>(wide)), hn::Set(d16, 0x0F0Fu));
    return value_of(d, hn::BitCast(d8, halves));
  }
};

struct LoadE4M3 {
  using T = uint8_t;
  static constexpr size_t kPerUnit = 1;

  float scale;

  explicit LoadE4M3(const std::byte* scales) { std::memcpy(&scale, scales, sizeof(scale)); }
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const uint8_t* from) const {
    const hn::Rebind<uint8_t, D> d8;
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::PromoteTo(du, hn::LoadU(d8, from));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7Fu));
    const auto sign = hn::ShiftLeft<24>(hn::Xor(bits, magnitude));
    // f32 with an exponent bias of 127 for 7. Subnormals get the exponent of the smallest normal
    // number, whose leading 1 is then subtracted.
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(du, 8u));
    const auto lift = hn::IfThenElseZero(is_subnormal, hn::Set(du, 1u << 23));
    const auto leading = hn::IfThenElseZero(is_subnormal, hn::BitCast(du, hn::Set(d, 0x1p-6f)));
    const auto lifted =
        hn::Add(hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 120u << 23)), lift);
    const auto number = hn::Sub(hn::BitCast(d, lifted), hn::BitCast(d, leading));
    const auto is_nan = hn::Eq(magnitude, hn::Set(du, 0x7Fu));
    const auto nan = hn::IfThenElseZero(is_nan, hn::Set(du, 0x7FC00000u));
    const auto value = hn::Or(hn::Or(hn::BitCast(du, number), sign), nan);
    return hn::Mul(hn::BitCast(d, value), hn::Set(d, scale));
  }
};

template <class D, class Load>
HWY_INLINE void convert_elements(D d, const std::byte* from, size_t size, float* to,
                                 const Load& load) {
  using T = typename Load::T;
  const T* units = reinterpret_cast<const T*>(from);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    hn::Store(load(d, units + i / Load::kPerUnit), d, to + i);
  }
  if (i == size) return;
  HWY_ALIGN T rest[hn::MaxLanes(D())] = {};
  const size_t num_units = (size - i + Load::kPerUnit - 1) / Load::kPerUnit;
  std::memcpy(rest, units + i / Load::kPerUnit, num_units * sizeof(T));
  hn::Store(load(d, rest), d, to + i);  // the padding's numbers are not looked at
}

#if HWY_TARGET == HWY_SCALAR
// One lane cannot hold the two elements of a byte.
template <class D>
HWY_INLINE void convert_elements(D /*d*/, const std::byte* from, size_t size, float* to,
                                 const LoadInt4& load) {
  for (size_t i = 0; i < size; ++i) {
    const auto both = static_cast<int>(from[i / 2]);
    to[i] = static_cast<float>(i % 2 == 0 ? both & 15 : both >> 4) * load.scale + load.zero;
  }
}
#endif

// Consecutive rows of one head in a page.
struct PageRows {
  const std::byte* from;
  const std::byte* scales;  // null for types that have none
  int64_t num_rows;
};

// How rows are stored, and where they go: `stride` apart, which has room for whole vectors.
struct RowShape {
  KvDType dtype;
  int64_t head_dim;
  size_t row_bytes, scale_bytes;
  int64_t stride;
};

template <class MakeLoad>
HWY_INLINE void convert_rows_of(const RowShape& shape, const PageRows& rows, float* to,
                                const MakeLoad& load_of) {
  const hn::ScalableTag<float> d;
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    const auto index = static_cast<size_t>(row);
    convert_elements(d, rows.from + index * shape.row_bytes, static_cast<size_t>(shape.head_dim),
                     to + row * shape.stride, load_of(rows.scales + index * shape.scale_bytes));
  }
}

// Rows as f32; `to` is aligned.
inline void convert_rows(const RowShape& shape, const PageRows& rows, float* to) {
  switch (shape.dtype) {
    case KvDType::kF32:
      return convert_rows_of(shape, rows, to, [](const std::byte*) { return LoadF32(); });
    case KvDType::kF16:
      return convert_rows_of(shape, rows, to, [](const std::byte*) { return LoadF16(); });
    case KvDType::kBf16:
      return convert_rows_of(shape, rows, to, [](const std::byte*) { return LoadBf16(); });
    case KvDType::kInt8:
      return convert_rows_of(shape, rows, to, [](const std::byte* s) { return LoadInt8(s); });
    case KvDType::kInt4:
      return convert_rows_of(shape, rows, to, [](const std::byte* s) { return LoadInt4(s); });
    case KvDType::kFp8E4M3:
      return convert_rows_of(shape, rows, to, [](const std::byte* s) { return LoadE4M3(s); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#endif  // HALLEY_KERNELS_ATTENTION_ROWS_INL_H_
