// For tests of formats: checkpoints that tools/make_golden.py wrote, and the weights that its own
// reader found in them.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/quant/base/linear_loader.h"
#include "halley/quant/base/quant_config.h"

namespace halley {

/// testdata/quantized/<name>, opened.
struct GoldenCheckpoint {
  explicit GoldenCheckpoint(const std::string& name)
      : dir(std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata" / "quantized" / name),
        config(HfConfig::load(dir)),
        quant(read_quant_config(config, dir)),
        source(open_checkpoint_weights(dir)),
        expected(parse_json(read_text_file(dir / "expected.json", 1 << 20), name)) {}

  std::filesystem::path dir;
  HfConfig config;
  QuantConfig quant;
  std::unique_ptr<TensorSource> source;
  Json expected;
};

/// The hash of make_golden.py: the sum over all elements i of bits_i * (i * golden ratio | 1).
class WeightHash {
 public:
  void add(float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    sum_ += uint64_t{bits} * ((index_++ * 0x9E3779B97F4A7C15u) | 1u);
  }
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(sum_));
    return digits;
  }

 private:
  uint64_t sum_ = 0;
  uint64_t index_ = 0;
};

inline LinearSpec linear_spec_of(const Json& linear) {
  LinearSpec spec;
  const int64_t num_rows = linear.at("shape")[0];
  spec.parts = {{.name = linear.at("name"), .out_features = num_rows, .stored_rows = num_rows}};
  spec.in_features = linear.at("shape")[1];
  return spec;
}

/// Loads every linear layer of the checkpoint by itself: its weights are bit for bit those that the
/// independent reader found.
inline void expect_golden_weights(const QuantFormat& format, const std::string& name) {
  SCOPED_TRACE(name);
  const GoldenCheckpoint golden(name);
  const auto scheme = format.detect(golden.quant, *golden.source);
  ASSERT_NE(scheme, nullptr);
  ThreadPool pool(2);
  ExecContext context{pool};
  const KernelDemands demands;
  for (const Json& linear : golden.expected.at("linears")) {
    const LinearSpec spec = linear_spec_of(linear);
    const LinearOp op = load_linear(context, {*scheme, *golden.source, demands}, spec);
    std::vector<float> row(static_cast<size_t>(spec.in_features));
    WeightHash hash;
    for (int64_t n = 0; n < spec.out_features(); ++n) {
      unpack_row(op.weight(), n, row.data());
      for (const float value : row) hash.add(value);
    }
    EXPECT_EQ(hash.text(), linear.at("hash").get<std::string>()) << linear.at("name");
  }
}

}  // namespace halley
