// Products of 4-bit weights with activations of 4 and 8 bits, both with scales of blocks of 128
// inputs (COMET's W4Ax), on Hopper. See README.md in this folder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {

/// A weight in device memory: scale[n, k / 128] * (code - 8). Move-only. Its products must be of
/// one stream: they share counters.
struct W4axWeight {
  int64_t N = 0, K = 0;
  DeviceBuffer codes = {};     // chunks, as w4ax_layout.h says
  DeviceBuffer scales = {};    // f32 [num_blocks()][scales_pitch()], of at most 22 significant bits
  DeviceBuffer counters = {};  // kTileCounters uint32_t, zero between products

  W4axWeight() = default;
  /// With memory that is zero, for whoever packs. Throws DeviceError where it does not suffice.
  /// Queues on the context's stream.
  W4axWeight(const CudaContext& context, int64_t num_outputs, int64_t num_inputs);

  int64_t num_blocks() const;
  int64_t scales_pitch() const;
  size_t num_bytes() const { return codes.num_bytes() + scales.num_bytes(); }
};

/// All tiles that are compiled; plan_tiles() of it is what w4ax_gemm() takes.
const TileFamily& w4ax_family();

/// A multiple of this many tokens is what scales of inputs have memory for.
inline constexpr int64_t kW4axTokenPadding = 128;

struct W4axOperands {
  /// [M, K] of i8, 4-bit codes too, at multiples of 16 bytes, and rows too.
  ConstMatrix x;
  /// [blocks][x_scales_pitch]: the pitch is a multiple of kW4axTokenPadding, at least M. What
  /// stands behind M is of no importance.
  const float* x_scales = nullptr;
  int64_t x_scales_pitch = 0;
  const float* bias = nullptr;  // [N]
  /// As NestedOperands::starts_early.
  bool starts_early = false;
};

/// y[m,n] = sum over blocks b of x_scale[m,b] * (w_scale[n,b] * sum) + bias[n], sum over the
/// block's 128 inputs of x[m,k] * (code[n,k] - 8), exact in s32. The factors are multiplied and
/// added in f32, each product with a scale rounded once. Shapes: x [M, K], y [M, N]; M may be 0. y
/// is f16, bf16 or f32, its rows fastest at multiples of 16 bytes. Requires: compute
/// capability 9.0; plan.workspace_bytes() of the context's workspace. Numerics: the plan sets the
/// order of blocks, and with it M; the same plan gives the same bits.
void w4ax_gemm(const CudaContext& context, const W4axWeight& weight, const W4axOperands& operands,
               Matrix y);

/// Tokens of w4ax_gemm_narrow(), at most.
inline constexpr int64_t kW4axNarrowTokens = 8;

/// Whether w4ax_gemm() takes w4ax_gemm_narrow(): up to three tokens, and four where a
/// SM has all of its outputs at a time.
bool is_w4ax_narrow(const CudaContext& context, const W4axWeight& weight, int64_t M);

/// The same for at most kW4axNarrowTokens, by mma.sync. Needs no workspace.
/// Numerics: the same bits for every M.
void w4ax_gemm_narrow(const CudaContext& context, const W4axWeight& weight,
                      const W4axOperands& operands, Matrix y);

/// The same with a plan of the caller's for this shape: for tests and tuning.
void w4ax_gemm_planned(const CudaContext& context, const W4axWeight& weight,
                       const W4axOperands& operands, const TilePlan& plan, Matrix y);

}  // namespace halley::cuda
