// The facts of a checkpoint that a quantizer wrote, from which a format's module makes the
// declaration in config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace halley {

/// One stored linear layer.
struct WrittenLayer {
  std::string name;          // without ".weight"
  bool is_quantized = true;  // false: left as it was
  int bits = 4;
  int64_t group_size = 128;  // 0: per-channel
  bool is_symmetric = false;
};

/// The whole checkpoint.
struct WrittenFormat {
  int bits = 4;
  int64_t group_size = 128;  // 0: per-channel
  bool is_symmetric = false;
  bool has_zero_points = true;  // of any layer: not all are symmetric
  bool has_act_order = false;
  bool has_static_groups = false;
  double damp = 0.01;
  bool is_per_tensor = false;         // FP8: a scale for each weight, else for each of its outputs
  bool is_activation_static = false;  // FP8: input scales are in the file
  int kv_bits = 16;                   // of the KV cache that the checkpoint declares
  std::vector<WrittenLayer> layers;   // all linear layers, in model order
};

/// The name of the output layer, which no method quantizes.
inline constexpr const char* kOutputLayer = "lm_head";

/// Names of the layers in full precision: the output layer, then those that were left out.
std::vector<std::string> dense_layers(const WrittenFormat& format);

/// Whether a quantized layer has other settings than the whole.
bool has_own_settings(const WrittenFormat& format, const WrittenLayer& layer);

/// For formats that have one setting for all layers. Throws UnsupportedError that names the first
/// layer with its own.
void reject_own_settings(const WrittenFormat& format, const char* format_name);

}  // namespace halley
