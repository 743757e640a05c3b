// A roofline model: the bytes that a decoder's step must read and the operations that it must
// compute, and the least time that both can take. Measured times are compared with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/precision_level.h"

namespace halley {

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

/// `linear_type`: the operand type of linear layers; routers and the output layer are always
/// counted in 16 bits. Sizes alone are taken from `memory`, so that it may lie on a device.
DecoderCost decoder_cost(const DecoderConfig& config, const WeightMemory& memory, KvDType kv_dtype,
                         GemmType linear_type = GemmType::kF16);

/// The levels of a model whose linear layers hold f16 and e4m3 weights in two planes; `memory` is
/// what a step reads in full and in low precision. Empty where low precision reads no less.
std::vector<PrecisionLevel> nested_levels(const DecoderConfig& config, const WeightMemory& full,
                                          const WeightMemory& low, KvDType kv_dtype);

/// The same, from what a step costs in each precision.
std::vector<PrecisionLevel> nested_levels(DecoderCost full, DecoderCost low);

/// Weights once, keys and values of each sequence once, `num_logit_rows` rows of logits. Experts:
/// the share that is read on average where each row picks its own, independent of the others.
/// Activations and what is written are left out: they are small, or stay in caches.
StepCost step_cost(const DecoderCost& cost, std::span<const SequenceStep> sequences,
                   int64_t num_logit_rows);

/// The roofline time in seconds: the longer of reading and computing.
double floor_seconds(const StepCost& step, GemmType linear_type, const DeviceRates& rates);

}  // namespace halley
