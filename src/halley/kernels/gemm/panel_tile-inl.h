// The register tile of the f32 panel kernels: rows of x times vectors of a panel. Compiled once for
// each of Highway's targets.
#if defined(HALLEY_KERNELS_GEMM_PANEL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HALLEY_KERNELS_GEMM_PANEL_TILE_INL_H_
#undef HALLEY_KERNELS_GEMM_PANEL_TILE_INL_H_
#else
#define HALLEY_KERNELS_GEMM_PANEL_TILE_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <bit>

#include <hwy/highway.h>

#include "halley/kernels/gemm/panel_kernel.h"

// Tiles live in registers only where every loop over them is unrolled.
#define HALLEY_UNROLL _Pragma("GCC unroll 32")

HWY_BEFORE_NAMESPACE();
namespace halley::panel_gemm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using U32 = hn::RebindToUnsigned<F32>;
using Vec = hn::Vec<F32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kPanelVecs = static_cast<int>(kPanelRows) / kLanes;

// Accumulators plus the vectors of one k plus a broadcast fill the register file. A full panel's
// width takes up to kAccumulatorsMax of them at small M; kPairRows rows leave room for pairs of k
// that are widened on the way.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kTileRows = 14, kTileVecs = 2, kPairRows = 12, kAccumulatorsMax = 28,
              kNumRegisters = 32;
#elif HWY_TARGET == HWY_NEON
constexpr int kTileRows = 6, kTileVecs = 4, kPairRows = 5, kAccumulatorsMax = 24,
              kNumRegisters = 32;
#elif HWY_TARGET == HWY_SCALAR
constexpr int kTileRows = 4, kTileVecs = 2, kPairRows = 4, kAccumulatorsMax = 8, kNumRegisters = 16;
#else  // AVX2, SSE4, SSSE3
constexpr int kTileRows = 6, kTileVecs = 2, kPairRows = 4, kAccumulatorsMax = 8, kNumRegisters = 16;
#endif
constexpr int kTileCols = kTileVecs * kLanes;
constexpr int kTilesPerPanel = kPanelVecs / kTileVecs;

// A weight's elements as f32 vectors. kStep consecutive k are loaded from one address; load<J>()
// gives vector `v` (kLanes features from feature v * kLanes) of k + J, k a multiple of kStep.
struct F32Weights {
  static constexpr int kStep = 1;
  static constexpr int kElementBytes = 4;
  const float* panel;

  explicit F32Weights(const std::byte* w) : panel(reinterpret_cast<const float*>(w)) {}
  template <int J>
  HWY_INLINE Vec load(int64_t k, int v) const {
    return hn::Load(F32(), panel + k * kPanelRows + v * kLanes);
  }
};

struct F16Weights {
  static constexpr int kStep = 1;
  static constexpr int kElementBytes = 2;
  const uint16_t* panel;

