// `halley tune`: measures which plans are the fastest for GEMMs on this GPU, and keeps them.
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/command.h"
#include "halley/cli/model_options.h"
#include "halley/cli/named_model.h"
#include "halley/models/all/load_model.h"
#ifdef HALLEY_HAS_CUDA
#include "halley/cli/bench_gpu.h"
#include "halley/cli/bench_model.h"
#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/tune/tune.h"
#include "halley/cuda/tuning/tuning_cache.h"
#include "halley/models/all/gpu_tuning.h"
#endif

namespace halley::cli {

struct TuneOptions {
  ModelOptions model;
  std::vector<std::string> shapes;
  std::vector<std::string> kernels;  // none: all
  int64_t group_size = 128;
  std::vector<int64_t> rows;  // none: tuned_rows()
  int device = 0;
  std::string output;
};

#ifdef HALLEY_HAS_CUDA
namespace {

std::vector<cuda::TunedGemm> model_gemms(const TuneOptions& options) {
  const ModelFiles files = open_model_files(options.model);
  const ModelPlan plan = plan_model(files.config, *files.source,
                                    load_options_of(options.model, files, {.device = "cuda"}));
  std::vector<cuda::TunedGemm> gemms = tuned_gemms_of(plan);
  if (!gemms.empty()) return gemms;
  throw InputError(str(options.model.model,
                       ": expected a model with layers that have measured plans, got one without. "
                       "See halley inspect MODEL --device cuda."));
}

std::vector<const cuda::TunedKernel*> kernels_of(const TuneOptions& options) {
  std::vector<const cuda::TunedKernel*> kernels;
  for (const std::string& name : options.kernels) {
    kernels.push_back(cuda::find_tuned_kernel(name));
    if (kernels.back() != nullptr) continue;
    throw InputError(str("--kernel: expected one of those that halley tune --help lists, got ",
                         quote(name), "."));
  }
  if (!kernels.empty()) return kernels;
  for (const cuda::TunedKernel& kernel : cuda::tuned_kernels()) kernels.push_back(&kernel);
  return kernels;
}

std::vector<cuda::TunedGemm> shape_gemms(const TuneOptions& options) {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const std::string& shape : options.shapes) shapes.push_back(parse_shape(shape, "--shape"));
  if (shapes.empty()) shapes = cuda::llama_gemm_shapes();
  std::set<cuda::TunedGemm> gemms;
  for (const auto& [N, K] : shapes) {
    for (const cuda::TunedKernel* kernel : kernels_of(options)) {
      if (K % kernel->inputs_multiple != 0) {
        throw InputError(str("--shape ", N, "x", K, ": expected K to be a multiple of ",
                             kernel->inputs_multiple, " for ", kernel->name,
                             ". Name other kernels by --kernel."));
      }
      gemms.insert(tuned_gemm_of(*kernel, N, K, options.group_size));
    }
  }
  return {gemms.begin(), gemms.end()};
}

int run_tune(const TuneOptions& options) {
  const CudaDeviceInfo device = use_cuda_device(options.device);
  if (device.compute_major != 9 || device.compute_minor != 0) {
    throw UnsupportedError(
        str("halley tune: expected a GPU of compute capability 9.0, whose "
            "GEMMs have several plans, got ",
            device.name, " with ", device.compute_major, ".", device.compute_minor, "."));
  }
  const std::filesystem::path cache = cuda::tuning_cache_path(device.name, device.num_sms);
  if (options.output.empty() && cache.empty()) {
    throw InputError(
        "halley tune: expected XDG_CACHE_HOME or HOME, the folder of measured plans, "
        "got neither. Name a file by --output.");
  }
  const bool is_model = !options.model.model.empty() || !options.model.config_name.empty();
  const std::vector<cuda::TunedGemm> gemms = is_model ? model_gemms(options) : shape_gemms(options);
  const auto rows = cuda::tuned_rows();
  const auto show = [&](const cuda::TunedPlan& plan) {
    const cuda::TunedKernel* kernel = cuda::find_tuned_kernel(plan.gemm.kernel);
    std::fprintf(stderr, "%-13s %6lld x %6lld, %5lld rows: %9.2f us, %s\n",
                 plan.gemm.kernel.c_str(), static_cast<long long>(plan.gemm.N),
                 static_cast<long long>(plan.gemm.K), static_cast<long long>(plan.rows),
                 plan.microseconds, kernel->describe(plan, device).c_str());
  };
  const cuda::TuningTable table(
      device.name, device.num_sms,
      cuda::tune_gemms(
          device, gemms,
          options.rows.empty() ? std::vector<int64_t>(rows.begin(), rows.end()) : options.rows,
          show));
  if (!options.output.empty()) {
    write_file(options.output, table.to_json());
  } else {
    cuda::add_to_tuning_cache(cache, table);
  }
  std::fprintf(stderr, "%zu plans are in %s\n", table.plans().size(),
               options.output.empty() ? cache.c_str() : options.output.c_str());
  return kExitOk;
}

}  // namespace
#else
namespace {

int run_tune(const TuneOptions&) {
  throw UnsupportedError("halley tune: expected a program that was built with CUDA.");
}

}  // namespace
#endif

Run add_tune(CLI::App& parent) {
  CLI::App& app =
      *parent.add_subcommand("tune", "Measure the fastest plans for a model's GEMMs on this GPU");
  auto options = std::make_shared<TuneOptions>();
  add_source_options(app, options->model);
  app.add_option(
         "--shape", options->shapes,
         "NxK, output and input features; repeat. Without a model; default: the layers of Llama-3 "
         "8B and 70B")
      ->allow_extra_args(false);
  app.add_option("--kernel", options->kernels,
                 "Kernels without a model, separated by commas. Default: all")
      ->delimiter(',');
  app.add_option("--group-size", options->group_size, "Without a model: group size of the weights")
      ->check(CLI::IsMember({32, 64, 128}))
      ->capture_default_str();
  app.add_option("--rows", options->rows,
                 "M (rows of X), separated by commas; a plan holds for up to that M. Default: 16 "
                 "of them from 1 to 2048")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--gpu", options->device, "Index of the GPU")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  app.add_option("--output", options->output,
                 "A file for --tuned-plans. Default: the plans are added to those that models on "
                 "this GPU take by themselves");
  app.footer(
      R"(Candidates differ in tile shape, split-K, Stream-K, CTAs per SM and stages; the fastest
plan of each GEMM and M is kept, by the GPU's name and number of SMs, in XDG_CACHE_HOME/halley/tuned
or ~/.cache/halley/tuned. Models that are loaded later take them without an option; estimates decide
for GEMMs without a plan. Nothing is measured while a model runs. Weights come from memory, not from
the L2 cache.

Kernels: u4_s8 and u4_group_s8 (W4A8), u4_f16 and u4_bf16 (W4A16), u8_f16 and u8_bf16 (W8A16),
w4ax, nested_f16; up to 64 rows streamed_f16, streamed_bf16, streamed_fp8 and streamed_s8 (W8A8).

Examples:
  halley tune MODEL
  halley serve MODEL --tune
  halley tune --shape 28672x4096 --kernel u4_f16 --rows 1,16,64 --output tuned.json
  halley serve MODEL --tuned-plans tuned.json)");
  return [options] {
    find_model(options->model);
    return run_tune(*options);
  };
}

}  // namespace halley::cli
