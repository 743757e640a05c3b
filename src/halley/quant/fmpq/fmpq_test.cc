// Checkpoints of the format: their weights, their outputs, and every rejection.
#include "halley/quant/fmpq/fmpq.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/thread_pool.h"
#include "halley/quant/base/linear_loader.h"
#include "halley/quant/base/testing/golden_checkpoint.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr const char* kGood = R"("version": 1, "bits": 4, "group_size": 128)";

std::unique_ptr<QuantScheme> detect(const std::string& fields) {
  const HfConfig config = HfConfig::parse(
      str(R"({"quantization_config": {"quant_method": "fmpq", )", fields, "}}"), "config.json");
  const MemoryTensors tensors;
  return kQuantFmpq.detect(read_quant_config(config, {}), tensors);
}

std::unique_ptr<QuantScheme> good() { return detect(kGood); }

constexpr int64_t N = 40;
constexpr int64_t K = 300;  // blocks of 128, 128 and 44

/// The permutation of K inputs that the tests use.
std::vector<int32_t> test_perm(int64_t num_inputs = K) {
  std::vector<int32_t> perm;
  for (int64_t k = 0; k < num_inputs; ++k) {
    perm.push_back(static_cast<int32_t>((k * 7 + 3) % num_inputs));
  }
  return perm;
}

/// A layer of random codes.
void add_layer(MemoryTensors& tensors, const std::string& name, bool has_perm = false,
               float clip = 0.875f) {
  std::vector<uint16_t> scales;
  for (int64_t i = 0; i < N * 3; ++i) {
    scales.push_back(f32_to_f16(0.001f * static_cast<float>(i + 1)));
  }
  tensors.add_bytes(name + ".qweight", DType::kU8, {N, K / 2});
  tensors.add(name + ".scales", DType::kF16, {N, 3}, scales);
  tensors.add(name + ".block_bits", DType::kU8, {3}, std::vector<uint8_t>{8, 4, 4});
  tensors.add(name + ".activation_clip", DType::kF32, {1}, std::vector<float>{clip});
  if (has_perm) tensors.add(name + ".input_order", DType::kI32, {K}, test_perm());
}

MemoryTensors one_layer(bool has_perm = false) {
  MemoryTensors tensors;
  add_layer(tensors, "a", has_perm);
  return tensors;
}

std::unique_ptr<StoredWeight> open_layer(const MemoryTensors& tensors) {
  return good()->open(tensors, whole_part("a", N), K);
}

/// The weight by docs/formats/fmpq.md, its inputs unpermuted.
std::vector<float> documented_weight(const MemoryTensors& tensors, bool has_perm) {
  const auto bytes = [&](const char* name) { return tensors.view(*tensors.find(name)).data; };
  std::vector<float> w(N * K);
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      const int pair = static_cast<int>(bytes("a.qweight")[n * (K / 2) + k / 2]);
      const int code = k % 2 == 0 ? pair % 16 : pair / 16;
      uint16_t scale;
      std::memcpy(&scale, bytes("a.scales") + 2 * (n * 3 + k / 128), 2);
      const int64_t channel = has_perm ? (k * 7 + 3) % K : k;
      w[static_cast<size_t>(n * K + channel)] = f16_to_f32(scale) * static_cast<float>(code - 8);
    }
  }
  return w;
}

TEST(FmpqGolden, WeightsAreThoseOfTheIndependentReader) {
  expect_golden_weights(kQuantFmpq, "fmpq_natural");
  expect_golden_weights(kQuantFmpq, "fmpq_order");
}

TEST(FmpqDetect, ClaimsItsMethod) {
  const MemoryTensors tensors;
  EXPECT_EQ(kQuantFmpq.detect({}, tensors), nullptr);
  const HfConfig other = HfConfig::parse(
      R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})", "config.json");
  EXPECT_EQ(kQuantFmpq.detect(read_quant_config(other, {}), tensors), nullptr);
  EXPECT_EQ(good()->summary(), "4 bits, group 128, symmetric, activations s4s8_block128");
  EXPECT_EQ(detect(str(kGood, R"(, "s4_share": 0.8437)"))->summary(),
            "4 bits, group 128, symmetric, activations s4s8_block128 (84.4 % of the work in 4 "
            "bits)");
}

