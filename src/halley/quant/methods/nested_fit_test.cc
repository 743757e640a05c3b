#include "halley/quant/methods/nested_fit.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/float16.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Model {
  explicit Model(const std::string& family)
      : dir(testdata("models") / family),
        config(HfConfig::load(dir)),
        source(*open_checkpoint_weights(dir)),
        decoder(plan_model(config, source).config) {}

  NestedFit fit() const {
    ThreadPool pool(2);
    ExecContext context{pool};
    return measure_nested_fit(context, decoder, source, {});
  }
  /// Element 3 of row 1 of a tensor becomes this f16 value.
  void set(const std::string& name, uint16_t half) {
    const TensorInfo info = *source.find(name);
    ASSERT_EQ(info.dtype, DType::kF16);
    std::vector<std::byte> data = source.data(name);
    const auto bytes = std::as_bytes(std::span(&half, 1));
    const auto offset = static_cast<std::ptrdiff_t>((info.shape.at(1) + 3) * 2);
    std::copy(bytes.begin(), bytes.end(), data.begin() + offset);
    source.set(info, std::move(data));
  }

  std::filesystem::path dir;
  HfConfig config;
  EditableSource source;
  DecoderConfig decoder;
};

std::vector<int64_t> layers_by_kind(const NestedFit& fit) {
  std::vector<int64_t> counts;
  for (const NestedFitKind& kind : fit.kinds) counts.push_back(kind.num_layers);
  counts.push_back(fit.total.num_layers);
  return counts;
}

TEST(NestedFit, CountsStoredTensorsByKind) {
  const Model llama("llama");
  const auto num_layers = static_cast<int64_t>(llama.decoder.layers.size());
  EXPECT_EQ(layers_by_kind(llama.fit()),
            (std::vector<int64_t>{3 * num_layers, num_layers, 2 * num_layers, num_layers,
                                  7 * num_layers}));
  // Fused tensors count once, as the paper counts them.
  const Model phi("phi3");
  const auto num_fused = static_cast<int64_t>(phi.decoder.layers.size());
  EXPECT_EQ(layers_by_kind(phi.fit()),
            (std::vector<int64_t>{num_fused, num_fused, num_fused, num_fused, 4 * num_fused}));
  // Each expert has layers of its own; the router is none.
  const Model mixtral("mixtral");
  const auto num_moe = static_cast<int64_t>(mixtral.decoder.layers.size());
  const auto E = static_cast<int64_t>(mixtral.decoder.layers[0].mlp.down.size());
  ASSERT_GT(E, 1);
  EXPECT_EQ(layers_by_kind(mixtral.fit()),
            (std::vector<int64_t>{3 * num_moe, num_moe, 2 * E * num_moe, E * num_moe,
                                  (4 + 3 * E) * num_moe}));
}

TEST(NestedFit, MeasuresTheWeights) {
  const Model model("llama");
  double min = 0, max = 0;
  int64_t num_values = 0;
  for (const TensorInfo& info : model.source.tensors()) {
    if (!info.name.ends_with("_proj.weight")) continue;
    for (const float value : to_f32(model.source.view(info))) {
      min = std::min<double>(min, value);
      max = std::max<double>(max, value);
      ++num_values;
    }
  }
  const NestedFit fit = model.fit();
  EXPECT_EQ(fit.total.rounding.min, min);
  EXPECT_EQ(fit.total.rounding.max, max);
  EXPECT_EQ(fit.total.rounding.num_values, num_values);
  EXPECT_EQ(fit.total.num_applicable, fit.total.num_layers);
  EXPECT_EQ(fit.total.share_within(), 1);
}

TEST(NestedFit, ALayerWithALargerWeightIsAnException) {
  Model model("llama");
  const std::string name = "model.layers.1.mlp.down_proj";
  model.set(name + ".weight", f32_to_f16(1.75f));
  EXPECT_TRUE(model.fit().exceptions.empty());
  model.set(name + ".weight", f32_to_f16(-3.5f));
  const NestedFit fit = model.fit();
  ASSERT_EQ(fit.exceptions.size(), size_t{1});
  EXPECT_EQ(fit.exceptions[0].name, name);
  EXPECT_EQ(fit.exceptions[0].rounding.num_beyond, 1);
  EXPECT_EQ(fit.kinds[3].num_applicable, fit.kinds[3].num_layers - 1);
  EXPECT_EQ(fit.kinds[2].num_applicable, fit.kinds[2].num_layers);
  EXPECT_EQ(fit.total.rounding.min, -3.5f);
  EXPECT_EQ(fit.total.share_within(),
            1.0 - 1.0 / static_cast<double>(fit.total.rounding.num_values));
}

TEST(NestedFit, RejectsWhatItCannotMeasure) {
  Model model("llama");
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  model.set(name, 0x7E00);
  EXPECT_THAT([&] { model.fit(); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  str("tensor \"", name, "\": expected finite values, got f16 nan at [1, 3]"))));
  model.source.remove(name);
  EXPECT_THAT([&] { model.fit(); }, ThrowsMessage<CheckpointError>(HasSubstr(name)));
}

TEST(NestedFit, OfNoLayersIsEverythingWithin) { EXPECT_EQ(NestedFitKind().share_within(), 1); }

}  // namespace
}  // namespace halley
