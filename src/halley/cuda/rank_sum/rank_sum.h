// Sums over ranks in one kernel: each GPU writes its rows into the memory of all others.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/fused/quantized_output.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/rank_sum/peer_exchange.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

// All ranks call these with the same shapes and types, and queue on `context.stream`; captured
// calls and others may alternate, on all ranks in the same order. Rows fit the exchange
// (PeerExchange::fits()).
//
// Numerics  f32 in ascending order of ranks, rounded once to the rows' type, as a Communicator of
//           host memory does: every rank has the same bits. Two adjacent -0.0, the first at an even
//           column, count as 0.0.

/// rows = sum over ranks of rows.
/// Shapes    rows [M, K] f16 or bf16
void sum_over_ranks(const CudaContext& context, const PeerExchange& exchange, Matrix rows);

/// hidden += sum over ranks of block, then y = norm(hidden): sum_over_ranks() and add_norm_rows()
/// bit for bit, for small M in one kernel. The content of `block` is undefined afterwards.
/// Shapes    hidden [M, K] f32; block, y [M, K] f16 or bf16, both of one type
void sum_add_norm_rows(const CudaContext& context, const PeerExchange& exchange,
                       const NormParams& params, Matrix block, Matrix hidden, Matrix y);

/// The same with quantized rows, as add_norm_rows() in cuda/fused.
void sum_add_norm_rows(const CudaContext& context, const PeerExchange& exchange,
                       const NormParams& params, Matrix block, Matrix hidden,
                       const QuantizedOutput& y);

}  // namespace halley::cuda
