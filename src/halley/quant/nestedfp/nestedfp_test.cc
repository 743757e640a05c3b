// NestedFP checkpoints: from f16 weights through the files and back in both precisions, and every
// rejection.
#include "halley/quant/nestedfp/nestedfp.h"

#include <cmath>
#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/nested_float.h"
#include "halley/core/thread_pool.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/quant/base/linear_loader.h"
#include "halley/quant/nestedfp/encode.h"
#include "halley/quant/none/none.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr int64_t N = 70;
constexpr int64_t K = 100;
const KernelDemands kNoDemands;

std::unique_ptr<QuantScheme> detect(const std::string& fields) {
  const HfConfig config =
      HfConfig::parse(str(R"({"quantization_config": )", fields, "}"), "config.json");
  const MemoryTensors tensors;
  return kQuantNestedFp.detect(read_quant_config(config, {}), tensors);
}

std::unique_ptr<QuantScheme> scheme_with(const std::string& exceptions) {
  return detect(
      str(R"({"quant_method": "nestedfp", "version": 1, "exceptions": )", exceptions, "}"));
}

std::vector<uint16_t> random_weights(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.1f);
  std::vector<uint16_t> bits(static_cast<size_t>(count));
  for (uint16_t& half : bits) half = f32_to_f16(normal(random));
  return bits;
}

/// Writes a layer as a quantizer does; true where it is an exception.
bool add_layer(MemoryTensors& tensors, const std::string& name, int64_t num_rows,
               const std::vector<uint16_t>& bits) {
  ThreadPool pool(1);
  ExecContext context{pool};
  const NestedFpLayer layer = encode_nestedfp(
      context, name, {reinterpret_cast<const std::byte*>(bits.data()), DType::kF16, {num_rows, K}});
  for (const CheckpointTensor& tensor : layer.tensors) {
    tensors.add(tensor.info.name, tensor.info.dtype, tensor.info.shape, tensor.data);
  }
  return !layer.exception.empty();
}

MemoryTensors one_layer() {
  MemoryTensors tensors;
  add_layer(tensors, "a", N, random_weights(N * K, 1));
  return tensors;
}

/// Changes both bytes of weight [n, k] of layer "a".
void set_bytes(MemoryTensors& tensors, int64_t n, int64_t k, NestedFloat bytes) {
  const auto change = [&](const std::string& name, DType dtype, uint8_t byte) {
    const auto* data = reinterpret_cast<const uint8_t*>(tensors.view(*tensors.find(name)).data);
    std::vector<uint8_t> copy(data, data + N * K);
    copy[static_cast<size_t>(n * K + k)] = byte;
    tensors.add(name, dtype, {N, K}, copy);
  };
  change("a.weight_upper", DType::kF8E4M3, bytes.upper);
  change("a.weight_lower", DType::kU8, bytes.lower);
}

LinearSpec spec_of(std::vector<LinearSpec::Part> parts) {
  LinearSpec spec;
  spec.parts = std::move(parts);
  spec.in_features = K;
  return spec;
}

LinearOp load(const QuantScheme& scheme, const TensorSource& source, const LinearSpec& spec) {
  ThreadPool pool(2);
  ExecContext context{pool};
  return load_linear(context, {scheme, source, kNoDemands}, spec);
}

std::vector<float> run(const LinearOp& op, Precision precision, const std::vector<float>& x) {
  ThreadPool pool(2);
  ExecContext context{pool};
  context.precision = precision;
  const int64_t M = static_cast<int64_t>(x.size()) / K;
  std::vector<float> y(static_cast<size_t>(M * op.out_features()));
  op.run(context, f32_matrix(x.data(), M, K), f32_matrix(y.data(), M, op.out_features()));
  return y;
}

std::vector<float> random_inputs(int64_t num_rows) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(num_rows * K));
  for (float& value : x) value = normal(random);
  return x;
}

/// Three parts: one is some rows of a larger tensor, one is an exception.
struct Layers {
  MemoryTensors nested, dense;
  LinearSpec spec = spec_of({whole_part("a", 33),
                             {.name = "b", .out_features = 20, .row_begin = 7, .stored_rows = 40},
                             whole_part("c", 5)});
  std::vector<uint16_t> bits;  // of a, then b's rows

