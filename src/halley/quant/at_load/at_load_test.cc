// Weights that are rounded at load, against the encoders and solvers that `halley quantize` uses.
#include "halley/quant/at_load/at_load.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/nested_float.h"
#include "halley/core/thread_pool.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/quant/at_load/rounded_weight.h"
#include "halley/quant/base/linear_loader.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/solve/grid_rule.h"
#include "halley/quant/stored/float8_tensors.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

constexpr int64_t N = 70;
constexpr int64_t K = 192;
const KernelDemands kNoDemands;

std::unique_ptr<QuantScheme> scheme_of(const std::string& method) {
  return kQuantAtLoad.detect(at_load_config(method), MemoryTensors());
}

std::unique_ptr<QuantScheme> scheme_with(const std::string& fields) {
  const QuantConfig config = quant_config_of(HfConfig::parse(fields, "config.json"));
  return kQuantAtLoad.detect(config, MemoryTensors());
}

/// Values of bf16.
std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.1f);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(bf16_to_f32(f32_to_bf16(normal(random))));
  return values;
}

void add_values(MemoryTensors& tensors, const std::string& name, DType dtype, const Shape& shape,
                const std::vector<float>& values) {
  if (dtype == DType::kF32) {
    tensors.add(name, dtype, shape, values);
    return;
  }
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
  }
  tensors.add(name, dtype, shape, bits);
}

std::vector<float> rounded(const std::string& method, DType dtype,
                           const std::vector<float>& values) {
  MemoryTensors tensors;
  add_values(tensors, "a.weight", dtype, {N, K}, values);
  const auto scheme = scheme_of(method);
  return dequantized(*scheme->open(tensors, whole_part("a", N), K), N, K);
}

std::vector<float> expected_integers(const GridOptions& grid, const std::vector<float>& values) {
  ThreadPool pool(1);
  ExecContext context{pool};
  const QuantizedWeight weight =
      round_to_nearest(context, f32_matrix(values.data(), N, K), *make_minmax_rule(grid, {}));
  std::vector<float> expected(values.size());
  for (int64_t n = 0; n < N; ++n) {
    dequantize_row(weight, n, std::span(expected).subspan(static_cast<size_t>(n * K), K));
  }
  return expected;
}

TEST(AtLoad, RoundsIntegersAsTheSolverDoes) {
  const std::vector<float> values = random_values(N * K, 1);
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
    for (const char* method : {"int8", "int8-weight-only"}) {
      EXPECT_EQ(rounded(method, dtype, values),
                expected_integers({.bits = 8, .group_size = K, .is_symmetric = true}, values))
          << method << " of " << dtype;
    }
    // 128 does not divide 192.
    EXPECT_EQ(rounded("int4-rtn", dtype, values),
              expected_integers({.bits = 4, .group_size = 64, .is_symmetric = false}, values))
        << dtype;
  }
}

TEST(AtLoad, RoundsFloatsAsTheEncoderDoes) {
  std::vector<float> values = random_values(N * K, 2);
  std::fill(values.begin() + 3 * K, values.begin() + 4 * K, 0.0f);  // an output of zeros
  const auto tensors = encode_float8("a", values, K, Float8Scales::kOutput, std::nullopt);
  std::vector<float> scales(N), expected;
  std::memcpy(scales.data(), tensors[1].data.data(), tensors[1].data.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<uint8_t>(tensors[0].data[i]);
    expected.push_back(scales[i / static_cast<size_t>(K)] * e4m3_to_f32(code));
  }
  for (const char* method : {"fp8", "fp8-weight-only"}) {
    EXPECT_EQ(rounded(method, DType::kBf16, values), expected) << method;
  }
}

TEST(AtLoad, TwoPlanesKeepEveryBit) {
  MemoryTensors tensors;
  const std::vector<float> values = random_values(N * K, 3);
  add_values(tensors, "a.weight", DType::kF16, {N, K}, values);
  LinearSpec spec;
  spec.in_features = K;
  spec.parts = {whole_part("a", N)};
  ThreadPool pool(2);
  ExecContext context{pool};
  const auto scheme = scheme_of("nestedfp");
  const LinearOp op = load_linear(context, {*scheme, tensors, kNoDemands}, spec);
  EXPECT_EQ(op.weight().layout, PackedLayout::kNestedF16Quad);
  std::vector<float> row(static_cast<size_t>(K));
  for (int64_t n = 0; n < N; ++n) {
    unpack_row(op.weight(), n, row.data());
    for (int64_t k = 0; k < K; ++k) {
      const uint16_t stored = f32_to_f16(values[static_cast<size_t>(n * K + k)]);
      ASSERT_EQ(row[static_cast<size_t>(k)], f16_to_f32(stored)) << n << ", " << k;
    }
  }
}

