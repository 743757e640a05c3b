// `halley bench gemm`: times the GEMMs of linear layers on a GPU and compares them with their
// floors.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/cli/bench.h"
#include "halley/cli/bench_gpu.h"
#include "halley/cli/bench_model.h"
#include "halley/cli/gemm_problems.h"
#include "halley/cli/gemm_report.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/gemv/time_gemv.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

constexpr size_t kResultBytesMax = size_t{64} << 20;

struct GemmOptions {
  GpuBenchOptions gpu;
  GemmShapeOptions gemms = {.shapes = {}, .rows = cuda::TimeGemmOptions().rows};
  std::vector<std::string> problems;  // none: all that the GPU has kernels for
  std::string from_file, svg_file;
  bool has_all_plans = false;
};

// Holds cuBLASLt's workspace, and int32 outputs that are scaled after the GEMM or the partials of
// Stream-K.
size_t workspace_bytes(const cuda::TimeGemmOptions& timing) {
  constexpr int64_t kFixedBytes = int64_t{128} << 20, kPadding = 64;
  int64_t outputs_max = 0;
  for (const auto& shape : cuda::timed_shapes(timing)) {
    outputs_max = std::max(outputs_max, shape.first);
  }
  return static_cast<size_t>(kFixedBytes + 4 * (cuda::timed_rows_max(timing) + kPadding) *
                                               (outputs_max + kPadding));
}

std::vector<const GemmBenchProblem*> problems_of(const GemmOptions& options,
                                                 const CudaDeviceInfo& device) {
  const bool is_hopper = device.compute_major == 9 && device.compute_minor == 0;
  std::vector<const GemmBenchProblem*> problems;
  for (const GemmBenchProblem& problem : gemm_bench_problems()) {
    const bool is_named = std::find(options.problems.begin(), options.problems.end(),
                                    problem.name) != options.problems.end();
    const bool has_kernels = is_hopper || !problem.needs_hopper;
    if (is_named && !has_kernels) {
      throw UnsupportedError(str("--problems: ", problem.name, " expects a GPU of compute ",
                                 "capability 9.0, got ", device.name, " with ",
                                 device.compute_major, ".", device.compute_minor,
                                 ". Leave it out."));
    }
    if (is_named || (options.problems.empty() && has_kernels)) problems.push_back(&problem);
  }
  return problems;
}

cuda::TimeGemmOptions timing_of(const GemmOptions& options, const DeviceRates& rates) {
  cuda::TimeGemmOptions timing = {.shapes = {},
                                  .rows = options.gemms.rows,
                                  .rates = {.bytes_per_second = rates.bytes,
                                            .f16_per_second = rates.f16,
                                            .e4m3_per_second = rates.e4m3,
                                            .s8_per_second = rates.s8},
                                  .has_all_plans = options.has_all_plans};
  for (const std::string& shape : options.gemms.shapes) {
    timing.shapes.push_back(parse_shape(shape, "--shape"));
  }
  return timing;
}

std::vector<cuda::GemmTime> measure(const GemmOptions& options, const CudaDeviceInfo& device,
                                    const cuda::TimeGemmOptions& timing) {
  const CudaStream stream;
  DeviceArena workspace(workspace_bytes(timing), "the workspace of GEMMs");
  const CudaContext context{device, stream, workspace};
  cuda::CublasLtGemm lt(context, {});
  std::vector<cuda::GemmTime> times;
  for (const GemmBenchProblem* problem : problems_of(options, device)) {
    try {
      for (cuda::GemmTime& time : problem->time(context, lt, problem->name, timing)) {
        times.push_back(std::move(time));
      }
    } catch (const UnsupportedError& error) {
      // Its kernels do not support one of the shapes. It is left out: the user did not name it.
      if (!options.problems.empty()) throw;
      std::fprintf(stderr, "left out: %s\n", error.what());
    }
  }
  if (times.empty()) {
    throw InputError(str("--rows: expected M up to ", cuda::kTimedGemvRowsMax,
                         ", the largest of the selected problems, got ", timing.rows,
                         ". Ask for fewer rows or other problems."));
  }
  return times;
}

