#include "halley/cli/inspect_ranks.h"

#include <cstdio>
#include <string>

#include "halley/base/str.h"

namespace halley::cli {
namespace {

OrderedJson json_of(const InputRange& range) {
  return OrderedJson::array({range.begin, range.end});
}

InputRange experts_of(const DecoderConfig& config) {
  for (const LayerSpec& layer : config.layers) {
    const MlpSpec& mlp = layer.mlp;
    if (!mlp.router) continue;
    return {mlp.first_expert, mlp.first_expert + static_cast<int64_t>(mlp.down.size())};
  }
  return {};
}

std::string text_of(const InputRange& range) {
  return range.size() == 0 ? "-" : str(range.begin, ":", range.end);
}

}  // namespace

RankHoldings holdings_of(const ModelPlan& rank, const ModelPlan& whole) {
  const LayerSpec& layer = rank.config.layers.front();
  const LinearSpec& down = layer.mlp.down.front();
  const InputRange inputs = layer.o.inputs.value_or(InputRange{0, layer.o.in_features});
  const int64_t D = whole.config.head_dim;
  const int64_t heads_per_kv_head = whole.config.num_heads / whole.config.num_kv_heads;
  const RankShare& share = rank.config.share;
  RankHoldings holdings;
  holdings.stage = share.stage;
  holdings.layers = {share.first_layer, share.first_layer + rank.config.num_layers};
  holdings.heads = {inputs.begin / D, inputs.end / D};
  holdings.kv_heads = {holdings.heads.begin / heads_per_kv_head,
                       (holdings.heads.end - 1) / heads_per_kv_head + 1};
  holdings.mlp_inputs = down.inputs.value_or(InputRange{0, down.in_features});
  holdings.experts = experts_of(rank.config);
  if (rank.config.has_embedding() || share.is_last()) {
    holdings.vocabulary = rank.config.vocabulary();
  }
  holdings.packed_bytes = rank.packed_bytes;
  holdings.kv_bytes_per_token = rank.kv_bytes_per_token;
  for (const ModelPart& part : rank.parts) {
    for (const LinearPlan& linear : part.plans) holdings.stored_bytes += linear.stored_bytes;
  }
  return holdings;
}

OrderedJson holdings_json(const std::vector<RankHoldings>& ranks) {
  OrderedJson json = OrderedJson::array();
  for (const RankHoldings& rank : ranks) {
    json.push_back({{"rank", json.size()},
                    {"stage", rank.stage},
                    {"layers", json_of(rank.layers)},
                    {"heads", json_of(rank.heads)},
                    {"kv_heads", json_of(rank.kv_heads)},
                    {"mlp_inputs", json_of(rank.mlp_inputs)},
                    {"experts", json_of(rank.experts)},
                    {"vocabulary", json_of(rank.vocabulary)},
                    {"stored_bytes", static_cast<int64_t>(rank.stored_bytes)},
                    {"packed_bytes", rank.packed_bytes},
                    {"kv_bytes_per_token", rank.kv_bytes_per_token}});
  }
  return json;
}

void print_holdings(const std::vector<RankHoldings>& ranks) {
  std::printf("\n%4s %8s %10s %10s %14s %10s %16s %10s %10s %10s\n", "rank", "layers", "heads",
              "kv heads", "MLP inputs", "experts", "vocabulary", "stored", "in memory",
              "KV a token");
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankHoldings& rank = ranks[i];
    std::printf("%4zu %8s %10s %10s %14s %10s %16s %10s %10s %10s\n", i,
                text_of(rank.layers).c_str(), text_of(rank.heads).c_str(),
                text_of(rank.kv_heads).c_str(), text_of(rank.mlp_inputs).c_str(),
                text_of(rank.experts).c_str(), text_of(rank.vocabulary).c_str(),
                format_bytes(rank.stored_bytes).c_str(),
                format_bytes(static_cast<double>(rank.packed_bytes)).c_str(),
                format_bytes(static_cast<double>(rank.kv_bytes_per_token)).c_str());
  }
}

}  // namespace halley::cli
