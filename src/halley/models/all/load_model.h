// From a model's directory, or a built-in shape, to a model that runs.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"

namespace halley {

/// Maps config.json to a decoder by `model_type`. Throws UnsupportedError that names an unknown
/// family or an option that is not supported, and lists the families that are.
/// This form assumes the tensor names of published checkpoints and the type that config.json
/// states.
DecoderConfig read_decoder_config(const HfConfig& config);

/// The same for the tensors at hand (experts fused or one by one; the type of the weights), with
/// the longest sequence that will be run, which `dynamic` and `longrope` rotary embeddings depend
/// on (rope_scaling.h). max_length 0: max_position_embeddings. Throws InputError where it is longer
/// than the model can do.
DecoderConfig read_decoder_config(const HfConfig& config, const TensorSource& source,
                                  int64_t max_length);

/// Names of all families (`model_type` values), in the order of the table.
std::vector<std::string> family_names();

/// config.json text of a built-in shape ("llama-1b", "llama-3-8b", ...), for dummy weights. Throws
/// InputError that lists the known names.
HfConfig builtin_config(const std::string& name);
std::vector<std::string> builtin_config_names();

/// All tensors that a full-precision checkpoint of this decoder holds, for dummy weights.
std::vector<TensorInfo> list_dense_tensors(const DecoderConfig& config);

/// One line of `inspect`.
struct ModelPart {
  std::string name;  // "embedding", "layers.0.qkv", ...
  std::string kind;  // "embedding", "norm", "linear"
  LinearPlan plan;   // for linear parts and the embedding
};

/// What would be loaded and run, from headers alone. Throws as load_model().
struct ModelPlan {
  DecoderConfig config;
  std::string format;  // of the checkpoint
  std::vector<ModelPart> parts;
  size_t stored_bytes = 0;        // all tensors of the source
  size_t packed_bytes = 0;        // what the loaded weights will take
  size_t kv_bytes_per_token = 0;  // at the default cache type
};
ModelPlan plan_model(const HfConfig& config, const TensorSource& source, int64_t max_length = 0);

/// `progress(done, total)` in bytes of packed weights; may be empty.
using LoadProgress = std::function<void(size_t done, size_t total)>;

/// Loads and packs every weight. `context` must outlive the model, `source` need not. Throws
/// CheckpointError where a tensor is missing, has the wrong type or shape, or is not used by the
/// model; UnsupportedError as read_decoder_config(). `max_length` is the longest sequence that will
/// be run, 0: max_position_embeddings.
std::unique_ptr<CausalLm> load_model(ExecContext& context, const HfConfig& config,
                                     const TensorSource& source, const LoadProgress& progress,
                                     int64_t max_length = 0);

/// Runs a decoder whose configuration is already at hand; as load_model().
std::unique_ptr<CausalLm> load_decoder(ExecContext& context, const HfConfig& config,
                                       DecoderConfig decoder, const TensorSource& source,
                                       const LoadProgress& progress);

}  // namespace halley
