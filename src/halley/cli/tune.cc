// `halley tune`: measures which tile plan is the fastest for GEMMs of 4-bit and 8-bit weights on
// this GPU.
#include "halley/cli/tune.h"

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/command.h"
#include "halley/cli/model_options.h"
#include "halley/models/all/load_model.h"
#ifdef HALLEY_HAS_CUDA
#include "halley/base/file.h"
#include "halley/cli/bench_gpu.h"
#include "halley/cli/bench_model.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"
#include "halley/cuda/mixed_gemm/tuned_plans.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/weights/weight_form.h"
#endif

namespace halley::cli {

struct TuneOptions {
  ModelOptions model;
  std::vector<std::string> shapes;
  std::vector<std::string> kinds = {"u4_s8",   "u4_group_s8", "u4_f16",
                                    "u4_bf16", "u8_f16",      "u8_bf16"};
  int64_t group_size = 128;
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048};
  int device = 0;
  std::string output;
};

#ifdef HALLEY_HAS_CUDA
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;
constexpr cuda::MixedKind kKinds[] = {cuda::MixedKind::kU4S8,  cuda::MixedKind::kU4GroupS8,
                                      cuda::MixedKind::kU4F16, cuda::MixedKind::kU4Bf16,
                                      cuda::MixedKind::kU8F16, cuda::MixedKind::kU8Bf16};

/// Layers, each once; M is not part of them.
class Layers {
 public:
  void add(const cuda::MixedShape& shape) {
    if (seen_.emplace(shape.kind, shape.N, shape.K, shape.group_size).second) {
      shapes_.push_back(shape);
    }
  }
  const std::vector<cuda::MixedShape>& shapes() const { return shapes_; }

 private:
  std::set<std::tuple<cuda::MixedKind, int64_t, int64_t, int>> seen_;
  std::vector<cuda::MixedShape> shapes_;
};

cuda::MixedShape layer_of(cuda::MixedKind kind, int64_t N, int64_t K, int64_t group_size) {
  // Per-channel scales have no groups.
  if (kind == cuda::MixedKind::kU4S8) group_size = K;
  return {.kind = kind, .N = N, .K = K, .group_size = cuda::stored_group_size(K, group_size)};
}

/// Adds the GEMMs of the model's 4-bit and 8-bit layers.
void add_model_layers(const TuneOptions& options, Layers* layers) {
  const ModelFiles files = open_model_files(options.model);
  const ModelPlan plan = plan_model(files.config, *files.source,
                                    load_options_of(options.model, files, {.device = "cuda"}));
  for (const ModelPart& part : plan.parts) {
    for (size_t i = 0; i < part.gpu_plans.size() && i < part.plans.size(); ++i) {
      const GpuLinearPlan& linear = part.gpu_plans[i];
      for (const cuda::MixedKind kind : kKinds) {
        if (linear.kernel != cuda::mixed_kernel_name(kind)) continue;
        layers->add(layer_of(kind, linear.out_features, linear.in_features,
                             part.plans[i].weight.group_size));
      }
    }
  }
  if (layers->shapes().empty()) {
    throw InputError(str(options.model.model,
                         ": expected a model with 4-bit or 8-bit weights that have tile plans, "
                         "got one without. See halley inspect MODEL --device cuda."));
  }
}

Layers layers_of(const TuneOptions& options) {
  Layers layers;
  if (!options.model.model.empty() || !options.model.config_name.empty()) {
    add_model_layers(options, &layers);
    return layers;
  }
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const std::string& shape : options.shapes) shapes.push_back(parse_shape(shape, "--shape"));
  if (shapes.empty()) shapes = cuda::llama_gemm_shapes();
  for (const auto& [N, K] : shapes) {
    for (const cuda::MixedKind kind : kKinds) {
      for (const std::string& name : options.kinds) {
        if (name == cuda::name_of(kind)) layers.add(layer_of(kind, N, K, options.group_size));
      }
    }
  }
  return layers;
}

