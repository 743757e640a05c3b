// Sums over ranks in one kernel: each GPU writes its rows into the memory of all others.
#pragma once

#include "halley/core/matrix.h"
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

}  // namespace halley::cuda
