// `halley bench experts`: the experts of a layer on a GPU and their floors.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/cli/bench.h"
#include "halley/cli/bench_gpu.h"
#include "halley/cli/bench_model.h"
#include "halley/cuda/experts/time_experts.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"

namespace halley::cli {
namespace {

/// Holds the expert slots of the largest default batch of either shape, with gate and up outputs.
constexpr size_t kWorkspaceBytes = size_t{1} << 30;

struct ExpertsOptions {
  GpuBenchOptions gpu;
  std::vector<int64_t> rows = cuda::TimeExpertsOptions().rows;
  std::vector<std::string> weights;
};

std::vector<std::string> weight_names() {
  std::vector<std::string> names;
  for (const cuda::GroupedKind weights : cuda::timed_experts_weights()) {
    names.emplace_back(name_of(weights));
  }
  return names;
}

/// All, or those that are named.
std::vector<cuda::GroupedKind> weights_of(const std::vector<std::string>& names) {
  std::vector<cuda::GroupedKind> all = cuda::timed_experts_weights();
  std::erase_if(all, [&](cuda::GroupedKind weights) {
    return !names.empty() && std::find(names.begin(), names.end(), name_of(weights)) == names.end();
  });
  return all;
}

OrderedJson json_of(const cuda::ExpertsTime& time) {
  return {{"name", time.shape},
          {"weights", name_of(time.weights)},
          {"M", time.M},
          {"num_touched", time.num_touched},
          {"us", time.microseconds},
          {"routing_us", time.routing_microseconds},
          {"sum_us", time.sum_microseconds},
          {"floor_us", time.floor_microseconds},
          {"roofline_share", time.floor_microseconds / time.microseconds}};
}

void print_table(const std::vector<cuda::ExpertsTime>& times) {
  std::printf("%-16s %-12s %6s %8s %10s %10s %10s %10s %9s\n", "one layer", "weights", "M",
              "experts", "us", "routing us", "sum us", "floor us", "roofline");
  for (const cuda::ExpertsTime& time : times) {
    std::printf("%-16s %-12s %6lld %8.1f %10.2f %10.2f %10.2f %10.2f %7.1f %%\n",
                time.shape.c_str(), name_of(time.weights), static_cast<long long>(time.M),
                time.num_touched, time.microseconds, time.routing_microseconds,
                time.sum_microseconds, time.floor_microseconds,
                100 * time.floor_microseconds / time.microseconds);
  }
}

int run_experts(const ExpertsOptions& options) {
  const DeviceRates rates = gpu_rates(options.gpu);
  const CudaDeviceInfo device = use_cuda_device(options.gpu.device);
  const CudaStream stream;
  DeviceArena workspace(kWorkspaceBytes, "the workspace of experts");
  const CudaContext context{device, stream, workspace};
  cuda::CublasLtGemm lt(context, {});
  const std::vector<cuda::ExpertsTime> times =
      cuda::time_experts(context, lt,
                         {.weights = weights_of(options.weights),
                          .rows = options.rows,
                          .rates = {.bytes_per_second = rates.bytes,
                                    .f16_per_second = rates.f16,
                                    .e4m3_per_second = rates.e4m3,
                                    .s8_per_second = rates.s8}});
  OrderedJson json = gpu_facts(device, rates);
  json["experts"] = OrderedJson::array();
  for (const cuda::ExpertsTime& time : times) json["experts"].push_back(json_of(time));
  write_json(json, options.gpu.output_json, options.gpu.is_json);
  if (!options.gpu.is_json) print_table(times);
  return kExitOk;
}

}  // namespace

Run add_bench_experts(CLI::App& bench) {
  CLI::App& app = *bench.add_subcommand("experts", "Time the experts of a layer on a GPU");
  auto options = std::make_shared<ExpertsOptions>();
  app.add_option("--rows", options->rows, "M (rows of X), separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{2048}))
      ->capture_default_str();
  app.add_option("--weights", options->weights,
                 "What weights are, separated by commas. Default: all")
      ->delimiter(',')
      ->check(CLI::IsMember(weight_names()));
  add_gpu_options(app, options->gpu);
  app.footer(
      R"(One layer of Mixtral 8x7B and of Qwen3-30B-A3B with random weights and a random
routing that changes from launch to launch; activations in f16. "experts" is the average number of
experts with rows; the time includes routing, the quantization of inputs and the weighted sum. A
CUDA graph launches the layers; the median of three graphs counts.

Examples:
  halley bench experts
  halley bench experts --rows 1,64 --weights f16,u4_f16 --json)");
  return [options] { return run_experts(*options); };
}

}  // namespace halley::cli
