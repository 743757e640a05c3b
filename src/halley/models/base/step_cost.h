// A roofline model: the bytes that a decoder's step must read and the operations that it must
// compute, and the least time that both can take. Measured times are compared with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"

namespace halley {

/// The type that a GEMM's operands have: selects the tensor cores' rate.
enum class GemmType : uint8_t { kF16, kE4m3, kS8 };

/// A device's peak rates, per second. 0: unknown, and left out of the floor.
struct DeviceRates {
  double bytes = 0;                  // reads of large arrays
  double f16 = 0, e4m3 = 0, s8 = 0;  // operations: two per multiply-accumulate

  double operations(GemmType type) const;
};

/// Measured on an NVIDIA H200: reads of large arrays; tensor cores, dense.
inline constexpr DeviceRates kH200Rates = {
    .bytes = 4.66e12, .f16 = 968e12, .e4m3 = 1733e12, .s8 = 1805e12};

/// New tokens of one sequence, after those that are cached.
struct SequenceStep {
  int64_t num_past = 0, num_new = 1;
};

struct StepCost {
  double bytes = 0;              // read: weights, keys and values
  double linear_operations = 0;  // of linear layers in DecoderCost::linear_type: 2 M N K each
  double dense_operations = 0;   // of attention, routers and the output layer, in 16 bits
};

/// Per-row and per-position costs of a model, from which step_cost() computes.
struct DecoderCost {
  GemmType linear_type = GemmType::kF16;
  double row_linear_operations = 0;   // of one row, with the experts that it is routed to
  double row_dense_operations = 0;    // of one row: routers
  double logit_operations = 0;        // of one row with logits
  double position_operations = 0;     // of one row and one position that it sees, in one layer
  std::vector<int64_t> windows = {};  // of each layer; 0: full attention
  double position_bytes = 0;          // of one cached position in one layer
  double always_bytes = 0;            // weights that every step reads
  double expert_bytes = 0, expert_share = 0;  // as WeightMemory
};

/// `linear_type`: the operand type of linear layers; routers and the output layer are always
/// counted in 16 bits. Sizes alone are taken from `memory`, so that it may lie on a device.
DecoderCost decoder_cost(const DecoderConfig& config, const WeightMemory& memory, KvDType kv_dtype,
                         GemmType linear_type = GemmType::kF16);

/// Weights once, keys and values of each sequence once, `num_logit_rows` rows of logits. Experts:
/// the share that is read on average where each row picks its own, independent of the others.
/// Activations and what is written are left out: they are small, or stay in caches.
StepCost step_cost(const DecoderCost& cost, std::span<const SequenceStep> sequences,
                   int64_t num_logit_rows);

/// The roofline time in seconds: the longer of reading and computing.
double floor_seconds(const StepCost& step, GemmType linear_type, const DeviceRates& rates);

}  // namespace halley
