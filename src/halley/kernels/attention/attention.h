// Causal attention of a ragged batch (prefill chunks and decodes together) over the paged KV cache.
#pragma once

#include <span>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/kernels/kv/kv_cache_view.h"

namespace halley {

struct AttentionProblem {
  int64_t num_heads = 0;  // H, a multiple of the cache's J: head h reads kv head h / (H / J)
  float scale = 0;        // of q.k
  float soft_cap = 0;     // scores become cap * tanh(score / cap); 0: none
  int64_t window = 0;     // a token at position p sees positions > p - window; 0: all
};

/// out[m] = softmax(scale * q[m] K^T) V over the positions that token m may see, itself included.
///
/// Shapes    q, out [M, H * D] f32; the keys and values of the new tokens are in the cache already
/// Numerics  f32; the order of accumulation depends on positions alone, so that a token's result is
///           the same bits in any batch, chunking and number of threads
void paged_attention(ExecContext& context, const AttentionProblem& problem,
                     const KvLayerView& cache, std::span<const BatchSequence> sequences,
                     ConstMatrix q, Matrix out);

}  // namespace halley
