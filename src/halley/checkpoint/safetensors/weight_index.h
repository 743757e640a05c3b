// model.safetensors.index.json: which shard holds which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace halley {

/// Tensor name to the name of the shard's file, from the index's `weight_map`. Every file name is
/// plain: it ends in ".safetensors" and cannot lead out of the model's directory. Throws
/// CheckpointError, as for all malformed text.
std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where);

}  // namespace halley
