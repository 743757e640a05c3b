#include "halley/cli/simulated_model.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kFolder = HALLEY_SOURCE_DIR "/models/demo-21m";

SimulatedModelOptions llama(const std::string& format) {
  return {.config_name = "llama-1b", .quant_config = format};
}

SimulatedEngine make_engine(const SimulatedModelOptions& options, int64_t max_num_seqs = 0) {
  EngineConfig config;
  config.max_num_seqs = max_num_seqs;
  return make_simulated_engine(plan_simulated_model(options), options, config);
}

TEST(SimulatedModel, KnowsTheFormatsThatWereMeasured) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> formats = {
      {"auto", {"f16"}},
      {"f16", {"f16"}},
      {"fp8", {"fp8"}},
      {"nestedfp", {"nested_full", "nested_low"}},
      {"w4a16", {"w4a16"}},
      {"w4a8", {"w4a8"}},
      {"w4a8_group", {"w4a8_group"}},
      {"w4ax", {"w4ax"}}};
  for (const auto& [format, names] : formats) {
    EXPECT_EQ(ratio_names_of(plan_simulated_model(llama(format))), names) << format;
    EXPECT_EQ(make_engine(llama(format)).levels.size(), names.size()) << format;
  }
}

TEST(SimulatedModel, LowPrecisionReadsHalfOfTheWeights) {
  const SimulatedEngine engine = make_engine(llama("nestedfp"));
  const DecoderCost &full = engine.levels.at(0).cost, &low = engine.levels.at(1).cost;
  const double output_bytes = 2.0 * 8192 * 2048;  // the embedding, in f16
  EXPECT_NEAR(low.always_bytes - output_bytes, (full.always_bytes - output_bytes) / 2, 1);
  EXPECT_EQ(full.linear_type, GemmType::kF16);
  EXPECT_EQ(low.linear_type, GemmType::kE4m3);
}

TEST(SimulatedModel, ReadsAShareOfTheExperts) {
  const ModelPlan plan =
      plan_simulated_model({.model = HALLEY_SOURCE_DIR "/testdata/models/mixtral"});
  const DecoderCost cost = levels_of(plan, KvDType::kF16).at(0).cost;
  EXPECT_GT(cost.expert_bytes, 0);
  EXPECT_GT(cost.always_bytes, 0);
  EXPECT_GT(cost.expert_share, 0);
  EXPECT_LT(cost.expert_share, 1);
}

TEST(SimulatedModel, LeavesTheCacheWhatWeightsDoNotTake) {
  const auto num_tokens = [](const SimulatedModelOptions& options) {
    const EnginePlan plan = make_engine(options, 4096).plan;
    return plan.num_pages * plan.config.page_tokens;
  };
  SimulatedModelOptions options = llama("f16");
  const int64_t on_h200 = num_tokens(options);
  options.device = "h100";
  const int64_t on_h100 = num_tokens(options);
  // 22 KiB a token; 90 % of 81559 MiB less 1.97 GB of weights and what steps need.
  EXPECT_GT(on_h100, 3'250'000);
  EXPECT_LT(on_h100, 3'330'000);
  EXPECT_GT(on_h200, on_h100 + 2'500'000);
  options.quant_config = "w4a8";
  EXPECT_GT(num_tokens(options), on_h100 + 60'000);  // 1.4 GB
  options.kv_dtype = "fp8";
  EXPECT_GT(num_tokens(options), 9 * on_h100 / 5);
}

TEST(SimulatedModel, SaysWhatDoesNotFitTheDevice) {
  SimulatedModelOptions options = llama("f16");
  options.gpu_memory_utilization = 0.01;
  EXPECT_THAT(
      [&] { make_engine(options); },
      ThrowsMessage<InputError>(AllOf(HasSubstr("expected a model that fits"), HasSubstr("h200"))));
  options.device = "b300";
  EXPECT_THAT([&] { make_engine(options); },
              ThrowsMessage<InputError>(HasSubstr("expected one of h200, h100, got \"b300\"")));
}

TEST(SimulatedModel, NeedsMeasuredRatios) {
  SimulatedModelOptions options = llama(R"({"quant_method": "compressed-tensors",
      "format": "int-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
      "targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"},
      "input_activations": {"num_bits": 8, "type": "int", "symmetric": true,
      "strategy": "token", "dynamic": true}}}})");
  EXPECT_THAT(
      [&] { make_engine(options); },
      ThrowsMessage<InputError>(AllOf(HasSubstr("step times of w8a8"), HasSubstr("--ratios"))));
  options.ratios_file = testing::TempDir() + "simulated_model_ratios.json";
  std::ofstream(options.ratios_file)
      << R"({"ratios": [{"precision": "w8a8", "rows": 1, "ratio": 1.5}]})";
  EXPECT_EQ(make_engine(options).ratios.at(0).at(7), 1.5);
  std::filesystem::remove(options.ratios_file);
}

TEST(SimulatedModel, NeedsOneModel) {
  EXPECT_THROW(plan_simulated_model({}), InputError);
  EXPECT_THROW(plan_simulated_model({.model = "a", .config_name = "llama-1b"}), InputError);
  EXPECT_THROW(plan_simulated_model({.config_name = "llama-1b", .quant_config = "no/such/file"}),
               InputError);
}

TEST(SimulatedModel, ReadsTheConfigurationOfAFolder) {
  EXPECT_THAT(ratio_names_of(plan_simulated_model({.model = kFolder})), ElementsAre("f16"));
  EXPECT_THAT(ratio_names_of(plan_simulated_model({.model = kFolder, .quant_config = "w4a16"})),
              ElementsAre("w4a16"));
}

TEST(SimulatedModel, RejectsAQuantizedModelAsF16) {
  const std::string folder = testing::TempDir() + "simulated_model_quantized";
  std::filesystem::create_directories(folder);
  Json config = parse_json(read_text_file(kFolder + "/config.json", 1 << 20), "config.json");
  config["quantization_config"] = {{"quant_method", "qoq"}, {"wbits", 4}, {"group_size", 128}};
  std::ofstream(folder + "/config.json") << config.dump();
  EXPECT_THAT(ratio_names_of(plan_simulated_model({.model = folder})), ElementsAre("w4a8_group"));
  EXPECT_THAT([&] { plan_simulated_model({.model = folder, .quant_config = "f16"}); },
              ThrowsMessage<InputError>(HasSubstr("expected a model that is not quantized")));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace halley::cli
