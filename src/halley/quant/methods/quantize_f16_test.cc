// Checkpoints of bf16 and f32 that method nestedfp rounds to f16.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/safetensors/safetensors_writer.h"
#include "halley/checkpoint/safetensors/tensor_store.h"
#include "halley/core/float16.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/methods/testing/quantize_run.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> converted(const std::vector<float>& values, DType dtype) {
  const auto bytes_of_all = [](const auto& elements) {
    const auto bytes = std::as_bytes(std::span(elements));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  if (dtype == DType::kF32) return bytes_of_all(values);
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
  }
  return bytes_of_all(bits);
}

/// The test model with random normal matrices in bf16 or f32, as a checkpoint of that type.
class WideModel {
 public:
  WideModel(fs::path dir, DType dtype) : dir_(std::move(dir)), dtype_(dtype) {
    const auto source = open_checkpoint_weights(testdata("models/llama"));
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    for (const TensorInfo& info : source->tensors()) {
      std::vector<float> values = to_f32(source->view(info));
      for (float& value : values) value = info.shape.size() > 1 ? normal(random) : value + 0x1p-20f;
      set(info.name, info.shape, values);
    }
  }
  /// The first element of a tensor.
  void set_first(const std::string& name, float value) {
    const TensorInfo info = *store_.find(name);
    std::vector<float> values = to_f32(store_.view(info));
    values[0] = value;
    set(name, info.shape, values);
  }
  /// Writes weights and config.json; gives a job for method nestedfp without calibration.
  QuantizeJob write(const fs::path& out) const {
    fs::create_directories(dir_);
    SafetensorsWriter writer(dir_ / "model.safetensors", store_.tensors(), {});
    for (size_t i = 0; i < store_.tensors().size(); ++i) {
      const TensorView view = store_.view(store_.tensors()[i]);
      writer.append(i, {view.data, view.num_bytes()});
    }
    writer.finish();
    OrderedJson config = parse_ordered_json(bytes_of(testdata("models/llama/config.json")), "");
    config["dtype"] = dtype_ == DType::kF32 ? "float32" : "bfloat16";
    std::ofstream(dir_ / "config.json") << config.dump();
    QuantizeJob job = job_for("llama", out, "nestedfp", {.has_calibration = false});
    job.model_dir = dir_;
    return job;
  }
  /// The model with its matrices rounded to f16, in memory.
  TensorStore rounded() const {
    TensorStore rounded;
    for (const TensorInfo& info : store_.tensors()) {
      const DType dtype = info.shape.size() > 1 ? DType::kF16 : dtype_;
      rounded.set(info.name, dtype, info.shape, converted(to_f32(store_.view(info)), dtype));
    }
    return rounded;
  }
  const TensorStore& store() const { return store_; }

 private:
  void set(const std::string& name, const Shape& shape, const std::vector<float>& values) {
    store_.set(name, dtype_, shape, converted(values, dtype_));
  }

  fs::path dir_;
  DType dtype_;
  TensorStore store_;
};

class QuantizeWideTest : public testing::TestWithParam<DType> {};

TEST_P(QuantizeWideTest, FullPrecisionIsTheModelRoundedToF16) {
  const TestFolder folder;
  const WideModel model(folder / "in", GetParam());
  const QuantizeSummary summary = quantize(model.write(folder / "out"));
  const std::vector<float> full = logits_of(folder / "out");
  EXPECT_EQ(full, logits_of(HfConfig::load(folder / "in"), model.rounded()));
  EXPECT_LT(distance(logits_of(folder / "in"), full), 0.01);
  const std::vector<float> low = logits_of(folder / "out", KvDType::kF32, Precision::kLow);
  EXPECT_NE(low, full);
  EXPECT_LT(distance(full, low), 0.2);
  EXPECT_FALSE(summary.is_calibrated);
  for (const LinearReport& report : summary.reports) {
    EXPECT_TRUE(report.is_quantized) << report.name;
    EXPECT_LT(report.relative_error, 1e-3) << report.name;
  }
}

TEST_P(QuantizeWideTest, TheReportCountsWhatChanged) {
  const TestFolder folder;
  const WideModel model(folder / "in", GetParam());
  const QuantizeSummary summary = quantize(model.write(folder / "out"));
  int64_t num_matrices = 0, num_changed = 0, num_values = 0;
  for (const TensorInfo& info : model.store().tensors()) {
    if (info.shape.size() < 2) continue;
    ++num_matrices;
    const auto report =
        std::find_if(summary.roundings.begin(), summary.roundings.end(),
                     [&](const RoundingReport& of) { return of.name == info.name; });
    ASSERT_NE(report, summary.roundings.end()) << info.name;
    EXPECT_EQ(report->dtype, name_of(GetParam()));
    int64_t changed = 0;
    for (const float value : to_f32(model.store().view(info))) {
      changed += f16_to_f32(f32_to_f16(value)) != value;
      ++num_values;
    }
    EXPECT_EQ(report->rounding.num_changed, changed) << info.name;
    num_changed += changed;
  }
  EXPECT_EQ(static_cast<int64_t>(summary.roundings.size()), num_matrices);
  EXPECT_GT(num_changed, 0);
  const Json config = parse_json(bytes_of(folder / "out" / "config.json"), "config.json");
  EXPECT_EQ(config.at("dtype"), "float16");
  const Json& record = config.at("quantization_config").at("rounded_to_f16");
  EXPECT_EQ(record.at("from"), Json::array({name_of(GetParam())}));
  EXPECT_EQ(record.at("num_changed"), num_changed);
  EXPECT_EQ(record.at("num_values"), num_values);
}