TEST(FmpqDetect, DeclaresTheCache) {
  EXPECT_EQ(good()->declared_kv(), DeclaredKv::kNothing);
  EXPECT_EQ(detect(str(kGood, R"(, "kv_bits": 16)"))->declared_kv(), DeclaredKv::kNothing);
  EXPECT_EQ(detect(str(kGood, R"(, "kv_bits": 8)"))->declared_kv(), DeclaredKv::kInt8);
  EXPECT_EQ(detect(str(kGood, R"(, "kv_bits": 4)"))->declared_kv(), DeclaredKv::kInt4);
  EXPECT_THAT([] { detect(str(kGood, R"(, "kv_bits": 3)")); },
              ThrowsMessage<UnsupportedError>(
                  HasSubstr("field 'quantization_config.kv_bits': expected 16, 8 or 4, got 3.")));
}

TEST(FmpqDetect, RejectsOtherSettings) {
  EXPECT_THAT([] { detect(R"("version": 2, "bits": 4, "group_size": 128)"); },
              ThrowsMessage<UnsupportedError>(
                  "config.json: field 'quantization_config.version': expected 1, got 2. Update "
                  "this program, or quantize the model again with it."));
  EXPECT_THAT([] { detect(R"("version": 1, "bits": 8, "group_size": 128)"); },
              ThrowsMessage<UnsupportedError>(
                  "config.json: field 'quantization_config.bits': expected 4, got 8. Quantize the "
                  "model again with this program."));
  EXPECT_THAT([] { detect(R"("version": 1, "bits": 4, "group_size": 64)"); },
              ThrowsMessage<UnsupportedError>(HasSubstr("expected 128, got 64.")));
  for (const char* missing : {R"("bits": 4, "group_size": 128)", R"("version": 1, "bits": 4)",
                              R"("version": 1, "group_size": 128)"}) {
    EXPECT_THAT([&] { detect(missing); },
                ThrowsMessage<InputError>(HasSubstr("config.json: field 'quantization_config.")));
  }
  for (const char* share : {"-0.1", "1.5"}) {
    EXPECT_THAT([&] { detect(str(kGood, R"(, "s4_share": )", share)); },
                ThrowsMessage<InputError>(HasSubstr(
                    str("field 'quantization_config.s4_share': expected a number from 0 to 1, got ",
                        share, ". Correct or remove it."))));
  }
  EXPECT_THAT([] { detect(str(kGood, R"(, "modules_to_not_convert": ["re:("])")); },
              ThrowsMessage<InputError>(HasSubstr("expected a regular expression")));
}

TEST(FmpqOpen, DescribesWeightAndInput) {
  const MemoryTensors tensors = one_layer();
  const auto weight = open_layer(tensors);
  EXPECT_EQ(weight->desc().layout, PackedLayout::kU4Quad);
  EXPECT_EQ(weight->desc().group_size, 128);
  EXPECT_EQ(weight->desc().activation, ActivationQuant::kS4S8Block128);
  EXPECT_EQ(weight->desc().num_s8_inputs, 128);
  EXPECT_EQ(weight->desc().s4_clip, 0.875f);
  EXPECT_FALSE(weight->desc().has_input_perm);
  EXPECT_DOUBLE_EQ(weight->desc().stored_bytes, N * K / 2 + N * 3 * 2 + 3 + 4);
  EXPECT_THAT(weight->desc().tensor_names,
              ElementsAre("a.qweight", "a.scales", "a.block_bits", "a.activation_clip"));
  const MemoryTensors ordered = one_layer(/*has_perm=*/true);
  EXPECT_TRUE(open_layer(ordered)->desc().has_input_perm);
  EXPECT_EQ(open_layer(ordered)->input_perm(), test_perm());
}

TEST(FmpqOpen, ReadsTheWeightsOfTheDocument) {
  for (const bool has_perm : {false, true}) {
    const MemoryTensors tensors = one_layer(has_perm);
    const std::vector<float> expected = documented_weight(tensors, has_perm);
    EXPECT_EQ(dequantized(*open_layer(tensors), N, K), expected) << has_perm;
    LinearSpec::Part part = whole_part("a", N);
    part.row_begin = 13;
    part.out_features = 20;
    EXPECT_EQ(dequantized(*good()->open(tensors, part, K), 20, K),
              std::vector<float>(expected.begin() + 13 * K, expected.begin() + 33 * K));
  }
}

TEST(FmpqOpen, TakesAnyShareOfBlocks) {
  MemoryTensors tensors = one_layer();
  const auto num_s8_inputs = [&](const std::vector<uint8_t>& bits) {
    tensors.add("a.block_bits", DType::kU8, {3}, bits);
    return open_layer(tensors)->desc().num_s8_inputs;
  };
  EXPECT_EQ(num_s8_inputs({4, 4, 4}), 0);
  EXPECT_EQ(num_s8_inputs({8, 8, 4}), 256);
  EXPECT_EQ(num_s8_inputs({8, 8, 8}), K);
}

TEST(FmpqOpen, RejectsOtherBlocks) {
  MemoryTensors tensors = one_layer();
  tensors.add("a.block_bits", DType::kU8, {3}, std::vector<uint8_t>{8, 5, 4});
  EXPECT_THAT(
      [&] { open_layer(tensors); },
      ThrowsMessage<CheckpointError>(
          "model: tensor \"a.block_bits\": expected 8 or 4, got 5 at [1]. The file is "
          "damaged or was quantized wrongly: fetch it again, or quantize the model again."));
  tensors.add("a.block_bits", DType::kU8, {3}, std::vector<uint8_t>{8, 4, 8});
  EXPECT_THAT([&] { open_layer(tensors); },
              ThrowsMessage<CheckpointError>(StartsWith(
                  "model: tensor \"a.block_bits\": expected blocks of 8 bits before those of 4, "
                  "got 8 at [2] and 4 at [1].")));
}

TEST(FmpqOpen, RejectsClipsThatAreNoRatio) {
  MemoryTensors tensors = one_layer();
  for (const float clip : {0.0f, -0.5f, 1.01f, NAN, INFINITY}) {
    tensors.fill("a.activation_clip", {1}, clip);
    EXPECT_THAT([&] { open_layer(tensors); },
                ThrowsMessage<CheckpointError>(StartsWith(
                    str("model: tensor \"a.activation_clip\": expected a number above 0 and at "
                        "most 1, got ",
                        clip, "."))));
  }
}

TEST(FmpqOpen, RejectsInputOrdersThatAreNoPermutation) {
  MemoryTensors tensors = one_layer();
  std::vector<int32_t> perm = test_perm();
  for (const int32_t bad : {-1, 300, std::numeric_limits<int32_t>::min()}) {
    perm[17] = bad;
    tensors.add("a.input_order", DType::kI32, {K}, perm);
    EXPECT_THAT([&] { open_layer(tensors); },
                ThrowsMessage<CheckpointError>(
                    StartsWith(str("model: tensor \"a.input_order\": expected each of 0 to 299 "
                                   "once, got ",
                                   bad, " at [17]. "))));
  }
  perm[17] = perm[2];
  tensors.add("a.input_order", DType::kI32, {K}, perm);
  EXPECT_THAT([&] { open_layer(tensors); },
              ThrowsMessage<CheckpointError>(HasSubstr("got 17 at [17] a second time. ")));
}

TEST(FmpqOpen, RejectsBadScalesByTheirIndex) {
  for (const uint16_t bad : {uint16_t{0}, uint16_t{0x7C00}, uint16_t{0xFE00}, uint16_t{0xB800}}) {
    MemoryTensors tensors = one_layer();
    std::vector<uint16_t> scales(N * 3, f32_to_f16(0.5f));
    scales[3 * 7 + 2] = bad;
    tensors.add("a.scales", DType::kF16, {N, 3}, scales);
    EXPECT_THAT([&] { open_layer(tensors)->check_data(); },
                ThrowsMessage<CheckpointError>(testing::AllOf(
                    StartsWith("model: tensor \"a.scales\": expected finite numbers above zero, "
                               "got "),
                    HasSubstr(" at [7, 2]. The file is damaged"))));
  }
}

TEST(FmpqOpen, RejectsCodesBehindTheLastInput) {
  MemoryTensors tensors;
  add_layer(tensors, "a");
  std::vector<uint8_t> codes(N * 150, 0x05);
  tensors.add("a.qweight", DType::kU8, {N, 150}, codes);
  EXPECT_NO_THROW(good()->open(tensors, whole_part("a", N), 299)->check_data());
  codes[3 * 150 + 149] = 0xC5;
  tensors.add("a.qweight", DType::kU8, {N, 150}, codes);
  EXPECT_THAT([&] { good()->open(tensors, whole_part("a", N), 299)->check_data(); },
              ThrowsMessage<CheckpointError>(StartsWith(
                  "model: tensor \"a.qweight\": expected zero in the high half of the last byte of "
                  "each output, got 12 at [3, 149].")));
}

TEST(FmpqOpen, RejectsMissingAndWrongTensors) {
  for (const char* name : {"a.scales", "a.block_bits", "a.activation_clip"}) {
    MemoryTensors tensors = one_layer();
    tensors.remove(name);
    EXPECT_THAT([&] { open_layer(tensors); },
                ThrowsMessage<CheckpointError>(
                    HasSubstr(str("tensor \"", name, "\": expected a tensor of shape"))));
    tensors.add_bytes(name, DType::kF64, {1});
    EXPECT_THAT([&] { open_layer(tensors); },
                ThrowsMessage<CheckpointError>(HasSubstr(str("tensor \"", name, "\": expected"))));
  }
  MemoryTensors tensors = one_layer();
  tensors.add_bytes("a.input_order", DType::kI32, {K - 1});
  EXPECT_THAT([&] { open_layer(tensors); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("tensor \"a.input_order\": expected shape [300], got [299]")));
}

TEST(FmpqOpen, AgreesWithTheListOfDenseLayers) {
  MemoryTensors tensors = one_layer();
  const auto listed = detect(str(kGood, R"(, "modules_to_not_convert": ["a", "b"])"));
  EXPECT_THAT([&] { listed->open(tensors, whole_part("a", N), K); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("field 'quantization_config.modules_to_not_convert' holds \"a\"")));
  tensors.add_bytes("b.weight", DType::kF16, {N, K});
  EXPECT_EQ(listed->open(tensors, whole_part("b", N), K)->desc().layout, PackedLayout::kF16Panel);
  EXPECT_THAT([&] { good()->open(tensors, whole_part("b", N), K); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "field 'quantization_config.modules_to_not_convert' does not name it")));
  tensors.add_bytes("a.weight", DType::kF16, {N, K});
  EXPECT_THAT([&] { open_layer(tensors); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("tensor \"a.weight\": expected none, since qweight is there")));
  for (const char* stray : {".scales", ".block_bits", ".activation_clip", ".input_order"}) {
    MemoryTensors dense;
    dense.add_bytes("b.weight", DType::kF16, {N, K});
    dense.add_bytes(str("b", stray), DType::kU8, {1});
    EXPECT_THAT([&] { listed->open(dense, whole_part("b", N), K); },
                ThrowsMessage<CheckpointError>(HasSubstr(
                    str("tensor \"b.weight\": expected codes, since \"b", stray, "\" is there"))));
  }
}

