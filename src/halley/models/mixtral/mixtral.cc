#include "halley/models/mixtral/mixtral.h"

namespace halley {
namespace {

DecoderConfig read_mixtral(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_shape(input, {.norm_epsilon_default = 1e-5});
  add_rope(input, read_rope_config(config, "", 1e6), decoder);
  const ExpertSizes sizes = read_expert_sizes(input, decoder, "num_local_experts");
  const int64_t window = read_window(config, 0);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    LayerSpec layer = llama_layer(decoder, i, {});
    layer.window = window;
    layer.mlp = experts_mlp(input, decoder,
                            {.block = layer_prefix(i) + "block_sparse_moe.",
                             .gate = "w1",
                             .up = "w3",
                             .down = "w2",
                             .fused_block = layer_prefix(i) + "mlp."},
                            sizes);
    decoder.layers.push_back(std::move(layer));
  }
  return decoder;
}

}  // namespace

const ModelFamily kMixtral = {.model_type = "mixtral", .read = read_mixtral};

}  // namespace halley
