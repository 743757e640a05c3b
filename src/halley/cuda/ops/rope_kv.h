// The operations between the QKV GEMM and attention in one pass: norms of query and key heads,
// rotary embedding, and the write of new keys and values to the paged cache.
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
  /// Angle i turns columns 2i and 2i + 1 instead of i and i + num_angles.
  bool is_interleaved = false;
  /// Slot of each row's key and value: page * page_tokens + index in the page. [M] in device
  /// memory. Negative: not written (padding rows of a captured batch).
  const int64_t* kv_slots = nullptr;
};

/// Changes queries in place. Writes keys and values to `cache`, whose pages lie in device memory,
/// as write_kv() of kernels/kv does: caches of 16-bit types get the values in the type of qkv, the
/// others quantize the f32 results of norm and rotation.
/// Shapes    qkv [M, (H + 2 J) * D] f16 or bf16
/// Requires  D <= kRopeHeadDimMax, even
void rope_and_write_kv(const CudaContext& context, const RopeKvParams& params,
                       const KvLayerView& cache, Matrix qkv);

inline constexpr int64_t kRopeHeadDimMax = 256;

}  // namespace halley::cuda