TEST(FmpqOpen, RejectsQuantizedFusedExperts) {
  MemoryTensors tensors;
  tensors.add_bytes("e.w", DType::kU8, {2, N, K});
  const LinearSpec::Part part = {
      .name = "e.w", .out_features = N, .stored_rows = N, .expert = 0, .num_stored_experts = 2};
  EXPECT_THAT([&] { good()->open(tensors, part, K); },
              ThrowsMessage<UnsupportedError>(HasSubstr("tensor \"e.w\": expected fused experts")));
}

TEST(FmpqOpen, ExpectedTensorsAreThoseOfALayer) {
  const MemoryTensors tensors = one_layer();
  const auto expected = good()->expected_tensors(whole_part("a", N), K);
  EXPECT_EQ(expected.size(), tensors.tensors().size());
  for (const TensorInfo& info : expected) {
    ASSERT_NE(tensors.find(info.name), nullptr) << info.name;
    EXPECT_EQ(tensors.find(info.name)->shape, info.shape) << info.name;
    EXPECT_EQ(tensors.find(info.name)->dtype, info.dtype) << info.name;
  }
  LinearSpec::Part part = whole_part("lm_head", N);
  part.is_usually_dense = true;
  EXPECT_EQ(good()->expected_tensors(part, K)[0].name, "lm_head.weight");
}

