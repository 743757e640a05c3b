// For tests of encoders: random quantized weights, the weight that a format's module reads back
// from the tensors made of them, and the golden checkpoints written again.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/tensor_store.h"
#include "halley/core/float16.h"
#include "halley/json/json.h"
#include "halley/quant/base/format.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/testing/golden_checkpoint.h"
#include "halley/quant/base/testing/tensors_in_memory.h"
#include "halley/quant/base/written_format.h"

namespace halley {

struct QuantizedCase {
  int64_t N = 0;
  int64_t K = 0;
  int bits = 4;
  int64_t group_size = 0;  // 0: per-channel
  bool is_symmetric = false;
  bool has_perm = false;
};

inline std::ostream& operator<<(std::ostream& out, const QuantizedCase& of) {
  return out << of.N << "x" << of.K << ", " << of.bits << " bits, group " << of.group_size
             << (of.is_symmetric ? ", symmetric" : ", asymmetric")
             << (of.has_perm ? ", act-order" : "");
}

/// Random codes, scales and zero points; with `has_perm` the inputs of a group are scattered.
inline QuantizedWeight random_quantized_weight(const QuantizedCase& of, uint32_t seed) {
  std::mt19937 random(seed);
  QuantizedWeight weight;
  weight.N = of.N;
  weight.K = of.K;
  weight.bits = of.bits;
  weight.group_size = of.group_size == 0 ? of.K : of.group_size;
  weight.is_symmetric = of.is_symmetric;
  const uint32_t mask = (1u << of.bits) - 1;
  for (int64_t i = 0; i < of.N * of.K; ++i) {
    weight.codes.push_back(static_cast<uint8_t>(random() & mask));
  }
  for (int64_t i = 0; i < of.N * weight.num_groups(); ++i) {
    // From 2^-14 to 2.
    const auto bits = static_cast<uint16_t>(0x0400 + random() % 0x3C00);
    weight.scales.push_back(f16_to_f32(bits));
    const auto zero = of.is_symmetric ? 1u << (of.bits - 1) : random() & mask;
    weight.zeros.push_back(static_cast<uint8_t>(zero));
  }
  if (of.has_perm) {
    for (int64_t k = 0; k < of.K; ++k) {
      weight.group_of_input.push_back(static_cast<int32_t>(k / weight.group_size));
    }
    for (size_t k = weight.group_of_input.size(); k > 1; --k) {
      std::swap(weight.group_of_input[k - 1], weight.group_of_input[random() % k]);
    }
  }
  return weight;
}

/// The declaration of a checkpoint with one layer, "model.a".
inline WrittenFormat written_format_of(const QuantizedCase& of) {
  WrittenFormat format;
  format.bits = of.bits;
  format.group_size = of.group_size;
  format.is_symmetric = of.is_symmetric;
  format.has_act_order = of.has_perm;
  format.layers = {{.name = "model.a",
                    .bits = of.bits,
                    .group_size = of.group_size,
                    .is_symmetric = of.is_symmetric}};
  return format;
}

/// The scheme that the format's module reads from a declaration.
inline std::unique_ptr<QuantScheme> scheme_of(const QuantFormat& format,
                                              const OrderedJson& declaration) {
  const HfConfig config =
      HfConfig::parse(str(R"({"quantization_config": )", declaration.dump(), "}"), "config.json");
  return format.detect(read_quant_config(config, {}), TensorStore());
}

inline TensorStore store_of(const std::vector<CheckpointTensor>& tensors) {
  TensorStore store;
  for (const CheckpointTensor& tensor : tensors) {
    EXPECT_EQ(tensor.info.num_bytes, tensor.data.size()) << tensor.info.name;
    store.set(tensor.info.name, tensor.info.dtype, tensor.info.shape, tensor.data);
  }
  return store;
}

inline LinearSpec::Part part_of(const std::string& name, int64_t N) {
  return {.name = name, .out_features = N, .stored_rows = N};
}

/// The format's module reads all of the tensors, and its weight is that of dequantize_row() bit for
/// bit.
inline void expect_reads_back(const QuantScheme& scheme, const std::string& name,
                              const std::vector<CheckpointTensor>& tensors,
                              const QuantizedWeight& weight) {
  const TensorStore store = store_of(tensors);
  const auto stored = scheme.open(store, part_of(name, weight.N), weight.K);
  EXPECT_EQ(stored->desc().tensor_names.size(), tensors.size());
  const std::vector<float> values = dequantized_weight(*stored, weight.N, weight.K);
  std::vector<float> row(static_cast<size_t>(weight.K));
  for (int64_t n = 0; n < weight.N; ++n) {
    dequantize_row(weight, n, row);
    for (int64_t k = 0; k < weight.K; ++k) {
      ASSERT_EQ(values[static_cast<size_t>(n * weight.K + k)], row[static_cast<size_t>(k)])
          << "[" << n << ", " << k << "]";
    }
  }
}

/// Codes, scales and zero points [num_rows, K] as the format's module reads them.
inline QuantizedWeight quantized_weight_of(const StoredWeight& stored, int64_t N, int64_t K) {
  const WeightDesc& desc = stored.desc();
  QuantizedWeight weight;
  weight.N = N;
  weight.K = K;
  weight.bits = desc.bits;
  weight.group_size = desc.group_size;
  weight.is_symmetric = desc.is_symmetric;
  const std::vector<int32_t> order = stored.input_perm();
  if (!order.empty()) {
    weight.group_of_input.resize(order.size());
    for (size_t k = 0; k < order.size(); ++k) {
      weight.group_of_input[static_cast<size_t>(order[k])] =
          static_cast<int32_t>(static_cast<int64_t>(k) / desc.group_size);
    }
  }
  for (int64_t n = 0; n < N; ++n) {
    const CodeBlock block = {.row_begin = n, .num_rows = 1, .k_begin = 0, .k_end = K};
    std::vector<uint8_t> quads = read_block(stored, block);
    for (int64_t k = 0; k < K; ++k) weight.codes.push_back(*code_at(quads.data(), block, n, k));
    std::vector<float> groups(static_cast<size_t>(weight.num_groups() * 64));
    stored.read_groups(n, 1, groups.data());
    for (size_t at = 0; at < groups.size(); at += 64) {
      weight.scales.push_back(groups[at]);
      weight.zeros.push_back(static_cast<uint8_t>(groups[at + 32]));
    }
  }
  return weight;
}

/// Every tensor of the list is in the source with the same type, shape and bytes.
inline void expect_same_tensors(const TensorSource& source,
                                const std::vector<CheckpointTensor>& tensors) {
  for (const CheckpointTensor& tensor : tensors) {
    const TensorInfo* info = source.find(tensor.info.name);
    ASSERT_NE(info, nullptr) << tensor.info.name;
    EXPECT_EQ(info->dtype, tensor.info.dtype) << info->name;
    ASSERT_EQ(info->shape, tensor.info.shape) << info->name;
    ASSERT_EQ(source.view(*info).num_bytes(), tensor.data.size()) << info->name;
    EXPECT_EQ(std::memcmp(source.view(*info).data, tensor.data.data(), tensor.data.size()), 0)
        << info->name;
  }
}

/// Reads every quantized layer of a golden checkpoint and encodes it again: the bytes are those of
/// the independent writer.
template <typename Encode>
void expect_golden_tensors(const QuantFormat& format, const std::string& name,
                           const Encode& encode) {
  SCOPED_TRACE(name);
  const GoldenCheckpoint golden(name);
  const auto scheme = format.detect(golden.quant, *golden.source);
  int num_layers = 0;
  for (const Json& linear : golden.expected.at("linears")) {
    const LinearSpec spec = linear_spec_of(linear);
    const auto stored = scheme->open(*golden.source, spec.parts[0], spec.in_features);
    if (stored->desc().layout == PackedLayout::kF16Panel) continue;
    const QuantizedWeight weight =
        quantized_weight_of(*stored, spec.parts[0].out_features, spec.in_features);
    expect_same_tensors(*golden.source, encode(spec.parts[0].name, weight));
    ++num_layers;
  }
  EXPECT_GT(num_layers, 0);
}

}  // namespace halley
