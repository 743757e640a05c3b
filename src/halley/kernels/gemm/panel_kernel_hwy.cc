// The panel kernels in f32 arithmetic for every instruction set that Highway knows.
#include "halley/kernels/gemm/panel_kernel.h"

// Register arrays need vectors of a size that is known to the compiler. (The build may have chosen
// fewer targets itself.)
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/gemm/panel_kernel_hwy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "halley/kernels/gemm/panel_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halley::panel_gemm::HWY_NAMESPACE {

const PanelKernel& f32_kernel() { return kKernel<F32Weights>; }
const PanelKernel& f16_kernel() { return kKernel<F16Weights>; }
const PanelKernel& bf16_kernel() { return kKernel<Bf16PairWeights>; }

}  // namespace halley::panel_gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley::panel_gemm {

HWY_EXPORT(f32_kernel);
HWY_EXPORT(f16_kernel);
HWY_EXPORT(bf16_kernel);

const PanelKernel& f32_panel_kernel() { return HWY_DYNAMIC_DISPATCH(f32_kernel)(); }
const PanelKernel& f16_panel_kernel() { return HWY_DYNAMIC_DISPATCH(f16_kernel)(); }
const PanelKernel& bf16_panel_kernel() { return HWY_DYNAMIC_DISPATCH(bf16_kernel)(); }

}  // namespace halley::panel_gemm
#endif
