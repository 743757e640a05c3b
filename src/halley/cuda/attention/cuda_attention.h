// Causal attention of a ragged batch over the paged KV cache in GPU memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "halley/core/matrix.h"
#include "halley/cuda/attention/attention_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/runtime/pinned_buffer.h"
#include "halley/kernels/attention/attention.h"
#include "halley/kernels/kv/kv_cache_view.h"

namespace halley {

/// Sizes for which CudaAttentionBatch allocates device memory.
struct CudaAttentionLimits {
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;          // sum over the sequences of a batch, past and new
  int64_t num_new_tokens = 0;      // of a batch
  int64_t pages_per_sequence = 0;  // columns of the page table
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  /// SMs for which each batch chooses its decode splits. 0: a row's position alone decides, so that
  /// its result has the same bits in any batch.
  int num_sms = 0;
};

/// A batch's page tables and work items in device memory, at addresses that do not change, so that
/// captured launches serve later batches. All layers with the same window and page size share one;
/// layers with different windows need one each. Launches that use one must be on one stream.
/// Move-only.
class CudaAttentionBatch {
 public:
  explicit CudaAttentionBatch(const CudaAttentionLimits& limits);

  /// Plans the batch and queues its copy to the device. Page tables are checked against
  /// `num_pages`. Ends the process where the batch exceeds the limits, which is the caller's bug.
  void update(const CudaStream& stream, const AttentionProblem& problem, const KvPageLayout& layout,
              int64_t num_pages, std::span<const BatchSequence> sequences);

  int64_t num_prefill_items() const { return num_prefill_items_; }
  /// Whether each warp takes decodes of its own, not each CTA: another kernel.
  bool is_warp_per_item() const { return is_warp_per_item_; }
  /// All device memory that batches of these limits take.
  static size_t num_bytes(const CudaAttentionLimits& limits);

  struct Layout {  // bytes from the buffer's start
    size_t header = 0, decode_items = 0, prefill_items = 0, tables = 0;
    size_t num_copied = 0;  // the host copies everything before
    size_t counts = 0, partial_stats = 0, partial_values = 0;
    size_t num_bytes = 0;
  };
  const Layout& layout() const { return layout_; }
  const CudaAttentionLimits& limits() const { return limits_; }
  std::byte* data() const { return buffer_.data(); }

 private:
  /// Copies a part of the staging memory.
  void copy(const CudaStream& stream, size_t offset, size_t num_bytes);

  CudaAttentionLimits limits_;
  Layout layout_;
  DeviceBuffer buffer_;
  PinnedBuffer staging_;
  CudaEvent is_copied_;
  int64_t num_prefill_items_ = 0;
  bool is_warp_per_item_ = false;
};

/// out[m] = softmax(scale * q[m] K^T) V for the batch's sequences with one new token (split-KV).
///
/// Shapes    q, out: [M, H * D] row-major f16 or bf16 in device memory, 16-byte aligned, strides of
///           8 n;  pages: [2, J, P, D] (KvPageLayout)
/// Requires  why_not_cuda_attention() is empty; cache.pages in device memory, 16-byte aligned. The
///           keys and values of new tokens are in the cache, or the kernel queued before writes
///           them. That kernel may still run (PDL) while others are read: it writes only the last
///           position of a sequence
/// Numerics  scores, weights and accumulators in f32; MMA operands in f16 (bf16 for a cache of
///           bf16): queries, and softmax weights up to 2^8. A row's splits are combined in
///           ascending order; with CudaAttentionLimits::num_sms of 0 its result has the same bits
///           in any batch
/// Writes    the rows of these sequences
/// Stream    asynchronous and capturable: the grid is fixed, and CTAs read their work items from
///           the batch's memory, so that each later update() with the same is_warp_per_item()
///           serves the graph too
void cuda_decode_attention(const CudaContext& context, const AttentionProblem& problem,
                           const KvLayerView& cache, const CudaAttentionBatch& batch, ConstMatrix q,
                           Matrix out);

/// The same for sequences with more new tokens. Keys and values of quantized caches are dequantized
/// to f16 operands. A row's result depends neither on the batch nor on how its sequence is cut into
/// chunks of at least two tokens; a decode accumulates in another order. A NaN in a value may reach
/// other tokens of the same chunk. Not capturable: the grid is the batch's.
void cuda_prefill_attention(const CudaContext& context, const AttentionProblem& problem,
                            const KvLayerView& cache, const CudaAttentionBatch& batch,
                            ConstMatrix q, Matrix out);

}  // namespace halley
