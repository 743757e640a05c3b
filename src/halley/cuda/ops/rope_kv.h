// What lies between the q/k/v product and attention, in one pass: norms of query and key heads,
// rotary embedding, and the new keys and values into the paged cache.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/kv/kv_cache_view.h"

namespace halley::cuda {

/// One rotary embedding; all in device memory.
struct RopeTable {
  const float* inv_freq = nullptr;  // [num_angles]
  int64_t num_angles = 0;           // R / 2
  float attention_factor = 1;
};

struct RopeKvParams {
  int64_t num_heads = 0;  // H
  /// [D] f32 in device memory; null: no norm.
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float weight_offset = 0, epsilon = 0;
  /// [M, num_angles] f32 in device memory; num_angles 0: no rotation.
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t num_angles = 0;
  /// Where each row's key and value go: page * page_tokens + slot in the page. [M] in device
  /// memory. Negative: nowhere (rows that fill up a captured batch).
  const int64_t* kv_slots = nullptr;
};

/// Queries are changed in place; keys and values are written to `cache`, whose pages lie in device
/// memory, as write_kv() of kernels/kv writes what it is given: the values in the type of qkv for
/// types of 16 bits, and what the norm and the rotation give in f32 for the others.
/// Shapes    qkv [M, (H + 2 J) * D] f16 or bf16
/// Requires  D <= kRopeHeadDimMax, even
void rope_and_write_kv(const CudaContext& context, const RopeKvParams& params,
                       const KvLayerView& cache, Matrix qkv);

inline constexpr int64_t kRopeHeadDimMax = 256;

}  // namespace halley::cuda
