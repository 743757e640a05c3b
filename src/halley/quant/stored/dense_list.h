// The field modules_to_not_convert of the formats whose layers are quantized unless it names them.
#pragma once

#include <string>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/name_pattern.h"

namespace halley {

class DenseList {
 public:
  /// A missing field is an empty list. `if_unlisted` says for messages why a layer that the list
  /// does not name is quantized. Throws InputError that names file and field of a bad pattern.
  DenseList(const HfConfig& fields, std::string if_unlisted);

  /// Whether the part has a <name>.qweight. Throws CheckpointError where that contradicts the
  /// list, and where there is a <name>.weight too. A part that usually is in full precision may be
  /// either where the list does not name it; a matrix of fused experts is never quantized.
  bool is_quantized(const TensorSource& source, const LinearSpec::Part& part) const;

  /// Whether the list alone declares the part quantized.
  bool is_declared_quantized(const LinearSpec::Part& part) const;

 private:
  const NamePattern* find(const std::string& name) const;

  std::string path_;
  std::string if_unlisted_;
  std::vector<NamePattern> patterns_;
};

}  // namespace halley