TEST_P(QuantizeWideTest, MatricesAreF16AndVectorsKeepTheirType) {
  const TestFolder folder;
  const WideModel model(folder / "in", GetParam());
  quantize(model.write(folder / "out"));
  const auto written = open_checkpoint_weights(folder / "out");
  for (const TensorInfo& info : model.store().tensors()) {
    const TensorInfo* found = written->find(info.name);
    if (info.name.ends_with("_proj.weight")) {
      EXPECT_EQ(found, nullptr) << info.name;
      continue;
    }
    ASSERT_NE(found, nullptr) << info.name;
    EXPECT_EQ(found->dtype, info.shape.size() > 1 ? DType::kF16 : GetParam()) << info.name;
    if (info.shape.size() > 1) continue;
    EXPECT_EQ(to_f32(written->view(*found)), to_f32(model.store().view(info))) << info.name;
  }
}

TEST_P(QuantizeWideTest, LargeWeightsMakeExceptions) {
  const TestFolder folder;
  WideModel model(folder / "in", GetParam());
  const std::string o = "model.layers.0.self_attn.o_proj", down = "model.layers.1.mlp.down_proj";
  model.set_first(o + ".weight", -3.5f);
  model.set_first(down + ".weight", 0x1p17f);
  const QuantizeSummary summary = quantize(model.write(folder / "out"));
  EXPECT_EQ(summary.notes,
            (std::vector<std::string>{
                o + " stays f16: 1 of 16384 weights are beyond 1.75, the first is -3.5 at [0, 0]",
                str(down, ".weight stays ", GetParam(), ": 1 of 32768 weights overflow f16, the ",
                    "first is 131072 at [0, 0]")}));
  const auto written = open_checkpoint_weights(folder / "out");
  EXPECT_EQ(written->find(o + ".weight")->dtype, DType::kF16);
  const TensorInfo* kept = written->find(down + ".weight");
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->dtype, GetParam());
  EXPECT_EQ(to_f32(written->view(*kept)),
            to_f32(model.store().view(*model.store().find(kept->name))));
  const Json config = parse_json(bytes_of(folder / "out" / "config.json"), "config.json");
  EXPECT_EQ(config.at("quantization_config").at("exceptions"), Json::array({o, down, "lm_head"}));
  for (const Precision precision : {Precision::kFull, Precision::kLow}) {
    for (const float logit : logits_of(folder / "out", KvDType::kF32, precision)) {
      ASSERT_TRUE(std::isfinite(logit));
    }
  }
}

TEST_P(QuantizeWideTest, RejectsByNameWhatF16CannotBe) {
  const TestFolder folder;
  WideModel model(folder / "in", GetParam());
  const float infinity = std::numeric_limits<float>::infinity();
  const auto message = [&](const std::string& name, float value) {
    const float before = to_f32(model.store().view(*model.store().find(name)))[0];
    model.set_first(name, value);
    const std::string text = message_of(model.write(folder / "out"));
    model.set_first(name, before);
    fs::remove_all((folder / "out.partial"));
    return text;
  };
  EXPECT_THAT(
      message("model.embed_tokens.weight", 0x1p17f),
      testing::HasSubstr(str("tensor \"model.embed_tokens.weight\": expected values that ",
                             "f16 holds, got ", GetParam(), ": 1 of 49152 weights overflow ",
                             "f16, the first is 131072 at [0, 0]")));
  EXPECT_THAT(message("model.embed_tokens.weight", infinity),
              testing::HasSubstr("tensor \"model.embed_tokens.weight\": expected finite values"));
  EXPECT_THAT(message("lm_head.weight", std::nanf("")),
              testing::HasSubstr("tensor \"lm_head.weight\": expected finite values"));
  EXPECT_THAT(message("model.layers.1.self_attn.q_proj.weight", infinity),
              testing::HasSubstr("tensor \"model.layers.1.self_attn.q_proj.weight\": expected "));
}

TEST_P(QuantizeWideTest, TheReportSurvivesAnInterruption) {
  const TestFolder folder;
  const WideModel model(folder / "in", GetParam());
  const QuantizeSummary whole = quantize(model.write(folder / "whole"));
  const QuantizeJob job = model.write(folder / "parts");
  EXPECT_THROW(quantize(job, 2,
                        [](const QuantizeProgress& progress) {
                          if (progress.num_layers_done == 1)
                            throw std::runtime_error("interrupted");
                        }),
               std::runtime_error);
  const QuantizeSummary summary = quantize(job);
  EXPECT_EQ(summary.num_layers_resumed, 1);
  ASSERT_EQ(summary.roundings.size(), whole.roundings.size());
  for (size_t i = 0; i < whole.roundings.size(); ++i) {
    EXPECT_EQ(to_json(summary.roundings[i]), to_json(whole.roundings[i]));
  }
  EXPECT_EQ(bytes_of(folder / "parts" / "config.json"), bytes_of(folder / "whole" / "config.json"));
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeWideTest, testing::Values(DType::kBf16, DType::kF32),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace halley
