// The part of `halley inspect` that shows what each of several ranks holds.
#pragma once

#include <cstddef>
#include <vector>

#include "halley/json/json.h"
#include "halley/models/all/load_model.h"

namespace halley::cli {

struct RankHoldings {
  int stage = 0;
  InputRange layers;
  InputRange heads, kv_heads;  // of each layer
  InputRange mlp_inputs;       // of its first layer's MLP, or of each of the experts
  InputRange experts;          // of the first layer that has some; empty: none has
  InputRange vocabulary;       // empty in stages without embedding and output layer
  double stored_bytes = 0;     // that the rank reads of the checkpoint
  size_t packed_bytes = 0;     // of its weights in memory
  size_t kv_bytes_per_token = 0;
};

/// `whole`: the plan of one rank. A rank has the kv heads of its query heads.
RankHoldings holdings_of(const ModelPlan& rank, const ModelPlan& whole);

/// Both: [rank]. JSON has ranges as [begin, end).
OrderedJson holdings_json(const std::vector<RankHoldings>& ranks);
void print_holdings(const std::vector<RankHoldings>& ranks);

}  // namespace halley::cli