  explicit F16Weights(const std::byte* w) : panel(reinterpret_cast<const uint16_t*>(w)) {}
  template <int J>
  HWY_INLINE Vec load(int64_t k, int v) const {
    const uint16_t* from = panel + k * kPanelRows + v * kLanes;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || \
    HWY_TARGET == HWY_NEON
    const hn::Rebind<hwy::float16_t, F32> f16;
    return hn::PromoteTo(F32(), hn::Load(f16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
    // Highway's own conversion has no infinities and NaN here. Exponent and mantissa shifted to the
    // bits that f32 has for them are the value times 2^-112, subnormals included.
    const hn::Rebind<uint16_t, F32> u16;
    const auto bits = hn::PromoteTo(U32(), hn::Load(u16, from));
    const auto magnitude = hn::And(bits, hn::Set(U32(), 0x7FFF));
    const auto sign = hn::ShiftLeft<16>(hn::Sub(bits, magnitude));
    const auto scaled =
        hn::Mul(hn::BitCast(F32(), hn::ShiftLeft<13>(magnitude)), hn::Set(F32(), 0x1p112f));
    const auto exponent = hn::And(magnitude, hn::Set(U32(), 0x7C00));
    const auto is_special = hn::Eq(exponent, hn::Set(U32(), 0x7C00));
    const auto special = hn::IfThenElseZero(is_special, hn::Set(U32(), 0x7F800000));
    return hn::BitCast(F32(), hn::Or(hn::Or(hn::BitCast(U32(), scaled), special), sign));
#endif
  }
};

struct Bf16PairWeights {
  static constexpr int kStep = 2;
  static constexpr int kElementBytes = 2;
  const uint32_t* panel;

  explicit Bf16PairWeights(const std::byte* w) : panel(reinterpret_cast<const uint32_t*>(w)) {}
  template <int J>
  HWY_INLINE Vec load(int64_t k, int v) const {
    const auto pairs = hn::Load(U32(), panel + k / 2 * kPanelRows + v * kLanes);
    // The first of a pair is the low half.
    if constexpr (J == 0) return hn::BitCast(F32(), hn::ShiftLeft<16>(pairs));
    return hn::BitCast(F32(), hn::And(pairs, hn::Set(U32(), 0xFFFF0000u)));
  }
};

// A block that prepare_block() widened: [kTilesPerPanel][k of the block][kTileCols] f32.
struct WidenedWeights {
  static constexpr int kStep = 1;
  const float* block;

  template <int J>
  HWY_INLINE Vec load(int64_t k, int v) const {
    return hn::Load(F32(), block + k * kTileCols + v * kLanes);
  }
};

// x as tiles: kRows words for each k; as rows: row_stride words for each row.
template <int kRows>
struct TiledX {
  const uint32_t* words;
  HWY_INLINE float at(int64_t k, int row) const {
    return std::bit_cast<float>(words[k * kRows + row]);
  }
};
struct RowsX {
  const uint32_t* words;
  int64_t row_stride;
  HWY_INLINE float at(int64_t k, int row) const {
    return std::bit_cast<float>(words[row * row_stride + k]);
  }
};

template <int kRows, int kVecs>
using Accumulators = Vec[kRows][kVecs];

// Prefetches a later block, a share with every step along k: while one block is used several times,
// the memory bus would otherwise stand idle.
template <class W>
struct Ahead {
  static constexpr int kLines = W::kStep * kPanelRows * W::kElementBytes / 64;
  const std::byte* from;
  int64_t step_bytes;

  HWY_INLINE void prefetch(int64_t k) const {
    HALLEY_UNROLL for (int line = 0; line < kLines; ++line) {
      // Into the second-level cache: the loads of this block need the first level's few slots for
      // misses (16 threads of an Emerald Rapids Xeon: 127 GB/s against 107 GB/s with all levels).
      __builtin_prefetch(from + (k / W::kStep * kLines + line) * step_bytes, 0, 2);
    }
  }
};
struct NothingAhead {
  HWY_INLINE void prefetch(int64_t) const {}
};

template <int J, int kRows, int kVecs, class X, class W>
HWY_INLINE void accumulate(const X& x, const W& w, int64_t k, int v_begin,
                           Accumulators<kRows, kVecs>& acc) {
  Vec columns[kVecs];
  HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) columns[v] = w.template load<J>(k, v_begin + v);
  HALLEY_UNROLL for (int row = 0; row < kRows; ++row) {
    const Vec factor = hn::Set(F32(), x.at(k + J, row));
    HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
      acc[row][v] = hn::MulAdd(factor, columns[v], acc[row][v]);
    }
  }
}

// One tile [kRows, kVecs * kLanes] of y over k in [0, num_k) of x and w.
struct TileOutput {
  float* y;
  int64_t y_stride;
  const float* bias;  // or null
  bool is_first;
};

