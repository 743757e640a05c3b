// adapter_config.json of a LoRA adapter, as PEFT writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"

namespace halley {

/// The fields that decide what an adapter adds.
struct AdapterConfig {
  int64_t rank = 0;                 // of layers that no rank_pattern names
  double alpha = 0;                 // of layers that no alpha_pattern names
  bool is_rank_stabilized = false;  // factor alpha / sqrt(rank), else alpha / rank
  /// The ends of layers' names ("self_attn.q_proj"), each with what holds for those layers. The
  /// first that fits counts.
  std::vector<std::pair<std::string, double>> rank_pattern, alpha_pattern;

  int64_t rank_of(std::string_view layer) const;
  /// B A x is multiplied by it.
  double factor_of(std::string_view layer) const;
};

/// Throws InputError that names the file and the field where a value is not what it may be;
/// UnsupportedError for fields that ask for more than y + factor * B A x in some linear layers
/// (DoRA, biases, trained embeddings), or that are unknown.
AdapterConfig read_adapter_config(const HfConfig& config);

}  // namespace halley
