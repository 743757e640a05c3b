// Times of a step's operations, summed over layers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/models/base/causal_lm.h"

namespace halley {

/// All operations of one name.
struct OpTotal {
  std::string name;  // "qkv"
  int64_t count = 0;
  double total_us = 0;
  double share = 0;  // of the time of all operations
};

/// "layers.3.qkv" and "layers.4.qkv" are both "qkv"; other names stay as they are.
std::string op_name_without_layer(const std::string& name);

/// The longest first; of equal ones the one that ran first.
std::vector<OpTotal> summarize_ops(std::span<const OpTime> times);

}  // namespace halley
