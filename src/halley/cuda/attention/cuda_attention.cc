#include "halley/cuda/attention/cuda_attention.h"

#include <algorithm>
#include <cstring>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/attention/attention_layout.h"
#include "halley/cuda/attention/decode_kernels.h"
#include "halley/cuda/attention/kv_page_map.h"
#include "halley/cuda/attention/prefill_kernels.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley {
namespace {

using attention::DecodeHeader;
using attention::DecodeParams;
using attention::PrefillParams;

int64_t group_size(const CudaAttentionLimits& limits) {
  return limits.num_heads / limits.num_kv_heads;
}

size_t take(size_t& used, int64_t count, size_t element_bytes) {
  const size_t begin = used;
  used = round_up(used + static_cast<size_t>(count) * element_bytes, DeviceArena::kAlignment);
  return begin;
}

CudaAttentionBatch::Layout layout_of(const CudaAttentionLimits& limits) {
  HALLEY_CHECK(limits.num_sequences >= 1 && limits.num_tokens >= 1 && limits.num_new_tokens >= 1 &&
                   limits.pages_per_sequence >= 1,
               limits.num_sequences, limits.num_tokens, limits.num_new_tokens,
               limits.pages_per_sequence);
  HALLEY_CHECK(limits.num_kv_heads >= 1 && limits.num_heads >= 1 && limits.head_dim >= 1,
               limits.num_kv_heads, limits.num_heads, limits.head_dim);
  const int64_t decode_items = num_decode_items_max(limits.num_sequences, limits.num_tokens);
  const int64_t prefill_items =
      limits.num_new_tokens * group_size(limits) / kPrefillRows + limits.num_sequences;
  const int64_t units = num_decode_units(limits.num_heads, limits.num_kv_heads, limits.head_dim);
  CudaAttentionBatch::Layout layout;
  size_t used = 0;
  layout.header = take(used, 1, sizeof(DecodeHeader));
  layout.decode_items = take(used, decode_items, sizeof(DecodeItem));
  layout.prefill_items = take(used, prefill_items, sizeof(PrefillItem));
  layout.tables = take(used, limits.num_sequences * limits.pages_per_sequence, sizeof(int32_t));
  layout.num_copied = used;
  layout.counts = take(used, limits.num_sequences * units, sizeof(uint32_t));
  layout.partial_stats = take(used, decode_items * limits.num_heads, sizeof(float2));
  layout.partial_values =
      take(used, decode_items * limits.num_heads * padded_head_dim(limits.head_dim), sizeof(float));
  layout.num_bytes = used;
  return layout;
}

void check_call(const AttentionProblem& problem, const KvLayerView& cache,
                const CudaAttentionBatch& batch, ConstMatrix q, Matrix out) {
  const std::string why_not = why_not_cuda_attention(problem, cache.layout, q.dtype);
  HALLEY_CHECK(why_not.empty(), why_not);
  const CudaAttentionLimits& limits = batch.limits();
  HALLEY_CHECK(problem.num_heads == limits.num_heads &&
                   cache.layout.num_kv_heads == limits.num_kv_heads &&
                   cache.layout.head_dim == limits.head_dim,
               problem.num_heads, cache.layout.num_kv_heads, cache.layout.head_dim);
  HALLEY_CHECK(out.dtype == DType::kF16 || out.dtype == DType::kBf16, name_of(out.dtype));
  const int64_t num_columns = problem.num_heads * cache.layout.head_dim;
  HALLEY_CHECK(
      q.num_cols == num_columns && out.num_cols == num_columns && q.num_rows == out.num_rows,
      q.num_cols, out.num_cols, num_columns, q.num_rows, out.num_rows);
  const auto is_aligned = [](const std::byte* data) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0;
  };
  HALLEY_CHECK(is_aligned(q.data) && is_aligned(out.data) && is_aligned(cache.pages) &&
                   q.row_stride % 8 == 0 && out.row_stride % 8 == 0,
               q.row_stride, out.row_stride);
}

attention::Activations activations(ConstMatrix q, Matrix out) {
  attention::Activations result;
  result.q = q.data;
  result.out = out.data;
  result.q_stride = q.row_stride;
  result.out_stride = out.row_stride;
  result.q_is_bf16 = q.dtype == DType::kBf16;
  result.out_is_bf16 = out.dtype == DType::kBf16;
  return result;
}