template <int kRows, int kVecs, class X, class W, class Next>
HWY_INLINE void multiply_tile(const X& x, const W& w, int64_t num_k, int v_begin,
                              const TileOutput& out, const Next& ahead) {
  Accumulators<kRows, kVecs> acc;
  HALLEY_UNROLL for (int row = 0; row < kRows; ++row) {
    HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
      acc[row][v] = out.is_first ? hn::Zero(F32())
                                 : hn::LoadU(F32(), out.y + row * out.y_stride + v * kLanes);
    }
  }
  int64_t k = 0;
  for (; k + W::kStep <= num_k; k += W::kStep) {
    ahead.prefetch(k);
    accumulate<0, kRows, kVecs>(x, w, k, v_begin, acc);
    if constexpr (W::kStep == 2) {
      if constexpr (kRows * kVecs + 2 * kVecs + 2 > kNumRegisters) {
        // Loads the pairs again: kept from the first half, they would push accumulators out of
        // registers.
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      accumulate<1, kRows, kVecs>(x, w, k, v_begin, acc);
    }
  }
  if (k < num_k) accumulate<0, kRows, kVecs>(x, w, k, v_begin, acc);
  HALLEY_UNROLL for (int row = 0; row < kRows; ++row) {
    HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
      Vec sum = acc[row][v];
      if (out.bias != nullptr) sum = hn::Add(sum, hn::LoadU(F32(), out.bias + v * kLanes));
      hn::StoreU(sum, F32(), out.y + row * out.y_stride + v * kLanes);
    }
  }
}

// Calls Function::run<R>(arguments) with R = num_rows in [1, kRowsMax].
template <class Function, int kRowsMax = kTileRows, class... Args>
HWY_INLINE void with_rows(int64_t num_rows, const Args&... args) {
  if constexpr (kRowsMax > 1) {
    if (num_rows < kRowsMax) return with_rows<Function, kRowsMax - 1>(num_rows, args...);
  }
  Function::template run<kRowsMax>(args...);
}

struct MultiplyTiled {
  template <int kRows>
  static HWY_NOINLINE void run(const uint32_t* words, const float* w, int64_t num_k,
                               const TileOutput& out) {
    multiply_tile<kRows, kTileVecs>(TiledX<kRows>{words}, WidenedWeights{w}, num_k, 0, out,
                                    NothingAhead());
  }
};

// A tile over the whole width of a panel in place: at once where the registers suffice. `ahead` is
// the memory to bring in meanwhile, in as many steps as all passes over the block make.
template <class W>
struct MultiplyDirect {
  template <int kRows>
  static HWY_NOINLINE void run(const RowsX& x, const W& w, int64_t num_k, const TileOutput& out,
                               const std::byte* ahead, int64_t ahead_bytes) {
    constexpr int kVecs = kRows * kPanelVecs <= kAccumulatorsMax ? kPanelVecs : kTileVecs;
    constexpr int64_t kNumPasses = kPanelVecs / kVecs;
    const int64_t num_lines = std::max<int64_t>(1, num_k / W::kStep * Ahead<W>::kLines);
    Ahead<W> share{ahead, ahead_bytes / (kNumPasses * num_lines)};
    for (int v = 0; v < kPanelVecs; v += kVecs, share.from += num_lines * share.step_bytes) {
      TileOutput part = out;
      part.y += v * kLanes;
      if (out.bias != nullptr) part.bias += v * kLanes;
      multiply_tile<kRows, kVecs>(x, w, num_k, v, part, share);
    }
  }
};

// The functions of a PanelKernel.

struct PackRows {
  template <int kRows>
  static HWY_NOINLINE void run(const float* x, int64_t row_stride, int64_t num_k, uint32_t* words) {
    for (int64_t k = 0; k < num_k; ++k, words += kRows) {
      HALLEY_UNROLL for (int row = 0; row < kRows; ++row) {
        words[row] = std::bit_cast<uint32_t>(x[row * row_stride + k]);
      }
    }
  }
};