  Layers() {
    for (const auto& [name, num_rows] : {std::pair<std::string, int64_t>{"a", 33}, {"b", 40}}) {
      const auto weights = random_weights(num_rows * K, static_cast<uint32_t>(num_rows));
      dense.add(name + ".weight", DType::kF16, {num_rows, K}, weights);
      EXPECT_FALSE(add_layer(nested, name, num_rows, weights));
      const bool is_whole = num_rows == 33;
      bits.insert(bits.end(), weights.begin() + (is_whole ? 0 : 7 * K),
                  is_whole ? weights.end() : weights.begin() + 27 * K);
    }
    auto weights = random_weights(5 * K, 5);
    weights[17] = f32_to_f16(-1.7509765625f);
    dense.add("c.weight", DType::kF16, {5, K}, weights);
    EXPECT_TRUE(add_layer(nested, "c", 5, weights));
  }
};

TEST(NestedFpFormat, FullPrecisionHasTheBitsOfTheUnquantizedLayer) {
  const Layers layers;
  const LinearOp op = load(*scheme_with(R"(["c"])"), layers.nested, layers.spec);
  const LinearOp dense = load(*make_dense_scheme(), layers.dense, layers.spec);
  for (const int64_t M : {1, 2, 17, 70}) {
    const std::vector<float> x = random_inputs(M);
    const std::vector<float> y = run(op, Precision::kFull, x);
    const std::vector<float> expected = run(dense, Precision::kFull, x);
    ASSERT_EQ(y.size(), expected.size());
    EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0) << M;
  }
}

TEST(NestedFpFormat, LowPrecisionIsE4m3TimesE4m3AndLeavesExceptionsAlone) {
  const Layers layers;
  const LinearOp op = load(*scheme_with(R"(["c"])"), layers.nested, layers.spec);
  const std::vector<float> x = random_inputs(1);
  const std::vector<float> low = run(op, Precision::kLow, x);
  const std::vector<float> full = run(op, Precision::kFull, x);
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  for (size_t n = 0; n < 53; ++n) {
    double sum = 0, size = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      const double code = e4m3_to_f32(f32_to_e4m3(x[k] * (448.0f / largest)));
      const float w = f16_to_f32(layers.bits[n * x.size() + k]);
      const double term = code * e4m3_to_f32(f32_to_e4m3(w * 256.0f));
      sum += term;
      size += std::fabs(term);
    }
    const double scale = double{largest} / 448.0 / 256.0;
    EXPECT_NEAR(low[n], sum * scale, 1e-6 * size * scale) << n;
    EXPECT_NE(low[n], full[n]) << n;
  }
  EXPECT_EQ(std::memcmp(low.data() + 53, full.data() + 53, 5 * sizeof(float)), 0);
}

TEST(NestedFpFormat, PlansBothKernelsAndTheMemoryOfF16) {
  const Layers layers;
  const auto scheme = scheme_with(R"(["c"])");
  const auto plans = plan_linear({*scheme, layers.nested, kNoDemands}, layers.spec);
  const LinearOp op = load(*scheme, layers.nested, layers.spec);
  ASSERT_EQ(plans.size(), size_t{2});
  EXPECT_STREQ(plans[0].kernel->name, "gemm_nestedf16_hwy");
  EXPECT_STREQ(plans[0].low_kernel->name, "gemm_nestedf8_hwy");
  EXPECT_EQ(plans[1].low_kernel, nullptr);
  EXPECT_EQ(op.sections()[0].low_kernel, plans[0].low_kernel);
  EXPECT_EQ(op.sections()[1].low_kernel, nullptr);
  // K of 100 is padded to 128; where it is a multiple of 32 there is nothing to pad.
  EXPECT_EQ(plans[0].packed_bytes, packed_bytes(PackedLayout::kF16Panel, 53, 128));
  EXPECT_EQ(op.packed_bytes(), plans[0].packed_bytes + plans[1].packed_bytes);
  EXPECT_EQ(plans[0].bits_per_weight, 16);
  EXPECT_EQ(packed_bytes(PackedLayout::kNestedF16Quad, 53, 4096),
            packed_bytes(PackedLayout::kF16Panel, 53, 4096));
}

TEST(NestedFpFormat, RequiredKernelsMustNameThatOfLowPrecisionToo) {
  const MemoryTensors tensors = one_layer();
  const auto scheme = scheme_with("[]");
  KernelDemands demands;
  demands.required = {"gemm_nestedf16_hwy"};
  EXPECT_THAT(([&] {
                plan_linear({*scheme, tensors, demands}, spec_of({whole_part("a", N)}));
              }),
              ThrowsMessage<InputError>(
                  StartsWith("layer \"a\": kernel: expected one of [gemm_nestedf16_hwy] to run ")));
}

