// Scales of an FP8 KV cache that a checkpoint stores.
#pragma once

#include <string>
#include <vector>

#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/models/base/decoder_config.h"
#include "halley/quant/base/linear_loader.h"

namespace halley {

/// A checkpoint's scales, per layer, or nothing.
struct StoredKvScales {
  std::vector<KvScales> scales;
  std::vector<std::string> tensor_names;
};

/// Names that tools give them, behind "model.layers.0.self_attn.": k_scale and v_scale,
/// k_proj.k_scale and v_proj.v_scale, k_proj.output_scale and v_proj.output_scale, or one kv_scale
/// for both. Throws CheckpointError where the checkpoint declares an FP8 cache and a layer has
/// none, where some layers have them and others do not, or where one is not a single finite number
/// above zero: a scale is never made up.
StoredKvScales read_kv_scales(const DecoderConfig& config, const LinearLoading& loading);

}  // namespace halley