TEST(AtLoad, LayersBeyondTheTwoPlanesStayAndSayWhy) {
  MemoryTensors tensors;
  std::vector<float> values(N * K, 1.75f);
  add_values(tensors, "a.weight", DType::kF16, {N, K}, values);
  values[5] = -1.76f;
  add_values(tensors, "b.weight", DType::kF16, {N, K}, values);
  const auto scheme = scheme_of("nestedfp");
  const auto fits = scheme->open(tensors, whole_part("a", N), K);
  EXPECT_EQ(fits->desc().layout, PackedLayout::kNestedF16Quad);
  EXPECT_THAT(fits->warnings(), IsEmpty());
  const auto stays = scheme->open(tensors, whole_part("b", N), K);
  EXPECT_EQ(stays->desc().layout, PackedLayout::kF16Panel);
  EXPECT_THAT(stays->warnings(),
              ElementsAre("layer \"b\": 1 of 13440 weights are beyond 1.75; it runs in full "
                          "precision alone"));
  // The rows without that weight.
  LinearSpec::Part part = whole_part("b", N);
  part.row_begin = 1;
  part.out_features = N - 1;
  EXPECT_EQ(scheme->open(tensors, part, K)->desc().layout, PackedLayout::kNestedF16Quad);
}

/// q, k and v of a fused tensor, and experts of another.
TEST(AtLoad, RoundsSlicesAndExperts) {
  MemoryTensors tensors;
  const std::vector<float> values = random_values(2 * N * K, 4);
  add_values(tensors, "experts", DType::kBf16, {2, N, K}, values);
  LinearSpec::Part part = {.name = "experts",
                           .out_features = 40,
                           .row_begin = 30,
                           .stored_rows = N,
                           .expert = 1,
                           .num_stored_experts = 2};
  const std::vector<float> of_expert(values.begin() + N * K, values.end());
  const std::vector<float> all =
      expected_integers({.bits = 8, .group_size = K, .is_symmetric = true}, of_expert);
  const auto scheme = scheme_of("int8");
  EXPECT_EQ(dequantized(*scheme->open(tensors, part, K), 40, K),
            std::vector<float>(all.begin() + 30 * K, all.end()));
}

TEST(AtLoad, LeavesWhatIsUsuallyDense) {
  MemoryTensors tensors;
  add_values(tensors, "lm_head.weight", DType::kBf16, {N, K}, random_values(N * K, 5));
  LinearSpec::Part part = whole_part("lm_head", N);
  part.is_usually_dense = true;
  const auto weight = scheme_of("fp8")->open(tensors, part, K);
  EXPECT_EQ(weight->desc().layout, PackedLayout::kBf16PairPanel);
}

TEST(AtLoad, RejectsWhatIsNoNumber) {
  for (const char* method : {"fp8", "int4-rtn"}) {
    MemoryTensors tensors;
    std::vector<float> values = random_values(N * K, 6);
    values[2 * K + 7] = std::numeric_limits<float>::infinity();
    add_values(tensors, "a.weight", DType::kF16, {N, K}, values);
    const auto weight = scheme_of(method)->open(tensors, whole_part("a", N), K);
    EXPECT_THAT([&] { weight->check_data(); },
                ThrowsMessage<CheckpointError>(
                    "model: tensor \"a.weight\": expected finite weights, got inf at [2, 7]. The "
                    "file is damaged: fetch it again."));
  }
}

TEST(AtLoad, RejectsUnknownMethodsAndGroups) {
  EXPECT_THAT([] { at_load_config("int3"); },
              ThrowsMessage<InputError>(HasSubstr("--quantization: expected one of fp8, int8, ")));
  EXPECT_THAT([] { scheme_with(R"({"quant_method": "at_load", "method": "awq"})"); },
              ThrowsMessage<InputError>(HasSubstr("got \"awq\"")));
  EXPECT_THAT(
      [] { scheme_with(R"({"quant_method": "at_load", "method": "int4-rtn", "group_size": 96})"); },
      ThrowsMessage<InputError>(HasSubstr("expected a power of two, got 96")));
  EXPECT_THAT(
      [] { scheme_with(R"({"quant_method": "at_load", "method": "fp8", "group_size": 128})"); },
      ThrowsMessage<InputError>(HasSubstr("which has no groups")));
  EXPECT_EQ(scheme_with(R"({"quant_method": "gptq", "bits": 4})"), nullptr);
}

TEST(AtLoad, HalvesGroupsUntilTheyFit) {
  EXPECT_EQ(fitting_group(0, 576), 576);
  EXPECT_EQ(fitting_group(128, 1024), 128);
  EXPECT_EQ(fitting_group(128, 576), 64);
  EXPECT_EQ(fitting_group(128, 96), 96);
  EXPECT_EQ(fitting_group(128, 160), 32);
  EXPECT_EQ(fitting_group(128, 200), 128);  // the last one is shorter
}

}  // namespace
}  // namespace halley