/// Loads the layer, with its self-check.
LinearOp load(ExecContext& context, const MemoryTensors& tensors,
              const std::vector<std::string>& names) {
  LinearSpec spec;
  spec.in_features = K;
  for (const std::string& name : names) spec.parts.push_back(whole_part(name, N));
  const auto scheme = good();
  const KernelDemands demands;
  return load_linear(context, {.scheme = *scheme, .source = tensors, .demands = demands}, spec);
}

TEST(FmpqLoad, JoinsPartsThatRoundAlike) {
  ThreadPool pool(2);
  ExecContext context{pool};
  MemoryTensors tensors;
  for (const char* name : {"a", "b", "c", "d", "e"}) add_layer(tensors, name);
  tensors.fill("c.activation_clip", {1}, 0.5f);
  tensors.add("d.block_bits", DType::kU8, {3}, std::vector<uint8_t>{8, 8, 4});
  tensors.add("e.input_order", DType::kI32, {K}, test_perm());
  EXPECT_EQ(load(context, tensors, {"a", "b"}).sections().size(), 1u);
  EXPECT_EQ(load(context, tensors, {"a", "c"}).sections().size(), 2u);
  EXPECT_EQ(load(context, tensors, {"a", "d"}).sections().size(), 2u);
  EXPECT_EQ(load(context, tensors, {"a", "e"}).sections().size(), 2u);
  add_layer(tensors, "f", /*has_perm=*/true);
  EXPECT_EQ(load(context, tensors, {"e", "f"}).sections().size(), 1u);
  std::vector<int32_t> other = test_perm();
  std::swap(other[3], other[200]);
  tensors.add("f.input_order", DType::kI32, {K}, other);
  EXPECT_EQ(load(context, tensors, {"e", "f"}).sections().size(), 2u);
}

