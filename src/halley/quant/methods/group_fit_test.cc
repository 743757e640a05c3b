// Models whose sizes are no multiples of 128: group sizes that divide, and the methods at them.
#include "halley/quant/methods/group_fit.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors_writer.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/quant/methods/testing/quantize_run.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

/// Half of SmolLM2-135M's: 36 times a power of two, groups of 32.
constexpr int64_t kHiddenSize = 288;

/// Heads of 32, three for each kv head, as in SmolLM2.
std::string config_of(const std::string& family, int64_t hidden_size) {
  const bool is_tied = family == "llama";  // the other has biases
  return str(R"({"model_type": ")", family, R"(", "hidden_size": )", hidden_size,
             R"(, "intermediate_size": 192, "num_hidden_layers": 1, "num_attention_heads": )",
             hidden_size / 32, R"(, "num_key_value_heads": )", hidden_size / 96,
             R"(, "head_dim": 32, "vocab_size": 384, "max_position_embeddings": 128,
             "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
             "torch_dtype": "float32", "tie_word_embeddings": )",
             is_tied ? "true}" : "false}");
}

void write_model(const fs::path& dir, const std::string& text) {
  fs::create_directories(dir);
  std::ofstream(dir / "config.json") << text;
  const HfConfig config = HfConfig::parse(text, "config.json");
  const auto source = make_hash_weights(list_dense_tensors(read_decoder_config(config)));
  const std::vector<TensorInfo> infos(source->tensors().begin(), source->tensors().end());
  SafetensorsWriter writer(dir / "model.safetensors", infos, {});
  for (size_t i = 0; i < infos.size(); ++i) {
    const TensorView view = source->view(infos[i]);
    writer.append(i, {view.data, view.num_bytes()});
  }
  writer.finish();
}

class OddSizes : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { write_model(folder_ / "model", config_of(GetParam(), kHiddenSize)); }

  QuantizeSummary make(const std::string& method, const RecipeChanges& changes = {}) {
    const fs::path out = folder_ / str("out", count_++);
    QuantizeJob job = job_for("llama", out, method, changes);
    job.model_dir = folder_ / "model";
    QuantizeSummary summary = quantize(job);
    distance_ = distance(logits_of(job.model_dir), logits_of(out));
    return summary;
  }

  TestFolder folder_;
  int count_ = 0;
  double distance_ = 0;  // of the last model
};

TEST_P(OddSizes, GroupsThatDivideAreChosenAndSaid) {
  for (const std::string method : {"rtn", "gptq", "awq"}) {
    for (const bool is_symmetric : {false, true}) {
      SCOPED_TRACE(str(method, is_symmetric ? ", symmetric" : ""));
      const QuantizeSummary summary = make(method, {.is_symmetric = is_symmetric});
      EXPECT_THAT(summary.notes,
                  Contains("groups of 32, since groups of 128 do not divide the 288 inputs of "
                           "model.layers.0.self_attn.q_proj"));
      EXPECT_LT(distance_, 0.45);  // of random weights in 4 bits
    }
  }
}

TEST_P(OddSizes, RotatedWeightsGetPerChannelScales) {
  const QuantizeSummary summary = make("qoq");
  EXPECT_THAT(summary.notes, Contains(HasSubstr("per-channel scales, since groups of 128 do not "
                                                "divide the 288 inputs of ")));
  EXPECT_LT(distance_, 0.6);
}

TEST_P(OddSizes, MethodsOfOtherGridsNeedNoChoice) {
  for (const std::string method : {"smoothquant", "fp8", "fmpq", "nestedfp"}) {
    for (const std::string& note : make(method).notes) {
      EXPECT_THAT(note, Not(HasSubstr("groups of 128"))) << method;
    }
    EXPECT_LT(distance_, 0.6) << method;
  }
}

TEST_P(OddSizes, ASizeThatTheUserGaveStays) {
  QuantizeJob job = job_for("llama", folder_ / "given", "gptq", {.group_size = 128});
  job.model_dir = folder_ / "model";
  EXPECT_THAT(message_of(job), HasSubstr("expected a group size that divides its 288 inputs (K), "
                                         "got 128."));
}

INSTANTIATE_TEST_SUITE_P(Families, OddSizes, testing::Values("llama", "qwen2"));

TEST(GroupFit, LooksAtTheLayersWithTheRecipesSize) {
  const auto fit = [](int64_t hidden_size, const std::string& override = "") -> int64_t {
    const DecoderConfig config =
        read_decoder_config(HfConfig::parse(config_of("llama", hidden_size), "config.json"));
    std::vector<LayerOverride> overrides;
    if (!override.empty()) overrides.push_back(parse_layer_override(override));
    const auto found = fit_group_size(make_recipe("rtn", {}), overrides, config);
    return found ? found->group_size : -1;
  };
  EXPECT_EQ(fit(576), 64);
  EXPECT_EQ(fit(768), 64);  // 192 inputs of down_proj
  EXPECT_EQ(fit(768, "*.down_proj=none"), -1);
  EXPECT_EQ(fit(768, "*.down_proj=group=32"), -1);
  EXPECT_EQ(fit(768, "*.down_proj=bits=8"), 64);
  EXPECT_EQ(fit(96), 32);  // 96 inputs are one group of 128, but no groups of 64
}

}  // namespace
}  // namespace halley
