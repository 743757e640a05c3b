#include "halley/cli/model_options.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/kernels/gemm/gemm.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kModel = HALLEY_SOURCE_DIR "/testdata/models/llama";

/// Parses as the command line does; throws the parser's exception.
ModelOptions parse(std::vector<std::string> args) {
  CLI::App app;
  ModelOptions options;
  add_model_options(app, options);
  add_precision_option(app, options);
  add_length_option(app, options);
  app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  return options;
}

TEST(ModelOptions, TakeLists) {
  const ModelOptions options = parse({"m", "--require-kernel", "a,b", "--require-kernel", "c",
                                      "--quant-override", "x=none", "--quant-override", "y=none"});
  EXPECT_EQ(options.model, "m");
  EXPECT_THAT(options.required_kernels, testing::ElementsAre("a", "b", "c"));
  EXPECT_THAT(options.quant_overrides, testing::ElementsAre("x=none", "y=none"));
}

TEST(ModelOptions, HaveAFlagForAndAgainstTheSelfCheck) {
  EXPECT_TRUE(parse({}).has_self_check);
  EXPECT_TRUE(parse({"--self-check"}).has_self_check);
  EXPECT_FALSE(parse({"--no-self-check"}).has_self_check);
}

TEST(ModelOptions, RejectValuesOutOfRange) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--threads", "-1"},
                                             {"--threads", "1025"},
                                             {"--threads", "two"},
                                             {"--device", "gpu"},
                                             {"--device", "cuda:"},
                                             {"--device", "cuda:x"},
                                             {"--device", "cuda:1000"},
                                             {"--kv-dtype", "f8"},
                                             {"--precision", "half"},
                                             {"--max-model-len", "-1"},
                                             {"--gpu-memory-utilization", "0"},
                                             {"--gpu-memory-utilization", "1.01"},
                                             {"--gpu-memory-utilization", "most"},
                                             {"--load-format", "gguf"}}) {
    EXPECT_THROW(parse(args), CLI::ValidationError) << args[0] << " " << args[1];
  }
}

TEST(ModelOptions, TakeValuesAtTheEndsOfTheirRanges) {
  EXPECT_EQ(parse({"--threads", "0"}).threads, 0);
  EXPECT_EQ(parse({"--device", "cuda:999"}).device, "cuda:999");
  EXPECT_EQ(parse({"--gpu-memory-utilization", "1"}).gpu_memory_utilization, 1);
  for (const char* name : {"auto", "f32", "f16", "bf16", "int8", "int4", "fp8"}) {
    EXPECT_EQ(parse({"--kv-dtype", name}).kv_dtype, name);
  }
}

TEST(ParseKvDtype, IsNothingForAuto) {
  EXPECT_EQ(parse_kv_dtype("auto"), std::nullopt);
  EXPECT_EQ(parse_kv_dtype("int4"), KvDType::kInt4);
  EXPECT_EQ(parse_kv_dtype("fp8"), KvDType::kFp8E4M3);
}

TEST(NumThreads, IsAllCoresWhereNoneIsAskedFor) {
  EXPECT_EQ(num_threads_of(3), 3);
  EXPECT_GE(num_threads_of(0), 1);
}

TEST(ChooseDevice, NeedsNoGpuForTheCpu) {
  const DeviceChoice choice = choose_device("cpu");
  EXPECT_EQ(choice.device, "cpu");
  EXPECT_EQ(choice.why_not_gpu, "");
}

TEST(ChooseDevice, GoesByWhetherThereIsAGpu) {
  if (why_no_gpu(0).empty()) {
    EXPECT_EQ(choose_device("auto").device, "cuda");
    EXPECT_EQ(choose_device("cuda").gpu_ordinal, 0);
    EXPECT_EQ(choose_device("cuda:12").gpu_ordinal, 12);
    return;
  }
  EXPECT_EQ(choose_device("auto").device, "cpu");
  // A program without code for GPUs does not say why each time.
  EXPECT_EQ(choose_device("auto").why_not_gpu.empty(), !is_built_with_cuda());
  EXPECT_THROW(choose_device("cuda"), Error);
}

TEST(ChooseDevice, RejectsOtherNames) {
  EXPECT_THAT([] { choose_device("tpu"); },
              ThrowsMessage<InputError>(
                  HasSubstr("HALLEY_DEVICE: expected auto, cpu, cuda or cuda:N, got \"tpu\"")));
}

TEST(OpenModelFiles, OfACheckpointIsWhatItSaysItself) {
  ModelOptions options;
  options.model = kModel;
  const ModelFiles files = open_model_files(options);
  EXPECT_FALSE(files.quant.fields.has_value());
  EXPECT_FALSE(files.source->tensors().empty());
  options.config_name = "llama-1b";
  EXPECT_THAT([&] { open_model_files(options); },
              ThrowsMessage<InputError>(HasSubstr("expected --load-format dummy with them")));
  EXPECT_THAT([] { open_model_files({}); }, ThrowsMessage<InputError>(HasSubstr("expected MODEL")));
}

