// Loads LoRA adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/low_rank.h"

namespace halley {

/// Loads the adapter in `folder` for a decoder; `name` is what requests call it. Weights are kept
/// in f32. May run on any thread, while the decoder runs. Throws InputError, UnsupportedError as
/// read_adapter_config(); CheckpointError that names the tensor where it does not fit a linear
/// layer of the decoder, has no partner, or is not finite; UnsupportedError where it belongs to an
/// embedding, the output layer or experts.
std::shared_ptr<const Adapter> load_adapter(const std::filesystem::path& folder,
                                            const DecoderConfig& config, const std::string& name);

/// An adapter of small random numbers for all attention and MLP layers, for measurements.
std::shared_ptr<const Adapter> make_random_adapter(const DecoderConfig& config, int64_t rank,
                                                   uint32_t seed);

/// Empty where the model takes adapters, else what was expected, what it is and what to do.
std::string why_no_adapters(const CausalLm& model);

}  // namespace halley
