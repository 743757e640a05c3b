// The panel kernels of the quad layouts in f32 arithmetic for every instruction set that Highway
// knows: weights are dequantized to exact f32 on the way, and multiplied as such.
#include "halley/base/check.h"
#include "halley/kernels/gemm/panel_kernel.h"

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/gemm/panel_kernel_quads_hwy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "halley/kernels/gemm/quad_weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halley::panel_gemm::HWY_NAMESPACE {

// Up to so many inputs are weights in the first-level cache at once (16 kB).
constexpr int64_t kDirectInputs = 128;

// Writes weights as [kTilesPerPanel][k][kTileCols], the tiles and the k so many elements apart.
struct WeightStore {
  float* block;
  int64_t k_begin;
  int64_t k_stride;
  int64_t tile_stride;

  HWY_INLINE float* at(int64_t k) const { return block + (k - k_begin) * k_stride; }
  HWY_INLINE void take(float* to, int v, Vec w) {
    hn::Store(w, F32(), to + v / kTileVecs * tile_stride + v % kTileVecs * kLanes);
  }
};

template <class Values>
HWY_NOINLINE void store_weights(const Panel& panel, const InputRange& range, WeightStore store) {
  take_range<Values>(panel, range, &store);
}

template <class Values>
const std::byte* prepare_quads(const Panel& panel, int64_t k_begin, int64_t k_end,
                               std::byte* scratch) {
  store_weights<Values>(panel, {k_begin, k_end},
                        {.block = reinterpret_cast<float*>(scratch),
                         .k_begin = k_begin,
                         .k_stride = kTileCols,
                         .tile_stride = (k_end - k_begin) * kTileCols});
  return scratch;
}

// Multiplies weights with one row of x at once, in registers.
struct RowAccumulators {
  const float* x;
  Vec acc[kPanelVecs];

  explicit RowAccumulators(const float* row) : x(row) {}
  // Vector by vector: a copy of the whole would go through memory.
  RowAccumulators(const RowAccumulators& other) : x(other.x) { *this = other; }
  HWY_INLINE RowAccumulators& operator=(const RowAccumulators& other) {
    HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) acc[v] = other.acc[v];
    return *this;
  }

  HWY_INLINE Vec at(int64_t k) const { return hn::Set(F32(), x[k]); }
  HWY_INLINE void take(Vec factor, int v, Vec w) { acc[v] = hn::MulAdd(factor, w, acc[v]); }
};

template <class Values>
HWY_NOINLINE void multiply_row(const Block& block) {
  RowAccumulators row(reinterpret_cast<const float*>(block.x.words));
  HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
    row.acc[v] = block.k_begin == 0 ? hn::Zero(F32()) : hn::LoadU(F32(), block.y + v * kLanes);
  }
  take_range<Values>(block.panel, {block.k_begin, block.k_end}, &row);
  HALLEY_UNROLL_PANEL for (int v = 0; v < kPanelVecs; ++v) {
    Vec sum = row.acc[v];
    if (block.bias != nullptr) sum = hn::Add(sum, hn::LoadU(F32(), block.bias + v * kLanes));
    hn::StoreU(sum, F32(), block.y + v * kLanes);
  }
}

// A panel's weights in the first-level cache: nothing to prefetch.
struct NearWeights : F32Weights {
  static constexpr int kElementBytes = 0;
  using F32Weights::F32Weights;
};

template <class Values>
void multiply_direct_quads(const Block& block) {
  if (block.tiles.num_rows == 1) return multiply_row<Values>(block);
  alignas(64) float weights[kDirectInputs * kPanelRows];
  const int64_t num_k = block.k_end - block.k_begin;
  store_weights<Values>(block.panel, {block.k_begin, block.k_end},
                        {.block = weights,
                         .k_begin = block.k_begin,
                         .k_stride = kPanelRows,
                         .tile_stride = kTileCols});
  for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
    const int64_t begin = block.tiles.begin(tile);
    const RowsX x{block.x.words + begin * block.x.row_stride + block.k_begin, block.x.row_stride};
    const TileOutput out{block.y + begin * block.y_stride, block.y_stride, block.bias,
                         block.k_begin == 0};
    const NearWeights near(reinterpret_cast<const std::byte*>(weights));
    with_rows<MultiplyDirect<NearWeights>>(block.tiles.begin(tile + 1) - begin, x, near, num_k, out,
                                           block.panel.data, int64_t{0});
  }
}

template <class Values>
constexpr PanelKernel kQuadKernel = {
    .tile_rows_max = kTileRows,
    .direct_tile_rows_max = kTileRows,
    .direct_rows_max = 2 * kTileRows,
    .k_per_word = 1,
    .block_k = 256,
    .direct_block_k = kDirectInputs,
    .pack_tile = pack_tile,
    .prepare_block = prepare_quads<Values>,
    .multiply_block = multiply_block,
    .multiply_direct = multiply_direct_quads<Values>,
};

const PanelKernel& quad_kernel(PackedLayout layout, Precision precision) {
  switch (layout) {
    case PackedLayout::kU8Quad:
      return kQuadKernel<U8Values>;
    case PackedLayout::kF8E4M3Quad:
      return kQuadKernel<F8E4M3Values>;
    case PackedLayout::kU4Quad:
      return kQuadKernel<U4Values>;
    case PackedLayout::kU2Quad:
      return kQuadKernel<U2Values>;
    case PackedLayout::kU3Quad:
      return kQuadKernel<U3Values>;
    case PackedLayout::kE2m1Quad:
      return kQuadKernel<E2m1Values>;
    case PackedLayout::kNestedF16Quad:
      return precision == Precision::kFull ? kQuadKernel<NestedF16Values>
                                           : kQuadKernel<NestedF8Values>;
    default:
      HALLEY_CHECK(false, layout);
  }
  return kQuadKernel<U8Values>;
}

}  // namespace halley::panel_gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley::panel_gemm {

HWY_EXPORT(quad_kernel);

const PanelKernel& quad_panel_kernel(PackedLayout layout, Precision precision) {
  return HWY_DYNAMIC_DISPATCH(quad_kernel)(layout, precision);
}

}  // namespace halley::panel_gemm
#endif
