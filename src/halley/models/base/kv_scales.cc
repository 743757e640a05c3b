#include "halley/models/base/kv_scales.h"

#include <array>
#include <cmath>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

struct NamePair {
  const char* k;
  const char* v;
};
constexpr std::array<NamePair, 4> kNamePairs = {{{"k_scale", "v_scale"},
                                                 {"k_proj.k_scale", "v_proj.v_scale"},
                                                 {"k_proj.output_scale", "v_proj.output_scale"},
                                                 {"kv_scale", "kv_scale"}}};

/// "model.layers.0.self_attn.", from the name of its first projection.
std::string attention_prefix(const LayerSpec& layer) {
  const std::string& name = layer.qkv.parts[0].name;
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot + 1);
}

float read_scale(const TensorSource& source, const TensorInfo& info) {
  const Shape shape = info.shape.empty() ? Shape{} : Shape{1};
  const TensorInfo& checked = find_dense_tensor(source, info.name, shape);
  const float scale = to_f32(source.view(checked))[0];
  if (std::isfinite(scale) && scale > 0) return scale;
  throw CheckpointError(str(source.description(), ": tensor ", quote(info.name),
                            ": expected a finite scale above zero, got ", scale,
                            ". Calibrate the KV cache again, or leave its scales out."));
}

[[noreturn]] void fail_missing(const TensorSource& source, const std::string& prefix,
                               const char* name, const char* because) {
  throw CheckpointError(
      str(source.description(), ": tensor ", quote(prefix + name),
          ": expected the scale of an FP8 KV cache, since ", because,
          ", got none. Remove the declaration (then each token gets its own scale), "
          "or calibrate the cache again."));
}

/// The pair that the layer has; null where it has none.
const NamePair* find_pair(const TensorSource& source, const std::string& prefix) {
  for (const NamePair& pair : kNamePairs) {
    const bool has_k = source.find(prefix + pair.k) != nullptr;
    const bool has_v = source.find(prefix + pair.v) != nullptr;
    if (has_k && has_v) return &pair;
    if (has_k) fail_missing(source, prefix, pair.v, "the keys' scale is there");
    if (has_v) fail_missing(source, prefix, pair.k, "the values' scale is there");
  }
  return nullptr;
}

}  // namespace

StoredKvScales read_kv_scales(const DecoderConfig& config, const LinearLoading& loading) {
  const TensorSource& source = loading.source;
  const bool is_declared = loading.scheme.declared_kv() == DeclaredKv::kFp8Static;
  StoredKvScales stored;
  for (const LayerSpec& layer : config.layers) {
    const std::string prefix = attention_prefix(layer);
    const NamePair* pair = find_pair(source, prefix);
    const bool is_first = &layer == config.layers.data();
    if (pair == nullptr) {
      if (is_declared) {
        fail_missing(source, prefix, kNamePairs[0].k, "the configuration states the cache's type");
      }
      if (!stored.scales.empty()) {
        fail_missing(source, prefix, kNamePairs[0].k, "other layers have one");
      }
      continue;
    }
    if (!is_first && stored.scales.empty()) {
      fail_missing(source, attention_prefix(config.layers[0]), pair->k, "other layers have one");
    }
    const TensorInfo& k = *source.find(prefix + pair->k);
    const TensorInfo& v = *source.find(prefix + pair->v);
    stored.scales.push_back({read_scale(source, k), read_scale(source, v)});
    stored.tensor_names.push_back(k.name);
    stored.tensor_names.push_back(v.name);
  }
  return stored;
}

}  // namespace halley
