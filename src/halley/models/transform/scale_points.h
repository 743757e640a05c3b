// The points of a decoder layer where channels can be scaled or permuted exactly, because the
// preceding operation is linear: a norm, v before o, up before down; and queries with keys.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_store.h"
#include "halley/models/base/decoder_config.h"

namespace halley {

/// Input channels of linear layers that share their input.
enum class InputKind : uint8_t { kAttentionIn, kAttentionOut, kMlpIn, kMlpOut };

struct ScalePoint {
  InputKind kind = InputKind::kAttentionIn;
  std::string name;  // for messages and reports: "layers.0.qkv", "layers.0.experts.3.down"
  int64_t K = 0;
  /// The linear layers that read the channels; of a mixture of experts kMlpIn lists all experts'
  /// gate_up and the router. Pointers lead into the LayerSpec.
  std::vector<const LinearSpec*> consumers;
  /// Whether factors can be moved into the preceding weights. False: the preceding operation is not
  /// linear (an ungated MLP with a curved activation), or its output is used elsewhere.
  bool can_scale = true;
  std::string why_not;  // where it cannot
  /// [K] channels with the same number must share a factor (value channels under grouped-query
  /// attention); empty: each is free.
  std::vector<int32_t> groups;
  /// Whether the channels can be permuted by permuting the preceding weights' rows (kMlpOut;
  /// kAttentionOut within value heads). Those of the residual stream cannot, layer by layer.
  bool can_permute = false;
};

/// Lists the points of one layer, in the order in which they run.
std::vector<ScalePoint> list_scale_points(const DecoderConfig& config, int64_t layer_index);

/// Copies all tensors of one layer (weights, biases, norms) into f32.
/// Throws as find_dense_tensor() where one is missing, UnsupportedError where a stored tensor holds
/// several experts.
TensorStore read_layer_tensors(const DecoderConfig& config, int64_t layer_index,
                               const TensorSource& source);

/// `point` is of the same `config`, whose LayerSpec it leads into.
/// Keeps the layer's function: consumers' weights[:, k] *= factors[k], and the preceding weights
/// are divided by them. Requires can_scale; factors [K] above zero, equal within groups.
void scale_inputs(TensorStore& layer, const DecoderConfig& config, int64_t layer_index,
                  const ScalePoint& point, std::span<const float> factors);

/// Permutes inputs of consumers and rows of the preceding weights: new input k is old input
/// perm[k]. Requires can_permute and a permutation of [0, K): for kMlpOut any; for kAttentionOut
/// one inside each head, the same for all heads that share a value head.
void permute_inputs(TensorStore& layer, const DecoderConfig& config, int64_t layer_index,
                    const ScalePoint& point, std::span<const int32_t> perm);

/// Keys of head j, channel d are divided by factors[j * D + d] and queries multiplied: moved into
/// k_proj and q_proj with their biases, or, where keys are normed per head, into these norms (then
/// all heads must have equal factors). The two channels of a rotary pair must be equal.
/// `why_not_smooth_keys` is empty where it can be done.
std::string why_not_smooth_keys(const DecoderConfig& config, int64_t layer_index);
/// Whether all key heads must share their factors.
bool must_share_key_factors(const DecoderConfig& config, int64_t layer_index);
void smooth_keys(TensorStore& layer, const DecoderConfig& config, int64_t layer_index,
                 std::span<const float> factors);

}  // namespace halley