int run_tune(const TuneOptions& options) {
  const CudaDeviceInfo device = use_cuda_device(options.device);
  if (device.compute_major != 9 || device.compute_minor != 0) {
    throw UnsupportedError(
        str("halley tune: expected a GPU of compute capability 9.0, whose "
            "GEMMs have tile plans, got ",
            device.name, " with ", device.compute_major, ".", device.compute_minor, "."));
  }
  const Layers layers = layers_of(options);
  const CudaStream stream;
  DeviceArena workspace(size_t{64} << 20, "the workspace of GEMMs");
  const CudaContext context{device, stream, workspace};
  std::vector<cuda::TunedMixedPlan> plans;
  for (const cuda::MixedShape& layer : layers.shapes()) {
    const auto show = [&](const cuda::TunedMixedPlan& plan) {
      const cuda::MixedShape shape = {.kind = plan.kind,
                                      .M = plan.rows,
                                      .N = plan.N,
                                      .K = plan.K,
                                      .group_size = plan.group_size};
      std::fprintf(
          stderr, "%-12s %6lld x %6lld, %5lld rows: %9.2f us, %s\n", name_of(plan.kind),
          static_cast<long long>(plan.N), static_cast<long long>(plan.K),
          static_cast<long long>(plan.rows), plan.microseconds,
          plan.is_narrow
              ? "narrow"
              : str(tiled_mixed_plan(shape, cuda::mixed_device(context), plan.tiling)).c_str());
    };
    for (cuda::TunedMixedPlan& plan : tune_mixed_gemm(context, layer, options.rows, show)) {
      plans.push_back(plan);
    }
  }
  const cuda::TunedMixedPlans tuned(device.name, device.num_sms, std::move(plans));
  if (options.output.empty()) {
    std::fputs(tuned.to_json().c_str(), stdout);
  } else {
    write_file(options.output, tuned.to_json());
  }
  return kExitOk;
}

}  // namespace

void use_tuned_plans(const std::string& file, bool is_on_gpu, int gpu_ordinal) {
  if (file.empty()) return;
  if (!is_on_gpu) {
    throw UnsupportedError(str("--tuned-plans: expected a model on a GPU, it runs on the CPU. ",
                               "Leave the option out."));
  }
  cuda::TunedMixedPlans plans =
      cuda::TunedMixedPlans::parse(read_text_file(file, kFileBytesMax), file);
  const CudaDeviceInfo device = use_cuda_device(gpu_ordinal);
  if (!plans.is_of({.num_sms = device.num_sms})) {
    throw InputError(str(file, ": expected plans of a GPU with ", device.num_sms,
                         " SMs, got those of ", quote(plans.device()), " with ", plans.num_sms(),
                         ". Run halley tune on this one."));
  }
  set_tuned_mixed_plans(std::move(plans));
}
#else
namespace {

int run_tune(const TuneOptions&) {
  throw UnsupportedError("halley tune: expected a program that was built with CUDA.");
}

}  // namespace

void use_tuned_plans(const std::string& file, bool, int) {
  if (file.empty()) return;
  throw UnsupportedError("--tuned-plans: expected a program that was built with CUDA.");
}
#endif

void add_tuned_plans_option(CLI::App& app, std::string& file) {
  app.add_option(
      "--tuned-plans", file,
      "On a GPU: measured tile plans of GEMMs, a file of halley tune. Default: the built-in "
      "plans of an H200 and of H100s, and a heuristic for shapes that they do not have");
}

Run add_tune(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand(
      "tune", "Measure the fastest tile plans for GEMMs of 4-bit and 8-bit weights on this GPU");
  auto options = std::make_shared<TuneOptions>();
  add_source_options(app, options->model);
  app.add_option(
         "--shape", options->shapes,
         "NxK, output and input features; repeat. Without a model; default: the layers of Llama-3 "
         "8B and 70B")
      ->allow_extra_args(false);
  app.add_option("--kind", options->kinds, "Kinds of GEMM without a model, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(options->kinds))
      ->capture_default_str();
  app.add_option("--group-size", options->group_size, "Without a model: group size of the weights")
      ->check(CLI::IsMember({32, 64, 128}))
      ->capture_default_str();
  app.add_option("--rows", options->rows,
                 "M (rows of X), separated by commas; a plan holds for up to that M")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--gpu", options->device, "Index of the GPU")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  app.add_option("--output", options->output, "The file; default: standard output");
  app.footer(R"(Candidates differ in tile shape, split-K, Stream-K and CTAs per SM;
the fastest plan of each layer and M is written. A model that is loaded with --tuned-plans uses
them; a heuristic plans layers and M that the file does not have. Nothing is measured while a model
runs. Weights come from memory, not from the L2 cache.

Examples:
  halley tune MODEL --output tuned.json
  halley tune --shape 28672x4096 --kind u4_f16 --rows 1,16,64 --output tuned.json
  halley serve MODEL --tuned-plans tuned.json)");
  return [options] { return run_tune(*options); };
}

}  // namespace halley::cli
