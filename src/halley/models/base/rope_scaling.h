// From the rotary parameters of config.json to the frequencies that the decoder uses.
#pragma once

#include <cstdint>
#include <string>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/models/base/decoder_config.h"

namespace halley {

/// The facts other than RopeConfig that the frequencies depend on.
struct RopeContext {
  std::string where;  // config.json's path, for messages
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;  // as declared in config.json
  int64_t max_length = 0;               // longest sequence that will be run
};

/// The frequencies of types default, linear, dynamic, yarn, longrope (also named "su") and llama3,
/// by the formulas of transformers' modeling_rope_utils.py, evaluated in f64 and rounded once.
///
/// Two types depend on the length of the sequence. transformers recomputes them when a sequence
/// grows; here they are fixed at load, so that the keys in the cache stay valid: `dynamic` takes
/// max_length as the sequence's length, `longrope` takes the long factors where max_length exceeds
/// original_max_position_embeddings and the short ones otherwise.
///
/// Throws UnsupportedError for another type, InputError where a parameter is missing or its value
/// leads to frequencies that are not finite and positive.
RopeSpec make_rope(const RopeConfig& rope, const RopeContext& context);

}  // namespace halley