/// Times the problems and gives the JSON without its summary.
OrderedJson measured_json(const GemmOptions& options) {
  const DeviceRates rates = gpu_rates(options.gpu);
  const cuda::TimeGemmOptions timing =
      timing_of(options, rates);  // rejects bad options before the GPU is used
  const auto start = std::chrono::steady_clock::now();
  const CudaDeviceInfo device = use_cuda_device(options.gpu.device);
  const std::vector<cuda::GemmTime> times = measure(options, device, timing);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  OrderedJson json = gpu_facts(device, rates);
  json["seconds"] = seconds.count();
  json["products"] = OrderedJson::array();
  for (const cuda::GemmTime& time : times) json["products"].push_back(json_of(time));
  return json;
}

/// Reads the JSON of an earlier run; tools/bench_gpu.py keeps it as the member "result".
OrderedJson saved_json(const std::string& file) {
  OrderedJson json = parse_ordered_json(read_text_file(file, kResultBytesMax), file);
  return json.is_object() && json.contains("result") ? json.at("result") : json;
}

int run_gemm(const GemmOptions& options) {
  const std::string& from = options.from_file;
  OrderedJson json = from.empty() ? measured_json(options) : saved_json(from);
  const std::vector<cuda::GemmTime> times = gemms_of(json, from);
  const GemmSummary summary = summarize(times);
  if (!options.svg_file.empty()) write_file(options.svg_file, render_shares(summary));
  json["summary"] = json_of(summary);
  write_json(json, options.gpu.output_json, options.gpu.is_json);
  if (!options.gpu.is_json) {
    print_gemms(times);
    print_summary(summary);
  }
  return kExitOk;
}

std::string footer() {
  std::string text = R"(Problems (--problems u4_s8,w4ax times some):
)";
  for (const GemmBenchProblem& problem : gemm_bench_problems()) {
    text += str("  ", problem.name, std::string(13 - problem.name.size(), ' '), problem.what, "\n");
  }
  return text +
         R"(Weights come from memory, not from the L2 cache. A CUDA graph runs at least 20 GEMMs;
the median of three graphs counts. "us" is without programmatic dependent launch (PDL), "PDL us"
with it, as models launch the kernels. A kernel after a minus sign is not the one that a layer runs
for this M. "Small M" is at most 8. The summary has geometric means over the shapes, and the best
of the cuBLASLt GEMMs whose activations lose no more precision. All but the first four problems
need compute capability 9.0.

Examples:
  halley bench gemm --svg shares.svg
  halley bench gemm --shape 28672x4096 --rows 1,64,8192 --output-json result.json
  halley bench gemm --from result.json --svg shares.svg
  halley bench gemm --problems u4_s8,u4_group_s8,fp8_tensor --rows 1,16
  halley bench gemm --problems w4ax --all-plans)";
}

}  // namespace

Run add_bench_gemm(CLI::App& bench) {
  CLI::App& app = *bench.add_subcommand("gemm", "Time the GEMMs of linear layers on a GPU");
  auto options = std::make_shared<GemmOptions>();
  add_gemm_shape_options(app, options->gemms);
  std::vector<std::string> names;
  for (const GemmBenchProblem& problem : gemm_bench_problems()) names.emplace_back(problem.name);
  app.add_option("--problems", options->problems,
                 "Problems to time, separated by commas. Default: all that the GPU has kernels for")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_flag("--all-plans", options->has_all_plans,
               "Time all plans of kernels with several, not only the one that a layer runs");
  app.add_option("--from", options->from_file,
                 "Show what an earlier --json or --output-json has, from a file, instead of timing")
      ->excludes("--shape", "--rows", "--problems", "--all-plans");
  app.add_option("--svg", options->svg_file, "Plot the shares of the roofline to a file");
  add_gpu_options(app, options->gpu);
  app.footer(footer());
  return [options] { return run_gemm(*options); };
}

}  // namespace halley::cli
