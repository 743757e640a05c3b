// Shared by tests of weights in two planes.
#include "halley/models/all/testing/two_planes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "halley/core/thread_pool.h"
#include "halley/models/base/decoder_parts.h"
#include "halley/quant/nestedfp/encode.h"

namespace halley {

std::vector<std::string> linear_names(const DecoderConfig& config, const TensorSource& source) {
  std::vector<std::string> names;
  for (const DecoderPart& part : list_decoder_parts(config)) {
    if (part.kind != PartKind::kLinear) continue;
    for (const LinearSpec::Part& linear : part.linear->parts) {
      if (linear.expert >= 0 || source.find(linear.name + ".weight") == nullptr) continue;
      if (std::find(names.begin(), names.end(), linear.name) == names.end()) {
        names.push_back(linear.name);
      }
    }
  }
  return names;
}

TwoPlaneCheckpoint::TwoPlaneCheckpoint(const DecoderConfig& config, const TensorSource& from)
    : source(from) {
  ThreadPool pool(1);
  ExecContext context{pool};
  for (const std::string& name : linear_names(config, from)) {
    const TensorView view = from.view(*from.find(name + ".weight"));
    NestedFpLayer layer = encode_nestedfp(context, name, view);
    source.remove(name + ".weight");
    for (CheckpointTensor& tensor : layer.tensors) {
      source.set(std::move(tensor.info), std::move(tensor.data));
    }
    format.layers.push_back({.name = name, .is_quantized = layer.exception.empty()});
  }
}

LoadOptions TwoPlaneCheckpoint::options() const {
  LoadOptions options;
  options.quant =
      quant_config_of(HfConfig::parse(nestedfp_declaration(format).dump(), "quant_config.json"));
  return options;
}

double difference(std::span<const float> logits, std::span<const float> expected) {
  double squares = 0, errors = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = double{logits[i]} - double{expected[i]};
    squares += double{expected[i]} * double{expected[i]};
    errors += error * error;
  }
  return std::sqrt(errors / squares);
}

size_t bytes_read(const CausalLm& model) {
  const WeightMemory memory = model.weight_memory();
  size_t num_bytes = 0;
  for (const auto& parts : {memory.always_read, memory.experts}) {
    for (const WeightMemory::Bytes& bytes : parts) num_bytes += bytes.size();
  }
  return num_bytes;
}

}  // namespace halley
