// Memory layout of a step's activations and small arrays. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/cuda/ops/join_columns.h"
#include "halley/models/base/decoder_config.h"

namespace halley::cuda {

/// Sizes of a step.
struct StepSize {
  int64_t num_rows = 0;
  int64_t num_logit_rows = 0;
};

/// Offsets from the start of the workspace, multiples of 256 bytes. Rows of 16-bit matrices are
/// row_stride() elements apart. Buffers that are never live together share memory.
struct ActivationPlan {
  size_t hidden = 0;  // [M, K] f32: the residual stream
  size_t normed = 0;  // [M, K]
  size_t block = 0;   // [M, K]: output of attention or MLP
  size_t qkv = 0, attended = 0;
  size_t gate_up = 0, activated = 0;
  size_t router_logits = 0;                      // [M, E] f32
  size_t last = 0, last_normed = 0, logits = 0;  // [R, K] f32, [R, K], [R, V] f32
  size_t logit_parts = 0;  // of several ranks: [ranks, R, vocabulary_width()] f32
  struct Rope {
    size_t cos = 0, sin = 0;  // [M, number of angles] f32
  };
  std::vector<Rope> ropes;
  size_t num_bytes = 0;
};

/// Monotonic: no smaller step takes more bytes.
ActivationPlan plan_activations(const DecoderConfig& config, const StepSize& size);

/// The most tokens of the vocabulary that one of the ranks has.
int64_t vocabulary_width(const DecoderConfig& config);

/// Rows of f16 or bf16 of all ranks, part by part and next to each other.
struct GatherPlan {
  int64_t part_stride = 0, all_stride = 0;  // elements
  size_t part_bytes = 0, all_bytes = 0;     // of all parts, of all columns
};
GatherPlan plan_gather(const ColumnShares& shares, int64_t num_rows);

/// Elements between rows of the type, so that rows are multiples of 16 bytes.
int64_t row_stride(DType dtype, int64_t num_cols);

/// Offsets from the start of the arrays, which one copy brings to the device; each array begins at
/// a multiple of 16.
struct ArrayPlan {
  size_t kv_slots = 0;       // int64_t [M]
  size_t token_ids = 0;      // int32_t [M]
  size_t positions = 0;      // int32_t [M]
  size_t position_rows = 0;  // int32_t [M], of learned positions
  size_t logit_rows = 0;     // int32_t [R]: row of each logit row
  size_t choice_slots = 0;   // int32_t [R]: slot that each logit row samples for, below 0: none
  size_t num_bytes = 0;
};

ArrayPlan plan_arrays(const StepSize& size);

/// Padded number of rows of the graph that serves a decode step: a power of two up to 8, a multiple
/// of 8 up to 256, then coarser; at most `num_rows_max`, which `num_rows` may not exceed. Up to
/// 1024 rows there are 51 sizes. No size between two powers of two crosses the upper one, so that
/// cuBLASLt chooses the algorithm that it chooses for the unpadded rows.
int64_t decode_bucket(int64_t num_rows, int64_t num_rows_max);

}  // namespace halley::cuda