inline void pack_tile(const float* x, int64_t row_stride, int64_t num_rows, int64_t num_k,
                      uint32_t* words) {
  with_rows<PackRows>(num_rows, x, row_stride, num_k, words);
}

template <class W>
const std::byte* prepare_block(const Panel& panel, int64_t k_begin, int64_t k_end,
                               std::byte* scratch) {
  const W w(panel.data);
  auto* block = reinterpret_cast<float*>(scratch);
  const int64_t tile_size = (k_end - k_begin) * kTileCols;
  for (int64_t k = k_begin; k < k_end; k += W::kStep, block += W::kStep * kTileCols) {
    HALLEY_UNROLL for (int v = 0; v < kPanelVecs; ++v) {
      float* to = block + v / kTileVecs * tile_size + v % kTileVecs * kLanes;
      hn::Store(w.template load<0>(k, v), F32(), to);
      if constexpr (W::kStep == 2) {
        if (k + 1 < k_end) hn::Store(w.template load<1>(k, v), F32(), to + kTileCols);
      }
    }
  }
  return scratch;
}

inline void multiply_block(const Block& block) {
  const int64_t num_k = block.k_end - block.k_begin;
  const auto* w = reinterpret_cast<const float*>(block.w);
  const int64_t row_begin = block.tiles.begin(block.tile_begin);
  const int64_t num_tiles = block.tile_end - block.tile_begin;
  for (int column = 0; column < kTilesPerPanel; ++column) {
    for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
      const int64_t begin = block.tiles.begin(tile);
      const int64_t num_rows = block.tiles.begin(tile + 1) - begin;
      const uint32_t* words = block.x.words + block.k_begin * block.tiles.num_rows + begin * num_k;
      const TileOutput out{
          block.y + (begin - row_begin) * block.y_stride + column * kTileCols, block.y_stride,
          block.bias == nullptr ? nullptr : block.bias + column * kTileCols, block.k_begin == 0};
      prefetch_ahead(block, column * num_tiles + tile - block.tile_begin,
                     kTilesPerPanel * num_tiles);
      with_rows<MultiplyTiled>(num_rows, words, w + column * num_k * kTileCols, num_k, out);
    }
  }
}

template <class W>
void multiply_direct(const Block& block) {
  // The first k of a block is a multiple of kStep, and kPanelRows elements lie at each k.
  const std::byte* w = block.panel.data + block.k_begin * kPanelRows * W::kElementBytes;
  const int64_t num_k = block.k_end - block.k_begin;
  // The memory behind the block: the next one, or the next panel.
  const int64_t bytes = num_k * kPanelRows * W::kElementBytes;
  const int64_t num_tiles = block.tile_end - block.tile_begin;
  for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
    const int64_t begin = block.tiles.begin(tile);
    const RowsX x{block.x.words + begin * block.x.row_stride + block.k_begin, block.x.row_stride};
    const TileOutput out{block.y + begin * block.y_stride, block.y_stride, block.bias,
                         block.k_begin == 0};
    const std::byte* ahead = w + bytes + (tile - block.tile_begin) * (bytes / num_tiles);
    with_rows<MultiplyDirect<W>>(block.tiles.begin(tile + 1) - begin, x, W(w), num_k, out, ahead,
                                 bytes / num_tiles);
  }
}

template <class W>
constexpr PanelKernel kKernel = {
    .tile_rows_max = kTileRows,
    .direct_tile_rows_max = W::kStep == 2 ? kPairRows : kTileRows,
    .direct_rows_max = 2 * kTileRows,
    .k_per_word = 1,
    .block_k = 256,
    .direct_block_k = 128,
    .pack_tile = pack_tile,
    .prepare_block = prepare_block<W>,
    .multiply_block = multiply_block,
    .multiply_direct = multiply_direct<W>,
};

}  // namespace halley::panel_gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
