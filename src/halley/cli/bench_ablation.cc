// `halley bench ablation`: how much each part of the W4Ax GEMM gains on a GPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/str.h"
#include "halley/cli/bench.h"
#include "halley/cli/bench_gpu.h"
#include "halley/cli/bench_model.h"
#include "halley/cuda/ablation/ablation.h"
#include "halley/cuda/ablation/time_ablation.h"
#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cli {
namespace {

struct AblationOptions {
  GpuBenchOptions gpu;
  GemmShapeOptions gemms = {.shapes = {}, .rows = {16, 64, 256, 2048}};
};

OrderedJson json_of(const cuda::AblationTime& time) {
  return {{"variant", time.variant},
          {"plan", time.plan},
          {"N", time.N},
          {"K", time.K},
          {"M", time.M},
          {"us", time.microseconds},
          {"over_full", time.ratio},
          {"floor_us", time.floor_microseconds}};
}

/// The geometric mean, for each variant, of its time over the time of the full GEMM.
OrderedJson means_of(const std::vector<cuda::AblationTime>& times) {
  OrderedJson means = OrderedJson::object();
  for (const cuda::AblationVariant& variant : cuda::ablation_variants()) {
    double sum = 0;
    int count = 0;
    for (const cuda::AblationTime& time : times) {
      if (time.variant != variant.name) continue;
      sum += std::log(time.ratio);
      ++count;
    }
    if (count > 0) means[variant.name] = std::exp(sum / count);
  }
  return means;
}

/// Prints a line for each shape and M, and a column for each variant whose name begins with
/// `prefix`.
void print_table(const std::vector<cuda::AblationTime>& times, const OrderedJson& means,
                 const std::string& prefix) {
  const auto has_column = [&](const std::string& name) { return name.starts_with(prefix); };
  const auto print_ratio = [&](const std::string& name, double ratio) {
    if (has_column(name)) std::printf("  %*.2f", static_cast<int>(name.size()), ratio);
  };
  std::printf("\n%7s %7s %6s %10s", "N", "K", "M", "full us");
  for (const cuda::AblationVariant& variant : cuda::ablation_variants()) {
    if (has_column(variant.name)) std::printf("  %s", variant.name);
  }
  for (const cuda::AblationTime& time : times) {
    if (time.variant == cuda::ablation_variants()[0].name) {
      std::printf("\n%7lld %7lld %6lld %10.2f", static_cast<long long>(time.N),
                  static_cast<long long>(time.K), static_cast<long long>(time.M),
                  time.microseconds);
    } else {
      print_ratio(time.variant, time.ratio);
    }
  }
  std::printf("\n%-33s", "geometric mean");
  for (const auto& [name, mean] : means.items()) print_ratio(name, mean.get<double>());
  std::printf("\n");
}

int run_ablation(const AblationOptions& options) {
  const DeviceRates rates = gpu_rates(options.gpu);
  cuda::TimeAblationOptions timing = {
      .shapes = {},
      .rows = options.gemms.rows,
      .rates = {.bytes_per_second = rates.bytes, .s8_per_second = rates.s8}};
  for (const std::string& shape : options.gemms.shapes) {
    timing.shapes.push_back(parse_shape(shape, "--shape"));
  }
  const CudaDeviceInfo device = use_cuda_device(options.gpu.device);
  const CudaStream stream;
  DeviceArena workspace(cuda::tile_workspace_bytes_max(cuda::w4ax_family(), device.num_sms),
                        "the workspace of GEMMs");
  const CudaContext context{device, stream, workspace};
  const std::vector<cuda::AblationTime> times = cuda::time_ablation(context, timing);
  OrderedJson json = gpu_facts(device, rates);
  OrderedJson rows = OrderedJson::array();
  for (const cuda::AblationTime& time : times) rows.push_back(json_of(time));
  json["over_full"] = means_of(times);
  json["ablation"] = std::move(rows);
  write_json(json, options.gpu.output_json, options.gpu.is_json);
  if (!options.gpu.is_json) {
    std::printf("Time / time of the full GEMM.\n");
    for (const char* prefix : {"no_", "with_"}) print_table(times, json.at("over_full"), prefix);
  }
  return kExitOk;
}

}  // namespace

Run add_bench_ablation(CLI::App& bench) {
  CLI::App& app = *bench.add_subcommand("ablation", "Time parts of the W4Ax GEMM on a GPU");
  auto options = std::make_shared<AblationOptions>();
  add_gemm_shape_options(app, options->gemms);
  add_gpu_options(app, options->gpu);
  app.footer(
      R"(The GEMM of 4-bit weights with activations of 4 and 8 bits, without one part of its kernel
each (no_), then without all of them and with one more in each column (with_):
  stages        TMA loads of the next k-blocks overlap with the MMAs
  decode_ahead  conversion of the next weights and scaling of accumulators overlap with the MMAs
  pipeline      both
  interleave    weights are stored in the order in which threads read them, not by rows
  conversion    a mask converts a 4-bit weight to int8, without sign extension
  sharing       CTAs share an output tile along K (Stream-K, or split-K in a cluster)
After with_conversion, decode_ahead is next (no_sharing is that), and sharing last (full). Needs
compute capability 9.0.

Examples:
  halley bench ablation
  halley bench ablation --shape 28672x4096 --rows 16,256 --output-json result.json)");
  return [options] { return run_ablation(*options); };
}

}  // namespace halley::cli