TEST(NestedFpFormat, ClaimsItsMethodAndOneVersion) {
  EXPECT_EQ(detect(R"({"quant_method": "fp8"})"), nullptr);
  const MemoryTensors tensors;
  EXPECT_EQ(kQuantNestedFp.detect({}, tensors), nullptr);
  EXPECT_EQ(scheme_with(R"(["a", "b"])")->summary(),
            "f16 and e4m3 in one weight, 2 layers in one precision");
  EXPECT_EQ(detect(R"({"quant_method": "NestedFP", "version": 1})")->summary(),
            "f16 and e4m3 in one weight, 0 layers in one precision");
  EXPECT_THAT(
      [] { detect(R"({"quant_method": "nestedfp", "version": 2})"); },
      ThrowsMessage<UnsupportedError>(
          "config.json: field 'quantization_config.version': expected 1, got 2. Use a newer "
          "version of this program, or convert the model again."));
  for (const char* version : {"", R"(, "version": 0)", R"(, "version": "1")"}) {
    EXPECT_THAT([&] { detect(str(R"({"quant_method": "nestedfp")", version, "}")); },
                ThrowsMessage<InputError>(HasSubstr("field 'quantization_config.version'")))
        << version;
  }
  EXPECT_THAT([] { scheme_with(R"("a")"); },
              ThrowsMessage<InputError>(HasSubstr("field 'quantization_config.exceptions'")));
}

TEST(NestedFpFormat, DescribesTheTwoPlanes) {
  const MemoryTensors tensors = one_layer();
  const auto scheme = scheme_with(R"(["b"])");
  LinearSpec::Part part = whole_part("a", N);
  part.out_features = 7;
  const auto weight = scheme->open(tensors, part, K);
  EXPECT_STREQ(weight->desc().format, "nestedfp");
  EXPECT_EQ(weight->desc().layout, PackedLayout::kNestedF16Quad);
  EXPECT_EQ(weight->desc().stored_dtype, DType::kF16);
  EXPECT_THAT(weight->desc().tensor_names, ElementsAre("a.weight_upper", "a.weight_lower"));
  EXPECT_DOUBLE_EQ(weight->desc().stored_bytes, 2 * 7 * K);
  const auto expected = scheme->expected_tensors(whole_part("a", N), K);
  ASSERT_EQ(expected.size(), size_t{2});
  for (const TensorInfo& info : expected) {
    const TensorInfo* found = tensors.find(info.name);
    ASSERT_NE(found, nullptr) << info.name;
    EXPECT_EQ(found->dtype, info.dtype);
    EXPECT_EQ(found->shape, info.shape);
  }
  const auto dense = scheme->expected_tensors(whole_part("b", N), K);
  ASSERT_EQ(dense.size(), size_t{1});
  EXPECT_EQ(dense[0].name, "b.weight");
  EXPECT_EQ(dense[0].dtype, DType::kF16);
}

void open_a(const std::string& exceptions, const MemoryTensors& tensors) {
  scheme_with(exceptions)->open(tensors, whole_part("a", N), K);
}

TEST(NestedFpFormat, RejectsAListThatContradictsTheTensors) {
  EXPECT_THAT([] { open_a(R"(["a"])", one_layer()); },
              ThrowsMessage<CheckpointError>(
                  "model: layer \"a\": expected full-precision tensors, since field "
                  "'quantization_config.exceptions' names it, got quantized ones. Correct the "
                  "configuration."));
  MemoryTensors tensors;
  tensors.add("a.weight", DType::kF16, {N, K}, random_weights(N * K, 1));
  EXPECT_THAT([&] { open_a("[]", tensors); },
              ThrowsMessage<CheckpointError>(
                  "model: layer \"a\": expected quantized tensors, since field "
                  "'quantization_config.exceptions' does not name it, got full-precision ones. "
                  "Correct the configuration."));
  EXPECT_NO_THROW(open_a(R"(["a"])", tensors));
  EXPECT_THAT([&] { open_a(R"(["a"])", MemoryTensors()); },
              ThrowsMessage<CheckpointError>(
                  StartsWith("model: tensor \"a.weight\": expected a tensor of shape [70, 100]")));
}

