// Any bytes as a configuration's quantization, over a small checkpoint that has a layer in every
// storage. Only halley::Error may come out; a weight that opens must read without one byte amiss.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "halley/base/error.h"
#include "halley/quant/all/formats.h"
#include "halley/quant/base/quant_config.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace {

using halley::DType;

constexpr int64_t kNumRows = 32;
constexpr int64_t K = 128;
constexpr const char* kLayers[] = {"m.dense",     "m.f8",     "m.f8_block", "m.s8",
                                   "m.w2",        "m.w3",     "m.w4",       "m.w4_order",
                                   "m.w8",        "m.qoq",    "m.by_input", "m.by_input_order",
                                   "m.by_output", "m.blocks", "m.nested"};

void add_packed(halley::MemoryTensors& tensors, const std::string& name, int64_t bits) {
  tensors.add_bytes(name + ".weight_packed", DType::kI32, {kNumRows, K * bits / 32});
  tensors.fill(name + ".weight_scale", {kNumRows, K / 32}, 0.5f);
  tensors.fill(name + ".input_scale", {}, 0.5f);
  tensors.add<int64_t>(name + ".weight_shape", DType::kI64, {2}, {kNumRows, K});
}

halley::MemoryTensors make_tensors() {
  halley::MemoryTensors tensors;
  tensors.add_bytes("m.dense.weight", DType::kF16, {kNumRows, K});
  tensors.add_bytes("m.f8.weight", DType::kF8E4M3, {kNumRows, K});
  tensors.fill("m.f8.weight_scale", {}, 0.5f).fill("m.f8.input_scale", {}, 0.5f);
  tensors.add_bytes("m.f8_block.weight", DType::kF8E4M3, {kNumRows, K});
  tensors.fill("m.f8_block.weight_scale_inv", {1, 1}, 0.5f);
  tensors.add_bytes("m.s8.weight", DType::kI8, {kNumRows, K});
  tensors.fill("m.s8.weight_scale", {kNumRows, 1}, 0.5f).fill("m.s8.input_scale", {1}, 0.5f);
  for (const int64_t bits : {2, 3, 4, 8}) {
    const std::string name = "m.w" + std::to_string(bits);
    add_packed(tensors, name, bits);
    tensors.add_bytes(name + ".weight_zero_point", DType::kI32, {bits, K / 32});
  }
  add_packed(tensors, "m.w4_order", 4);
  std::vector<int32_t> index;
  for (int32_t k = 0; k < K; ++k) index.push_back(k % 4);
  tensors.add("m.w4_order.weight_g_idx", DType::kI32, {K}, index);
  for (const char* name : {"m.by_input", "m.by_input_order", "m.by_output"}) {
    const bool is_by_output = std::string_view(name) == "m.by_output";
    const halley::Shape words =
        is_by_output ? halley::Shape{K, kNumRows / 8} : halley::Shape{K / 8, kNumRows};
    tensors.add_bytes(std::string(name) + ".qweight", DType::kI32, words);
    tensors.add_bytes(std::string(name) + ".qzeros", DType::kI32, {K / 32, kNumRows / 8});
    tensors.add(std::string(name) + ".scales", DType::kF16, {K / 32, kNumRows},
                std::vector<uint16_t>(K / 32 * kNumRows, 0x3800));
  }
  tensors.add("m.by_input_order.g_idx", DType::kI32, {K}, index);
  tensors.add_bytes("m.qoq.qweight", DType::kI8, {kNumRows, K / 2});
  const std::vector<uint16_t> halves(kNumRows, 0x3800);
  tensors.add("m.qoq.s1_scales", DType::kF16, {kNumRows}, halves);
  tensors.add("m.qoq.s1_szeros", DType::kF16, {kNumRows}, halves);
  tensors.add("m.qoq.s2_scales", DType::kI8, {1, kNumRows}, std::vector<int8_t>(kNumRows, 7));
  tensors.add("m.qoq.s2_zeros", DType::kI8, {1, kNumRows}, std::vector<int8_t>(kNumRows, -9));
  tensors.add_bytes("m.blocks.qweight", DType::kU8, {kNumRows, K / 2});
  tensors.add("m.blocks.scales", DType::kF16, {kNumRows, 1}, halves);
  tensors.add("m.blocks.block_bits", DType::kU8, {1}, std::vector<uint8_t>{4});
  tensors.fill("m.blocks.activation_clip", {1}, 0.875f);
  for (int32_t k = 0; k < K; ++k) index[static_cast<size_t>(k)] = static_cast<int32_t>(K) - 1 - k;
  tensors.add("m.blocks.input_order", DType::kI32, {K}, index);
  // One pair of bytes that is a number, and bytes that are none.
  tensors.add("m.nested.weight_upper", DType::kF8E4M3, {kNumRows, K},
              std::vector<uint8_t>(kNumRows * K, 0x31));
  std::vector<uint8_t> lower(kNumRows * K, 0x90);
  lower.back() = 0;
  tensors.add("m.nested.weight_lower", DType::kU8, {kNumRows, K}, lower);
  return tensors;
}

/// Nine rows of both planes.
void read_planes(const halley::StoredWeight& weight) {
  weight.check_data();
  std::vector<uint8_t> quads(K / 4 * halley::kQuadValues);
  const halley::CodeBlock block = {.row_begin = 0, .num_rows = 9, .k_begin = 0, .k_end = K};
  weight.read_codes(block, quads.data());
  weight.read_lower(block, quads.data());
}

void open_layer(const halley::QuantScheme& scheme, const halley::MemoryTensors& tensors,
                const halley::LinearSpec::Part& part) {
  try {
    static_cast<void>(scheme.expected_tensors(part, K));
    const auto weight = scheme.open(tensors, part, K);
    if (halley::is_quantized(weight->desc().layout)) halley::dequantized(*weight, 9, K);
    if (halley::has_low_precision(weight->desc().layout)) read_planes(*weight);
  } catch (const halley::Error&) {
  }
}

void open_layers(const halley::QuantScheme& scheme, const halley::MemoryTensors& tensors) {
  for (const char* layer : kLayers) {
    halley::LinearSpec::Part part = halley::whole_part(layer, kNumRows);
    open_layer(scheme, tensors, part);
    part.row_begin = 5;
    part.out_features = 9;
    part.is_usually_dense = true;
    open_layer(scheme, tensors, part);
  }
}

/// As the loader does: a module that claims the declaration, or several of them.
void detect(const halley::QuantConfig& config, const halley::MemoryTensors& tensors) {
  try {
    open_layers(*halley::detect_quant_scheme(config, tensors), tensors);
  } catch (const halley::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const halley::MemoryTensors kTensors = make_tensors();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // As config.json, and as one of the files next to it.
  try {
    detect(halley::read_quant_config(halley::HfConfig::parse(text, "config.json"), {}), kTensors);
  } catch (const halley::Error&) {
  }
  try {
    detect(halley::quant_config_of(halley::HfConfig::parse(text, "quant_config.json")), kTensors);
  } catch (const halley::Error&) {
  }
  return 0;
}
