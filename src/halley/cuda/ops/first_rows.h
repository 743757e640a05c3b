// The first kernel of a step: it resolves unknown token ids, gathers embeddings and computes rotary
// angles.
#pragma once

#include <array>
#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/ops/rope_kv.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_span.h"

namespace halley::cuda {

/// All arrays in device memory.
struct FirstRows {
  ConstMatrix table = {};        // [V, K] f32, f16 or bf16
  int64_t first_id = 0;          // the id of the table's first row; other ids have zeros
  float scale = 1;               // factor of the table's rows
  const int32_t* ids = nullptr;  // [M]; an id below 0 stands for the last token of slot -1 - id
  const int32_t* last_tokens = nullptr;  // of each slot; may be null where no id is below 0
  /// Learned positions [P, K] of the table's type, and the row of each token; or empty.
  ConstMatrix position_table = {};
  const int32_t* position_rows = nullptr;  // [M]
  struct Rope {
    RopeTable table = {};
    float* cos = nullptr;  // [M, num_angles]
    float* sin = nullptr;
  };
  static constexpr int kNumRopesMax = 4;
  std::array<Rope, kNumRopesMax> ropes = {};
  int num_ropes = 0;
  const int32_t* positions = nullptr;  // [M], of the rotary embedding
  DeviceSpan* span = nullptr;          // starts here; may be null
};

/// hidden[m] = table[id of row m - first_id] * scale, plus position_table[position_rows[m]]; cos
/// and sin of positions[m] * inv_freq[i], times the attention factor. Shapes    hidden [M, K] f32
void first_rows(const CudaContext& context, const FirstRows& rows, Matrix hidden);

}  // namespace halley::cuda
