// What a step of a decoder must at least read and compute, and the least time that it can take: the
// yardstick of measured times.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"

namespace halley {

/// The units that a product runs on.
enum class GemmType : uint8_t { kF16, kE4m3, kS8 };

/// What a machine can do in a second. 0: not known, and no part of a floor.
struct DeviceRates {
  double bytes = 0;                  // reads of large arrays
  double f16 = 0, e4m3 = 0, s8 = 0;  // operations: two for each product

  double operations(GemmType type) const;
};

/// Measured on an NVIDIA H200: reads of large arrays; tensor cores, dense.
inline constexpr DeviceRates kH200Rates = {
    .bytes = 4.66e12, .f16 = 968e12, .e4m3 = 1733e12, .s8 = 1805e12};

/// New tokens of one sequence behind those that are cached.
struct SequenceStep {
  int64_t num_past = 0, num_new = 1;
};

struct StepCost {
  double bytes = 0;              // read: weights, keys and values
  double linear_operations = 0;  // of layers with weights of their own type: sums of 2 M N K
  double dense_operations = 0;   // of attention, routers and the output layer, in 16 bits
};

/// The facts of a model that the cost of its steps follows from.
struct DecoderCost {
  GemmType linear_type = GemmType::kF16;
  double row_linear_operations = 0;   // of one row: of experts those that it is routed to
  double row_dense_operations = 0;    // of one row: routers
  double logit_operations = 0;        // of one row with logits
  double position_operations = 0;     // of one row and one position that it sees, in one layer
  std::vector<int64_t> windows = {};  // of each layer; 0: full attention
  double position_bytes = 0;          // of one cached position in one layer
  double always_bytes = 0;            // weights that every step reads
  double expert_bytes = 0, expert_share = 0;  // as WeightMemory
};

/// `linear_type`: what the linear layers are multiplied in; routers and the output layer are always
/// counted in 16 bits. Sizes alone are taken from `memory`, so that it may lie on a device.
DecoderCost decoder_cost(const DecoderConfig& config, const WeightMemory& memory, KvDType kv_dtype,
                         GemmType linear_type = GemmType::kF16);

/// Weights once, keys and values of each sequence once, `num_logit_rows` rows of logits. Experts:
/// the share that is read on average where each row picks its own, independent of the others.
/// Activations and what is written are left out: they are small, or stay in caches.
StepCost step_cost(const DecoderCost& cost, std::span<const SequenceStep> sequences,
                   int64_t num_logit_rows);

/// The longer of reading and computing, in seconds.
double floor_seconds(const StepCost& step, GemmType linear_type, const DeviceRates& rates);

}  // namespace halley
