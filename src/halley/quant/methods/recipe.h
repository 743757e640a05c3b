// A quantization method as data: which techniques in which order, and the format that is written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/quant/base/name_pattern.h"

namespace halley {

/// The format that is written; its module encodes the checkpoint.
enum class WeightFormat : uint8_t {
  kDense,  // weights stay as they are
  kGptq,
  kAwq,
  kPackedInt,   // compressed-tensors pack-quantized
  kInt8,        // compressed-tensors int-quantized, W8A8
  kFp8Channel,  // compressed-tensors float-quantized
  kFp8Tensor,   // the same with per-tensor scales
  kQoq,
  kFmpq,
  kNestedFp,
};

/// How smoothing factors of input channels are chosen.
enum class Smoothing : uint8_t {
  kNone,
  kAlpha,   // max|x|^alpha / max|w|^(1 - alpha)
  kSearch,  // AWQ's search over mean|x|^a
  kBlocks,  // kAlpha; alpha, or none, is searched for inputs in blocks of 4 and 8 bits
};

struct Recipe {
  const char* method = "";
  const char* description = "";
  WeightFormat format = WeightFormat::kGptq;
  int bits = 4;
  int64_t group_size = 128;          // 0: per-channel
  bool is_group_size_given = false;  // by the user: it is not fitted to the model's sizes
  bool is_symmetric = false;
  bool is_rotated = false;                    // of the residual stream, by Hadamard matrices
  Smoothing block_input = Smoothing::kNone;   // of the inputs of q/k/v and gate/up
  Smoothing block_output = Smoothing::kNone;  // of the inputs of o and down
  double alpha_input = 0.5, alpha_output = 0.05;
  bool has_key_smoothing = false;  // SmoothAttention
  double alpha_key = 0.5;
  bool is_reordered = false;  // channels sorted by salience
  bool is_clipped = false;    // clip search per group
  /// Clip search of q and k by the error of the attention block (block_clip.h); needs is_clipped.
  /// On the demo model it leaves the KL divergence as it is.
  bool has_block_clip = false;
  bool is_compensated = false;  // GPTQ's error feedback
  bool has_act_order = false;
  bool has_static_groups = false;
  double damp = 0.01;
  int kv_bits = 16;
  double s8_share_max = 0.25;         // of activation blocks (FMPQ)
  bool has_activation_clip = false;   // clip search of the s4 blocks (FMPQ)
  bool is_activation_static = false;  // FP8: a per-tensor scale from calibration
  /// Without a calibration text the recipe's calibrated techniques are left out.
  bool is_calibration_optional = false;
};

/// A technique that `--without NAME` switches off where the recipe has it.
struct Technique {
  const char* name;  // "rotation"
  bool (*has)(const Recipe& recipe);
  void (*switch_off)(Recipe& recipe);
  bool is_calibrated = true;  // computed from statistics of inputs or keys
};

/// All methods, in the order of the documentation.
std::span<const Recipe> recipes();
std::span<const Technique> techniques();

/// Names the parts of the recipe that are computed from calibration tokens: techniques, "static
/// activations", "activation blocks". Empty: it needs no tokens.
std::vector<std::string> calibrated_parts(const Recipe& recipe);

/// The user's changes to a recipe; absent: as the method has it.
struct RecipeChanges {
  std::optional<int> bits = {};
  std::optional<int64_t> group_size = {};  // -1 or 0: per-channel
  std::optional<bool> is_symmetric = {};
  std::optional<bool> has_act_order = {};
  std::optional<bool> has_static_groups = {};
  std::optional<bool> is_activation_static = {};
  bool is_per_tensor = false;  // FP8: per-tensor weight scales
  std::optional<double> damp = {};
  std::optional<double> alpha = {};
  std::optional<double> s8_share_max = {};
  std::optional<int> kv_bits = {};
  std::vector<std::string> without = {};  // names of techniques
  bool has_calibration = true;            // there is a calibration text
};

/// The method's recipe with the changes. Throws InputError for an unknown method or technique, a
/// technique that the method does not have, a value out of range or that the format cannot hold,
/// and where the recipe needs a calibration text and there is none.
Recipe make_recipe(const std::string& method, const RecipeChanges& changes);

/// "4 bits, group 128, asymmetric; clip, GPTQ": for reports.
std::string describe(const Recipe& recipe);

/// Layers that are quantized differently from the rest.
struct LayerOverride {
  NamePattern pattern;  // of a stored layer's name, "model.layers.0.mlp.up_proj"
  bool is_dense = false;
  std::optional<int> bits = {};
  std::optional<int64_t> group_size = {};
  std::optional<bool> is_symmetric = {};
};

/// Whether any layer may be asymmetric: the recipe is, or an override asks for it.
bool has_zero_points(const Recipe& recipe, std::span<const LayerOverride> overrides);

/// "PATTERN=none" or "PATTERN=bits=8,group=64,sym,asym". Throws InputError.
LayerOverride parse_layer_override(const std::string& text);

}  // namespace halley