TEST(OpenModelFiles, MakesDummyWeightsOfAShape) {
  ModelOptions options;
  options.load_format = "dummy";
  EXPECT_THAT([&] { open_model_files(options); },
              ThrowsMessage<InputError>(HasSubstr("expected either MODEL or --config")));
  options.model = kModel;
  options.dtype = "bfloat16";
  const ModelFiles files = open_model_files(options);
  for (const TensorInfo& info : files.source->tensors()) EXPECT_EQ(info.dtype, DType::kBf16);
  options.config_name = "llama-1b";
  EXPECT_THROW(open_model_files(options), InputError);  // both
}

TEST(OpenModelFiles, MakesDummyWeightsOfAFormat) {
  ModelOptions options;
  options.load_format = "dummy";
  options.model = kModel;
  options.quant_config = R"({"quant_method": "fp8", "activation_scheme": "dynamic"})";
  const ModelFiles files = open_model_files(options);
  EXPECT_TRUE(files.quant.fields.has_value());
  const auto& tensors = files.source->tensors();
  EXPECT_TRUE(std::any_of(tensors.begin(), tensors.end(),
                          [](const TensorInfo& info) { return info.dtype == DType::kF8E4M3; }));
  options.quant_config = "{";
  EXPECT_THAT([&] { open_model_files(options); },
              ThrowsMessage<InputError>(HasSubstr("--quant-config")));
}

TEST(LoadOptions, TakeADtypeOfACheckpointOnAGpuAlone) {
  ModelOptions options;
  options.model = kModel;
  options.dtype = "bfloat16";
  const ModelFiles files = open_model_files(options);
  EXPECT_THAT([&] { load_options_of(options, files, {.device = "cpu"}); },
              ThrowsMessage<InputError>(HasSubstr("--dtype: expected --load-format dummy")));
  EXPECT_EQ(load_options_of(options, files, {.device = "cuda"}).activation_dtype, DType::kBf16);
  options.dtype = "half";
  EXPECT_EQ(load_options_of(options, files, {.device = "cuda"}).activation_dtype, DType::kF16);
  options.dtype = "auto";
  EXPECT_EQ(load_options_of(options, files, {.device = "cpu"}).activation_dtype, std::nullopt);
  options.dtype = "float32";
  EXPECT_THAT([&] { load_options_of(options, files, {.device = "cuda"}); },
              ThrowsMessage<InputError>(HasSubstr("expected float16 or bfloat16")));
}

TEST(LoadOptions, HandOnWhatWasAskedFor) {
  ModelOptions options;
  options.model = kModel;
  options.required_kernels = {"a"};
  options.quant_overrides = {"layers.*=none"};
  options.has_self_check = false;
  options.max_model_len = 77;
  options.gpu_memory_utilization = 0.5;
  const LoadOptions load =
      load_options_of(options, open_model_files(options), {.device = "cuda", .gpu_ordinal = 2});
  EXPECT_THAT(load.kernels.required, testing::ElementsAre("a"));
  EXPECT_EQ(load.overrides.size(), 1U);
  EXPECT_FALSE(load.has_self_check);
  EXPECT_EQ(load.max_length, 77);
  EXPECT_EQ(load.device, "cuda");
  EXPECT_EQ(load.gpu_ordinal, 2);
  EXPECT_EQ(load.gpu_memory_utilization, 0.5);
  EXPECT_FALSE(load.activation_dtype.has_value());
}

TEST(KernelsInWords, CountsEachKernelOnce) {
  GemmKernel full = cpu_gemm_kernels()[0], low = full;
  full.name = "gemm_b";
  low.name = "gemm_a";
  LinearPlan one, both;
  one.kernel = both.kernel = &full;
  both.low_kernel = &low;
  ModelPlan plan;
  plan.parts = {{.name = "layers.0.qkv", .kind = "linear", .plans = {one, both}, .gpu_plans = {}},
                {.name = "norm", .kind = "norm", .plans = {}, .gpu_plans = {}},
                {.name = "lm_head", .kind = "linear", .plans = {one}, .gpu_plans = {}}};
  EXPECT_EQ(kernels_in_words(plan), "gemm_a 1, gemm_b 3");
  // On a GPU its kernels count, and not those of the CPU.
  plan.device = "cuda";
  plan.parts[0].gpu_plans.resize(2);
  plan.parts[0].gpu_plans[0].kernel = plan.parts[0].gpu_plans[1].kernel = "mixed_u4_f16";
  EXPECT_EQ(kernels_in_words(plan), "mixed_u4_f16 2");
  EXPECT_EQ(kernels_in_words({}), "");
}

}  // namespace
}  // namespace halley::cli