template <KvDType kType>
void launch_decode(const CudaContext& context, const DecodeParams& params, bool is_warp_per_item) {
  if (is_warp_per_item) return attention::launch_decode<kType, 1>(context, params);
  attention::launch_decode<kType, kDecodeWarps>(context, params);
}

}  // namespace

size_t CudaAttentionBatch::num_bytes(const CudaAttentionLimits& limits) {
  return layout_of(limits).num_bytes;
}

CudaAttentionBatch::CudaAttentionBatch(const CudaAttentionLimits& limits)
    : limits_(limits),
      layout_(layout_of(limits)),
      buffer_(layout_.num_bytes, "attention's work items"),
      staging_(layout_.num_copied) {
  // Clears the number of items, and the counters that the kernels expect to be 0.
  check_cuda(cudaMemset(buffer_.data(), 0, layout_.partial_stats), "clearing attention's counts");
  // Other streams do not wait for the memset, and copy work items to the same memory.
  check_cuda(cudaDeviceSynchronize(), "clearing attention's counts");
}

void CudaAttentionBatch::copy(const CudaStream& stream, size_t offset, size_t num_bytes) {
  if (num_bytes == 0) return;
  check_cuda(cudaMemcpyAsync(buffer_.data() + offset, staging_.data() + offset, num_bytes,
                             cudaMemcpyHostToDevice, stream.get()),
             "copy of attention's work items");
}

void CudaAttentionBatch::update(const CudaStream& stream, const AttentionProblem& problem,
                                const KvPageLayout& layout, int64_t num_pages,
                                std::span<const BatchSequence> sequences) {
  check_sequences({layout, nullptr, num_pages}, sequences, limits_.num_new_tokens);
  HALLEY_CHECK(static_cast<int64_t>(sequences.size()) <= limits_.num_sequences, sequences.size(),
               limits_.num_sequences);
  const auto pages_of = [&](const BatchSequence& sequence) {
    return ceil_div(sequence.num_past_tokens + sequence.num_new_tokens, layout.page_tokens);
  };
  int64_t most = 0;
  for (const BatchSequence& sequence : sequences) most = std::max(most, pages_of(sequence));
  HALLEY_CHECK(most <= limits_.pages_per_sequence, most, limits_.pages_per_sequence);
  // The table is no wider than this batch needs, since all of it is copied. A tile may read entries
  // past the last page.
  constexpr int64_t kPagesOfTile = 64;
  const int64_t stride = std::min(most + kPagesOfTile, limits_.pages_per_sequence);
  // Every decode kernel runs at least two CTAs an SM.
  const DecodeSplit split =
      limits_.num_sms == 0
          ? DecodeSplit{}
          : choose_decode_split(
                problem, num_decode_units(problem.num_heads, layout.num_kv_heads, layout.head_dim),
                static_cast<int64_t>(layout.token_bytes()) / layout.num_kv_heads,
                2 * limits_.num_sms, sequences);
  const AttentionPlan plan =
      plan_attention(problem, layout.num_kv_heads, stride, kPrefillRows, sequences, split.tokens);
  const size_t decode_bytes = plan.decode_items.size() * sizeof(DecodeItem);
  const size_t prefill_bytes = plan.prefill_items.size() * sizeof(PrefillItem);
  HALLEY_CHECK(layout_.decode_items + decode_bytes <= layout_.prefill_items &&
                   layout_.prefill_items + prefill_bytes <= layout_.tables,
               plan.decode_items.size(), plan.prefill_items.size());
  is_copied_.synchronize();  // the staging memory is free again
  std::byte* staging = staging_.data();
  DecodeHeader header;
  header.num_items = static_cast<uint32_t>(plan.decode_items.size());
  std::memcpy(staging + layout_.header, &header, sizeof(header));
  std::copy(plan.decode_items.begin(), plan.decode_items.end(),
            reinterpret_cast<DecodeItem*>(staging + layout_.decode_items));
  std::copy(plan.prefill_items.begin(), plan.prefill_items.end(),
            reinterpret_cast<PrefillItem*>(staging + layout_.prefill_items));
  auto* table = reinterpret_cast<int32_t*>(staging + layout_.tables);
  for (const BatchSequence& sequence : sequences) {
    const int64_t count = pages_of(sequence);
    std::copy_n(sequence.page_table.begin(), count, table);
    std::fill(table + count, table + stride, 0);
    table += stride;
  }
  copy(stream, layout_.header, layout_.decode_items + decode_bytes - layout_.header);
  copy(stream, layout_.prefill_items, prefill_bytes);
  copy(stream, layout_.tables, sequences.size() * static_cast<size_t>(stride) * sizeof(int32_t));
  stream.record(is_copied_);
  is_warp_per_item_ = split.is_warp_per_item;
  num_prefill_items_ = static_cast<int64_t>(plan.prefill_items.size());
}

