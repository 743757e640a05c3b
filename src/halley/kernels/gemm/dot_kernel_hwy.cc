// The integer dot-product kernels for every instruction set that Highway knows.
#include "halley/kernels/gemm/dot_kernel.h"

// Register arrays need vectors of a size that is known to the compiler. (The build may have chosen
// fewer targets itself.)
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/gemm/dot_kernel_hwy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "halley/kernels/gemm/dot_core-inl.h"
#include "halley/kernels/gemm/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halley::dot_gemm::HWY_NAMESPACE {

constexpr DotCore::Rows kNarrowU4Rows = kRows<Narrow, PackedU4Weights>;
constexpr DotCore kNarrowCore = {"narrow", Narrow::kWordsPerQuad, kRows<Narrow, ByteWeights>,
                                 &kNarrowU4Rows};
constexpr DotCore kWideCore = {"wide", Wide::kWordsPerQuad, kRows<Wide, ByteWeights>, nullptr};

const DotCore& own_narrow_core() { return kNarrowCore; }
const DotCore& own_wide_core() { return kWideCore; }

// Whether the target's processors may have the AVX512-VNNI instructions.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
bool may_use_vnni() { return has_avx512_vnni(); }
#else
bool may_use_vnni() { return false; }
#endif

const DotCore& best_narrow_core() { return may_use_vnni() ? vnni_core() : kNarrowCore; }
const DotCore& best_wide_core() { return may_use_vnni() ? vnni_core() : kWideCore; }

// A 16-bit accumulator gets two weights times their slices from each quad.
constexpr int64_t flush_pairs(int64_t weight_max, int64_t slice_max) {
  return std::min(kSpanQuads, 32767 / (2 * weight_max * slice_max)) / 2;
}
static_assert(flush_pairs(15, 64) == 8 && flush_pairs(15, 128) == 4);

constexpr DotKernel kW2A21 = {
    .num_slices = kFixedSlices,
    .core = best_narrow_core,
    .flush_pairs = flush_pairs(3, 64),
    .is_u4 = false,
    .is_in_place = false,
    .unpack = unpack<TwoBits>,
    .make_slices = make_fixed_slices<kFixedSlices>,
    .add_block = add_block<kFixedSlices>,
};
constexpr DotKernel kW3A21 = {
    .num_slices = kFixedSlices,
    .core = best_narrow_core,
    .flush_pairs = flush_pairs(7, 64),
    .is_u4 = false,
    .is_in_place = false,
    .unpack = unpack<ThreeBits>,
    .make_slices = make_fixed_slices<kFixedSlices>,
    .add_block = add_block<kFixedSlices>,
};
constexpr DotKernel kW4A21 = {
    .num_slices = kFixedSlices,
    .core = best_narrow_core,
    .flush_pairs = flush_pairs(15, 64),
    .is_u4 = true,
    .is_in_place = false,
    .unpack = unpack<FourBits>,
    .make_slices = make_fixed_slices<kFixedSlices>,
    .add_block = add_block<kFixedSlices>,
};
constexpr DotKernel kW4A16 = {
    .num_slices = 2,
    .core = best_narrow_core,
    .flush_pairs = flush_pairs(15, 128),
    .is_u4 = true,
    .is_in_place = false,
    .unpack = unpack<FourBits>,
    .make_slices = make_fixed_slices<2>,
    .add_block = add_block<2>,
};
constexpr DotKernel kW4A8 = {
    .num_slices = 1,
    .core = best_narrow_core,
    .flush_pairs = flush_pairs(15, 128),
    .is_u4 = true,
    .is_in_place = false,
    .unpack = unpack<FourBits>,
    .make_slices = make_s8_slices,
    .add_block = add_block<1>,
};
constexpr DotKernel kW4Ax = {
    .num_slices = 1,
    .core = best_narrow_core,
    .flush_pairs = flush_pairs(15, 128),
    .is_u4 = true,
    .is_in_place = false,
    .unpack = unpack<FourBits>,
    .make_slices = make_block_slices,
    .add_block = add_block<1, /*kIsScaled=*/true>,
};
constexpr DotKernel kW8A8 = {
    .num_slices = 1,
    .core = best_wide_core,
    .flush_pairs = kSpanQuads / 2,  // this core accumulates in 32 bits
    .is_u4 = false,
    .is_in_place = true,
    .unpack = bytes_in_place,
    .make_slices = make_s8_slices,
    .add_block = add_block<1>,
};

const DotKernel& own_w2a21() { return kW2A21; }
const DotKernel& own_w3a21() { return kW3A21; }
const DotKernel& own_w4a21() { return kW4A21; }
const DotKernel& own_w4a16() { return kW4A16; }
const DotKernel& own_w4a8() { return kW4A8; }
const DotKernel& own_w4ax() { return kW4Ax; }
const DotKernel& own_w8a8() { return kW8A8; }

}  // namespace halley::dot_gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley::dot_gemm {

HWY_EXPORT(own_narrow_core);
HWY_EXPORT(own_wide_core);
HWY_EXPORT(own_w2a21);
HWY_EXPORT(own_w3a21);
HWY_EXPORT(own_w4a21);
HWY_EXPORT(own_w4a16);
HWY_EXPORT(own_w4a8);
HWY_EXPORT(own_w4ax);
HWY_EXPORT(own_w8a8);

const DotCore& narrow_core() { return HWY_DYNAMIC_DISPATCH(own_narrow_core)(); }
const DotCore& wide_core() { return HWY_DYNAMIC_DISPATCH(own_wide_core)(); }
const DotKernel& w2a21_kernel() { return HWY_DYNAMIC_DISPATCH(own_w2a21)(); }
const DotKernel& w3a21_kernel() { return HWY_DYNAMIC_DISPATCH(own_w3a21)(); }
const DotKernel& w4a21_kernel() { return HWY_DYNAMIC_DISPATCH(own_w4a21)(); }
const DotKernel& w4a16_kernel() { return HWY_DYNAMIC_DISPATCH(own_w4a16)(); }
const DotKernel& w4a8_kernel() { return HWY_DYNAMIC_DISPATCH(own_w4a8)(); }
const DotKernel& w4ax_kernel() { return HWY_DYNAMIC_DISPATCH(own_w4ax)(); }
const DotKernel& w8a8_kernel() { return HWY_DYNAMIC_DISPATCH(own_w8a8)(); }

}  // namespace halley::dot_gemm
#endif
