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

#include "halley/kernels/attention/attention_unit.h"
#include "halley/kernels/base/vector_math-inl.h"
#include "halley/kernels/kv/kv_dtype.h"

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {

// Loads one vector of elements. kPerUnit: elements in one T.

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

  template <class D, class V8>
  HWY_INLINE hn::Vec<D> value_of(D d, V8 quantized) const {
    const hn::RebindToSigned<D> di;
    const auto number = hn::ConvertTo(d, hn::PromoteTo(di, quantized));
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
  using T = int8_t;
  static constexpr size_t kPerUnit = 1;
  static constexpr int32_t kSign = INT32_MIN, kMagnitude = 0x7F << 20;

  float scale;

  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const int8_t* from) const {
    const hn::Rebind<int8_t, D> d8;
    const hn::RebindToSigned<D> di;
    // Shifts sign, exponent and mantissa to the bits that f32 has for them; the exponent is then
    // 120 too small, and the multiplication also normalises subnormals.
    const auto quantized = hn::PromoteTo(di, hn::LoadU(d8, from));
    const auto bits = hn::And(hn::ShiftLeft<20>(quantized), hn::Set(di, kSign | kMagnitude));
    const auto number = hn::Mul(hn::BitCast(d, bits), hn::Set(d, 0x1p120f));
    const auto is_nan = hn::Eq(hn::And(bits, hn::Set(di, kMagnitude)), hn::Set(di, kMagnitude));
    const auto nan = hn::IfThenElseZero(is_nan, hn::Set(di, 0x7FC00000));
    return hn::Mul(hn::Or(number, hn::BitCast(d, nan)), hn::Set(d, scale));
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
  hn::Store(load(d, rest), d, to + i);  // the padding's values are not read
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
  size_t row_bytes;
  int64_t stride;
};

// load_of(r) loads elements of row r.
template <class LoadOf>
HWY_INLINE void convert_rows_of(const RowShape& shape, const PageRows& rows, float* to,
                                const LoadOf& load_of) {
  const hn::ScalableTag<float> d;
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    const auto index = static_cast<size_t>(row);
    convert_elements(d, rows.from + index * shape.row_bytes, static_cast<size_t>(shape.head_dim),
                     to + row * shape.stride, load_of(index));
  }
}

template <class Load>
HWY_INLINE void convert_int_rows(const RowShape& shape, const PageRows& rows, float* to) {
  HWY_ALIGN float scales[2 * kTileTokens];  // scale and zero of each row
  convert_elements(hn::ScalableTag<float>(), rows.scales, static_cast<size_t>(2 * rows.num_rows),
                   scales, LoadF16());
  convert_rows_of(shape, rows, to, [&](size_t row) {
    Load load;
    load.scale = scales[2 * row];
    load.zero = scales[2 * row + 1];
    return load;
  });
}

// Rows as f32; `to` is aligned. At most kTileTokens rows.
inline void convert_rows(const RowShape& shape, const PageRows& rows, float* to) {
  switch (shape.dtype) {
    case KvDType::kF32:
      return convert_rows_of(shape, rows, to, [](size_t) { return LoadF32(); });
    case KvDType::kF16:
      return convert_rows_of(shape, rows, to, [](size_t) { return LoadF16(); });
    case KvDType::kBf16:
      return convert_rows_of(shape, rows, to, [](size_t) { return LoadBf16(); });
    case KvDType::kInt8:
      return convert_int_rows<LoadInt8>(shape, rows, to);
    case KvDType::kInt4:
      return convert_int_rows<LoadInt4>(shape, rows, to);
    case KvDType::kFp8E4M3:
      return convert_rows_of(shape, rows, to, [&](size_t row) {
        float scale;
        std::memcpy(&scale, rows.scales + row * sizeof(scale), sizeof(scale));
        return LoadE4M3{scale};
      });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#endif  // HALLEY_KERNELS_ATTENTION_ROWS_INL_H_
