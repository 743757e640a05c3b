#include "halley/quant/compressed_tensors/encode.h"

#include <algorithm>
#include <tuple>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/quant/base/written_tensors.h"

namespace halley {
namespace {

constexpr int kSignedOffset = 128;  // added to signed 8-bit values

const char* format_of(CodeStorage storage) {
  switch (storage) {
    case CodeStorage::kPacked:
      return "pack-quantized";
    case CodeStorage::kInt8:
      return "int-quantized";
    case CodeStorage::kFloat8:
      return "float-quantized";
    case CodeStorage::kNvFp4:
      return "nvfp4-pack-quantized";
    case CodeStorage::kMxFp4:
      return "mxfp4-pack-quantized";
  }
  return "";
}

OrderedJson scheme_of_weights(const WrittenFormat& format, const WrittenLayer& layer,
                              CodeStorage storage) {
  const bool is_grouped = layer.group_size != 0;
  const char* whole = format.is_per_tensor ? "tensor" : "channel";
  OrderedJson weights = {{"num_bits", layer.bits},
                         {"type", storage == CodeStorage::kFloat8 ? "float" : "int"},
                         {"symmetric", layer.is_symmetric},
                         {"strategy", is_grouped ? "group" : whole},
                         {"dynamic", false}};
  if (is_grouped) {
    weights["group_size"] = layer.group_size;
    if (format.has_act_order) weights["actorder"] = "weight";
  }
  return weights;
}

/// The scheme of activations; null where the weights alone are quantized.
OrderedJson scheme_of_inputs(const WrittenFormat& format, CodeStorage storage) {
  if (storage == CodeStorage::kPacked) return nullptr;
  const bool is_static = storage == CodeStorage::kFloat8 && format.is_activation_static;
  return {{"num_bits", 8},
          {"type", storage == CodeStorage::kFloat8 ? "float" : "int"},
          {"symmetric", true},
          {"strategy", is_static ? "tensor" : "token"},
          {"dynamic", !is_static}};
}

/// A member of config_groups: its first layer, which has the settings, and all layers by name.
struct Group {
  WrittenLayer setting;
  std::vector<std::string> targets;
};

std::vector<Group> groups_of(const WrittenFormat& format) {
  const auto key = [](const WrittenLayer& layer) {
    return std::tuple(layer.bits, layer.group_size, layer.is_symmetric);
  };
  std::vector<Group> groups(1);
  groups[0].setting.bits = format.bits;
  groups[0].setting.group_size = format.group_size;
  groups[0].setting.is_symmetric = format.is_symmetric;
  groups[0].targets = {"Linear"};
  for (const WrittenLayer& layer : format.layers) {
    if (!has_own_settings(format, layer)) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& other) { return key(other.setting) == key(layer); });
    if (group == groups.end()) group = groups.insert(group, {.setting = layer, .targets = {}});
    group->targets.push_back(layer.name);
  }
  return groups;
}

}  // namespace

std::vector<CheckpointTensor> encode_pack_quantized(const std::string& name,
                                                    const QuantizedWeight& weight) {
  check_sizes(weight);
  require_bits(name, weight, {4, 8});
  require_whole_groups(name, weight);
  require_consecutive_groups(name, weight);
  const int64_t N = weight.N, K = weight.K, num_groups = weight.num_groups();
  const int64_t words_per_row = ceil_div(K * weight.bits, int64_t{32});
  std::vector<uint32_t> codes(static_cast<size_t>(N * words_per_row));
  for (int64_t n = 0; n < N; ++n) {
    const CodeWriter row = {.words = codes.data() + n * words_per_row, .bits = weight.bits};
    const uint8_t* from = weight.codes.data() + n * K;
    for (int64_t k = 0; k < K; ++k) row.put(k, from[k]);
  }
  std::vector<CheckpointTensor> tensors = {
      written_tensor(name + ".weight_packed", DType::kI32, {N, words_per_row}, codes),
      written_f16(name + ".weight_scale", {N, num_groups}, weight.scales),
      written_tensor(name + ".weight_shape", DType::kI64, {2}, std::vector<int64_t>{N, K})};
  if (!weight.is_symmetric) {
    const int64_t num_words = ceil_div(N * weight.bits, int64_t{32});
    std::vector<uint32_t> zeros(static_cast<size_t>(num_words * num_groups));
    for (int64_t g = 0; g < num_groups; ++g) {
      const CodeWriter column = {
          .words = zeros.data() + g, .stride = num_groups, .bits = weight.bits};
      for (int64_t n = 0; n < N; ++n) {
        column.put(n, weight.zeros[static_cast<size_t>(n * num_groups + g)]);
      }
    }
    tensors.push_back(
        written_tensor(name + ".weight_zero_point", DType::kI32, {num_words, num_groups}, zeros));
  }
  return tensors;
}

std::vector<CheckpointTensor> encode_int_quantized(const std::string& name,
                                                   const QuantizedWeight& weight) {
  check_sizes(weight);
  require_bits(name, weight, {8});
  if (!weight.is_symmetric) reject_to_write(name, "a symmetric weight", "an asymmetric one");
  if (weight.num_groups() != 1) {
    reject_to_write(name, "per-channel scales", str("groups of ", weight.group_size));
  }
  std::vector<int8_t> codes(weight.codes.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<int8_t>(int{weight.codes[i]} - kSignedOffset);
  }
  return {written_tensor(name + ".weight", DType::kI8, {weight.N, weight.K}, codes),
          written_tensor(name + ".weight_scale", DType::kF32, {weight.N, 1}, weight.scales)};
}

OrderedJson compressed_tensors_declaration(const WrittenFormat& format, CodeStorage storage) {
  OrderedJson groups = OrderedJson::object();
  for (const Group& group : groups_of(format)) {
    groups[str("group_", groups.size())] = {
        {"targets", group.targets},
        {"weights", scheme_of_weights(format, group.setting, storage)},
        {"input_activations", scheme_of_inputs(format, storage)},
        {"output_activations", nullptr}};
  }
  return {{"quant_method", "compressed-tensors"}, {"format", format_of(storage)},
          {"quantization_status", "compressed"},  {"config_groups", std::move(groups)},
          {"ignore", dense_layers(format)},       {"kv_cache_scheme", nullptr}};
}

}  // namespace halley