void cuda_decode_attention(const CudaContext& context, const AttentionProblem& problem,
                           const KvLayerView& cache, const CudaAttentionBatch& batch, ConstMatrix q,
                           Matrix out) {
  check_call(problem, cache, batch, q, out);
  const CudaAttentionBatch::Layout& layout = batch.layout();
  std::byte* data = batch.data();
  DecodeParams params;
  params.rows = attention::paged_rows(problem, cache);
  params.activations = activations(q, out);
  params.rule = attention::score_rule(problem);
  params.header = reinterpret_cast<DecodeHeader*>(data + layout.header);
  params.items = reinterpret_cast<const DecodeItem*>(data + layout.decode_items);
  params.num_items_max =
      static_cast<uint32_t>((layout.prefill_items - layout.decode_items) / sizeof(DecodeItem));
  params.tables = reinterpret_cast<const int32_t*>(data + layout.tables);
  params.num_arrived = reinterpret_cast<uint32_t*>(data + layout.counts);
  params.partial_values = reinterpret_cast<float*>(data + layout.partial_values);
  params.partial_stats = reinterpret_cast<float2*>(data + layout.partial_stats);
  switch (cache.layout.dtype) {
    case KvDType::kF16:
      return launch_decode<KvDType::kF16>(context, params, batch.is_warp_per_item());
    case KvDType::kBf16:
      return launch_decode<KvDType::kBf16>(context, params, batch.is_warp_per_item());
    case KvDType::kFp8E4M3:
      return launch_decode<KvDType::kFp8E4M3>(context, params, batch.is_warp_per_item());
    case KvDType::kInt8:
      return launch_decode<KvDType::kInt8>(context, params, batch.is_warp_per_item());
    case KvDType::kInt4:
      return launch_decode<KvDType::kInt4>(context, params, batch.is_warp_per_item());
    case KvDType::kF32:
      break;  // rejected above
  }
}

void cuda_prefill_attention(const CudaContext& context, const AttentionProblem& problem,
                            const KvLayerView& cache, const CudaAttentionBatch& batch,
                            ConstMatrix q, Matrix out) {
  check_call(problem, cache, batch, q, out);
  if (batch.num_prefill_items() == 0) return;
  attention::PrefillLaunch launch;
  PrefillParams& params = launch.params;
  params.rows = attention::paged_rows(problem, cache);
  params.activations = activations(q, out);
  params.rule = attention::score_rule(problem);
  params.items = reinterpret_cast<const PrefillItem*>(batch.data() + batch.layout().prefill_items);
  params.num_items = static_cast<int>(batch.num_prefill_items());
  params.tables = reinterpret_cast<const int32_t*>(batch.data() + batch.layout().tables);
  params.box_tokens = attention::box_tokens(cache.layout);
  if (params.box_tokens > 0) {
    params.value_groups = attention::value_groups(cache.layout);
    launch.map = attention::page_map(cache);
  }
  switch (cache.layout.dtype) {
    case KvDType::kF16:
      return attention::launch_prefill_type<KvDType::kF16>(context, launch);
    case KvDType::kBf16:
      return attention::launch_prefill_type<KvDType::kBf16>(context, launch);
    case KvDType::kFp8E4M3:
      return attention::launch_prefill_type<KvDType::kFp8E4M3>(context, launch);
    case KvDType::kInt8:
      return attention::launch_prefill_type<KvDType::kInt8>(context, launch);
    case KvDType::kInt4:
      return attention::launch_prefill_type<KvDType::kInt4>(context, launch);
    case KvDType::kF32:
      break;  // rejected above
  }
}

}  // namespace halley