TEST(NestedFpFormat, RejectsTensorsThatAreNoPlanes) {
  MemoryTensors tensors = one_layer();
  tensors.add("a.weight", DType::kF16, {N, K}, random_weights(N * K, 1));
  EXPECT_THAT([&] { open_a("[]", tensors); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "expected its weight once, got tensors \"a.weight_upper\" and \"a.weight\"")));
  for (const char* name : {"a.weight_upper", "a.weight_lower"}) {
    MemoryTensors changed = one_layer();
    changed.remove(name);
    EXPECT_THAT([&] { open_a("[]", changed); },
                ThrowsMessage<CheckpointError>(StartsWith(str(
                    "model: tensor \"", name, "\": expected a tensor of shape [70, 100], got "))));
    changed.add_bytes(name, DType::kI8, {N, K});
    EXPECT_THAT([&] { open_a("[]", changed); },
                ThrowsMessage<CheckpointError>(HasSubstr(", got i8.")));
    const bool is_upper = std::string_view(name) == "a.weight_upper";
    changed.add_bytes(name, is_upper ? DType::kF8E4M3 : DType::kU8, {N, K + 1});
    EXPECT_THAT(
        [&] { open_a("[]", changed); },
        ThrowsMessage<CheckpointError>(HasSubstr("expected shape [70, 100], got [70, 101]")));
  }
}

TEST(NestedFpFormat, ExceptionsHaveAnyTypeOfFullPrecision) {
  for (const auto& [dtype, layout] : {std::pair{DType::kF16, PackedLayout::kF16Panel},
                                      std::pair{DType::kBf16, PackedLayout::kBf16PairPanel},
                                      std::pair{DType::kF32, PackedLayout::kF32Panel}}) {
    MemoryTensors tensors;
    tensors.add_bytes("a.weight", dtype, {N, K});
    EXPECT_EQ(scheme_with(R"(["a"])")->open(tensors, whole_part("a", N), K)->desc().layout, layout);
  }
  MemoryTensors tensors;
  tensors.add_bytes("a.weight", DType::kI8, {N, K});
  EXPECT_THAT(
      [&] { open_a(R"(["a"])", tensors); },
      ThrowsMessage<CheckpointError>(StartsWith("model: tensor \"a.weight\": expected type")));
}

TEST(NestedFpFormat, RejectsBytesThatAreNoNumberWithTheirIndex) {
  struct Case {
    NestedFloat bytes;
    const char* got;
  };
  for (const Case& bad : {Case{{0x7F, 3}, "NaN, upper byte 127 and lower byte 3"},
                          Case{{0xFF, 0}, "NaN, upper byte 255 and lower byte 0"},
                          Case{{0x7E, 1}, "upper byte 126 and lower byte 1"},
                          Case{{0x00, 0x80}, "upper byte 0 and lower byte 128"},
                          Case{{0x31, 0x00}, "upper byte 49 and lower byte 0"}}) {
    MemoryTensors tensors = one_layer();
    set_bytes(tensors, 12, 34, bad.bytes);
    LinearSpec::Part part = whole_part("a", N);
    part.row_begin = 10;
    part.out_features = 9;
    const std::string text =
        str("model: tensor \"a.weight_upper\": expected the two bytes of an f16 value of "
            "magnitude at most 1.75, got ",
            bad.got,
            " at [12, 34]. The file is damaged: fetch it again, or convert the model "
            "again.");
    EXPECT_THAT([&] { load(*scheme_with("[]"), tensors, spec_of({part})); },
                ThrowsMessage<CheckpointError>(text));
  }
}

TEST(NestedFpFormat, FusedExpertsStayInFullPrecision) {
  LinearSpec::Part part = whole_part("experts.w", 8);
  part.expert = 1;
  part.num_stored_experts = 3;
  MemoryTensors tensors;
  tensors.add("experts.w", DType::kF16, {3, 8, K}, random_weights(3 * 8 * K, 1));
  const auto scheme = scheme_with("[]");
  EXPECT_EQ(scheme->open(tensors, part, K)->desc().layout, PackedLayout::kF16Panel);
  EXPECT_EQ(scheme->expected_tensors(part, K)[0].name, "experts.w");
  tensors.add_bytes("experts.w.weight_upper", DType::kF8E4M3, {3, 8, K});
  EXPECT_THAT(
      [&] { scheme->open(tensors, part, K); },
      ThrowsMessage<UnsupportedError>(HasSubstr("expected experts in tensors of their own")));
}

}  // namespace
}  // namespace halley