/// y = W round(x) by docs/formats/fmpq.md, in f64.
double documented_output(const std::vector<float>& x, const float* w, bool has_perm, float clip) {
  std::vector<double> rounded(K);
  for (int64_t begin = 0; begin < K; begin += 128) {
    const int64_t end = std::min(K, begin + 128);
    const auto channel = [&](int64_t k) {
      return static_cast<size_t>(has_perm ? (k * 7 + 3) % K : k);
    };
    float largest = 0;
    for (int64_t k = begin; k < end; ++k) largest = std::max(largest, std::fabs(x[channel(k)]));
    const bool is_s8 = begin == 0;
    const float range = is_s8 ? largest : clip * largest;
    const float code_max = is_s8 ? 127.0f : 7.0f;
    for (int64_t k = begin; k < end; ++k) {
      const float code = std::nearbyint(x[channel(k)] * (code_max / range));
      rounded[channel(k)] =
          double{range / code_max} * double{std::clamp(code, -code_max - 1, code_max)};
    }
  }
  return std::inner_product(rounded.begin(), rounded.end(), w, 0.0);
}

TEST(FmpqLoad, ComputesWhatTheDocumentSays) {
  ThreadPool pool(2);
  ExecContext context{pool};
  std::vector<float> x(K);
  for (size_t k = 0; k < x.size(); ++k) {
    x[k] = std::sin(static_cast<float>(k * k)) * (k % 50 == 3 ? 20.0f : 1.0f);
  }
  for (const bool has_perm : {false, true}) {
    const MemoryTensors tensors = one_layer(has_perm);
    const std::vector<float> w = documented_weight(tensors, has_perm);
    const LinearOp layer = load(context, tensors, {"a"});
    EXPECT_STREQ(layer.sections()[0].kernel->name, "gemm_w4ax_hwy");
    std::vector<float> y(N);
    layer.run(context, f32_matrix(std::as_const(x).data(), 1, K), f32_matrix(y.data(), 1, N));
    for (size_t n = 0; n < y.size(); ++n) {
      EXPECT_NEAR(y[n], documented_output(x, w.data() + n * K, has_perm, 0.875f), 1e-3) << n;
    }
  }
}

}  // namespace
}  // namespace halley
