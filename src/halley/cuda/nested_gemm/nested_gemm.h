// Products of weights in two planes of bytes on Hopper: the upper plane is an e4m3 weight for any
// FP8 product; here both are joined to f16 in registers and multiplied by the tensor cores at once.
// See README.md in this folder for layouts, pipeline and limits.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "halley/core/matrix.h"
#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {

/// The lower plane in device memory, and what a product needs beside it. Move-only. Its products
/// must be of one stream: they share counters.
struct NestedWeight {
  /// [N, K] of f8_e4m3 in device memory, the caller's; rows at multiples of 16 bytes. Each 128
  /// columns are in the order of cuda/gemm/lane_order.h, the last ones too: they are stored.
  ConstMatrix upper = {};
  DeviceBuffer lower = {};     // chunks, as nested_layout.h says
  DeviceBuffer counters = {};  // kTileCounters uint32_t, zero between products
  CUtensorMap upper_map = {};

  NestedWeight() = default;
  /// With memory for the lower plane, whose padding is zero; pack_lower_rows() fills it. Throws
  /// DeviceError where the memory does not suffice. Queues on the context's stream.
  NestedWeight(const CudaContext& context, ConstMatrix upper_plane);

  int64_t N() const { return upper.num_rows; }
  int64_t K() const { return upper.num_cols; }
  /// Without the upper plane.
  size_t num_bytes() const { return lower.num_bytes() + counters.num_bytes(); }
};

/// Puts the columns of plain rows of an upper plane in order, in place. Shapes: rows [n, K], K a
/// multiple of 128.
void order_upper_rows(const CudaContext& context, Matrix rows);

/// Queues the copy of rows [first_row, first_row + rows.num_rows) of the lower plane, u8 of K
/// columns in device memory, to their places.
void pack_lower_rows(const CudaContext& context, ConstMatrix rows, int64_t first_row,
                     const NestedWeight& weight);

/// All tiles that are compiled: for plan_tiles().
const TileFamily& nested_family();

struct NestedOperands {
  /// [M, K] of f16 at multiples of 16 bytes, and rows too.
  ConstMatrix x;
  const float* bias = nullptr;  // [N]
  /// The launch may begin, and read weights, before the kernel ahead of it on the stream has ended:
  /// allowed where that is a kernel, and nothing else that is in flight writes the weight.
  bool starts_early = false;
};

/// y[m,n] = sum over k of x[m,k] w[n,k] + bias[n], where w is join_f16() of the planes
/// (core/nested_float.h), bit for bit. Shapes: x [M, K], y [M, N]; M may be 0. y is f16, bf16 or
/// f32, its rows fastest at multiples of 16 bytes.
/// Requires: compute capability 9.0; planes that is_split_f16() holds for; plan.workspace_bytes()
/// of the context's workspace; a plan of nested_family() for this shape.
/// Numerics: f32 sums whose order the plan sets, and with it M; the same plan gives the same bits.
void nested_gemm_planned(const CudaContext& context, const NestedWeight& weight,
                         const NestedOperands& operands, const TilePlan& plan, Matrix y);

}  // namespace halley::cuda
