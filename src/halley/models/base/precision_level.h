// The precisions in which a loaded model can run a step, and what a step costs in each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/core/precision.h"

namespace halley {

/// The type that a GEMM's operands have: selects the tensor cores' rate.
enum class GemmType : uint8_t { kF16, kE4m3, kS8 };

/// Per-row and per-position costs of a model, from which step_cost() (step_cost.h) computes.
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

/// One of a model's precisions. All of them share the KV cache.
struct PrecisionLevel {
  std::string name;  // of the weights' numbers: "f16", "e4m3"
  Precision precision = Precision::kFull;
  double weight_error = 0;  // largest relative error of a weight, against the best level
  DecoderCost cost = {};
};

}  // namespace halley
