// A layer's parts as a checkpoint stores them, joined where they agree, and packed: the first step
// of every backend's loader.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/core/packed_weight.h"
#include "halley/quant/base/format.h"
#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// One part; refers to the LinearSpec that it was opened from.
struct OpenPart {
  const LinearSpec::Part* spec = nullptr;
  std::unique_ptr<StoredWeight> weight;
  const TensorInfo* bias = nullptr;  // null: none
  bool is_slice = false;             // its tensors hold more than it
};

/// Consecutive parts that become one packed weight (fused q/k/v, gate/up).
struct OpenSection {
  std::vector<OpenPart> parts;
  int64_t in_features = 0;

  const WeightDesc& desc() const { return parts[0].weight->desc(); }
  /// The parts' names joined, as LinearSpec does.
  std::string display_name() const;
  int64_t out_features() const {
    int64_t total = 0;
    for (const OpenPart& part : parts) total += part.spec->out_features;
    return total;
  }
};

/// The layer's sections, from headers alone. Scheme, source and spec must outlive them. Throws as
/// QuantScheme::open(), and CheckpointError for a bias that is missing or has another shape.
std::vector<OpenSection> open_sections(const QuantScheme& scheme, const TensorSource& source,
                                       const LinearSpec& spec);

/// The biases of all outputs, zero where a part has none; empty where none has one.
std::vector<float> read_bias(const TensorSource& source, std::span<const OpenSection> sections);

/// Packs the section's data in the layout of its desc(), once. Throws CheckpointError where they
/// are wrong (StoredWeight::check_data()).
PackedWeight pack_section(ExecContext& context, const OpenSection& section);

/// Tells the source that the section's tensors will not be read again.
void release_tensors(const TensorSource& source, const OpenSection& section);

}  // namespace halley
