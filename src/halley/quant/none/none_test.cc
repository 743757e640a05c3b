// Packing of full-precision layers: slices, experts, biases, types, against the tensors themselves.
#include "halley/quant/none/none.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/linear_loader.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr int64_t K = 48;

size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<size_t>(num_elements_of(shape).value() * bits_of(dtype) / 8);
}

TensorInfo info(const std::string& name, const Shape& shape, DType dtype = DType::kF16) {
  return {.name = name, .dtype = dtype, .shape = shape, .num_bytes = bytes_of(shape, dtype)};
}

std::unique_ptr<QuantScheme> scheme_of(const TensorSource& source) {
  return kQuantNone.detect({}, source);
}

const KernelDemands kNoDemands;

/// Row n of the loaded weight equals row `row` of a stored tensor.
void expect_row(const LinearOp& op, int64_t n, const TensorSource& source, const std::string& name,
                int64_t row) {
  TensorView view = source.view(*source.find(name));
  view.shape = {view.num_elements() / K, K};
  std::vector<float> unpacked(static_cast<size_t>(K));
  unpack_row(op.weight(), n, unpacked.data());
  EXPECT_EQ(unpacked, to_f32(view.rows(row, row + 1))) << name << " row " << row;
}

TEST(DenseFormat, PutsPartsBelowEachOtherInEveryType) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
    const auto source =
        make_dummy_weights({info("a.weight", {5, K}, dtype), info("a.bias", {5}),
                            info("b.weight", {40, K}, dtype), info("b.bias", {40})});
    LinearSpec spec;
    spec.in_features = K;
    spec.has_bias = true;
    spec.parts = {{.name = "a", .out_features = 5, .stored_rows = 5},
                  {.name = "b", .out_features = 30, .row_begin = 10, .stored_rows = 40}};
    ThreadPool pool(2);
    ExecContext context{pool};
    const auto scheme = scheme_of(*source);
    const LinearLoading loading = {*scheme, *source, kNoDemands};
    const LinearOp op = load_linear(context, loading, spec);
    for (int64_t n = 0; n < 5; ++n) expect_row(op, n, *source, "a.weight", n);
    for (int64_t n = 0; n < 30; ++n) expect_row(op, 5 + n, *source, "b.weight", 10 + n);
    const std::vector<LinearPlan> plans = plan_linear(loading, spec);
    ASSERT_EQ(plans.size(), size_t{1});
    EXPECT_EQ(plans[0].weight.stored_dtype, dtype);
    EXPECT_EQ(plans[0].bits_per_weight, bits_of(dtype));
    EXPECT_EQ(plans[0].packed_bytes, op.packed_bytes());
    EXPECT_EQ(plans[0].out_features, 35);
    EXPECT_EQ(plans[0].kernel, op.sections()[0].kernel);

    // Zero input: the output is the bias.
    const std::vector<float> zeros(static_cast<size_t>(K), 0.0f);
    std::vector<float> y(35), bias = to_f32(source->view(*source->find("a.bias")));
    op.run(context, f32_matrix(zeros.data(), 1, K), f32_matrix(y.data(), 1, 35));
    const std::vector<float> rest = to_f32(source->view(*source->find("b.bias")).rows(10, 40));
    bias.insert(bias.end(), rest.begin(), rest.end());
    EXPECT_EQ(y, bias);
  }
}

TEST(DenseFormat, TakesOneExpertOfAFusedTensor) {
  const auto source = make_dummy_weights({info("experts.w", {3, 8, K})});
  LinearSpec spec;
  spec.in_features = K;
  spec.parts = {{.name = "experts.w",
                 .out_features = 8,
                 .stored_rows = 8,
                 .expert = 2,
                 .num_stored_experts = 3}};
  ThreadPool pool(1);
  ExecContext context{pool};
  const auto scheme = scheme_of(*source);
  const LinearLoading loading = {*scheme, *source, kNoDemands};
  const LinearOp op = load_linear(context, loading, spec);
  for (int64_t n = 0; n < 8; ++n) expect_row(op, n, *source, "experts.w", 16 + n);
  EXPECT_THAT(linear_tensor_names(loading, spec), ElementsAre("experts.w"));
}

LinearSpec two_parts() {
  LinearSpec spec;
  spec.in_features = K;
  spec.has_bias = true;
  spec.parts = {{.name = "a", .out_features = 4, .stored_rows = 4},
                {.name = "b", .out_features = 4, .stored_rows = 4}};
  return spec;
}

TEST(DenseFormat, NamesTheTensorsThatItReads) {
  const auto source = make_dummy_weights({info("a.weight", {4, K}), info("a.bias", {4}),
                                          info("b.weight", {4, K}), info("b.bias", {4})});
  const auto scheme = scheme_of(*source);
  EXPECT_THAT(linear_tensor_names({*scheme, *source, kNoDemands}, two_parts()),
              ElementsAre("a.weight", "a.bias", "b.weight", "b.bias"));
}

TEST(DenseFormat, RejectsMissingBiases) {
  const auto source =
      make_dummy_weights({info("a.weight", {4, K}), info("a.bias", {4}), info("b.weight", {4, K})});
  const auto scheme = scheme_of(*source);
  EXPECT_THAT(([&] {
                plan_linear({*scheme, *source, kNoDemands}, two_parts());
              }),
              ThrowsMessage<CheckpointError>(StartsWith(
                  "dummy weights: tensor \"b.bias\": expected a tensor of shape [4], got none.")));
}

TEST(DenseFormat, KeepsPartsOfDifferentTypesApart) {
  const auto source =
      make_dummy_weights({info("a.weight", {4, K}), info("a.bias", {4}),
                          info("b.weight", {4, K}, DType::kF32), info("b.bias", {4})});
  const auto scheme = scheme_of(*source);
  const LinearLoading loading = {*scheme, *source, kNoDemands};
  ThreadPool pool(1);
  ExecContext context{pool};
  const LinearOp op = load_linear(context, loading, two_parts());
  ASSERT_EQ(op.sections().size(), size_t{2});
  EXPECT_EQ(op.sections()[0].weight.layout, PackedLayout::kF16Panel);
  EXPECT_EQ(op.sections()[1].weight.layout, PackedLayout::kF32Panel);
  const std::vector<float> zeros(static_cast<size_t>(K), 0.0f);
  std::vector<float> y(8);
  op.run(context, f32_matrix(zeros.data(), 1, K), f32_matrix(y.data(), 1, 8));
  EXPECT_EQ(y, op.bias());
}

TEST(DenseFormat, LeavesQuantizedCheckpointsToOthers) {
  const auto source = make_dummy_weights({});
  const HfConfig config =
      HfConfig::parse(R"({"quantization_config": {"quant_method": "x"}})", "config.json");
  EXPECT_EQ(kQuantNone.detect(read_quant_config(config, {}), *source), nullptr);
}

TEST(DenseFormat, RejectsCodesThatNothingExplains) {
  const auto source = make_dummy_weights({info("a.qweight", {4, K}, DType::kI32)});
  EXPECT_THAT([&] { scheme_of(*source); },
              ThrowsMessage<CheckpointError>(
                  "dummy weights: tensor \"a.qweight\": expected a quantization_config that says "
                  "what it means, got none in config.json, quantize_config.json, quant_config.json "
                  "or hf_quant_config.json. Add the file that its tool wrote."));
}

}  // namespace
}  // namespace halley
