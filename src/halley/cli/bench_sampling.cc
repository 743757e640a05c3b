// `halley bench sampling`: tokens chosen from rows of logits on a GPU, and their floors.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "halley/cli/bench.h"
#include "halley/cli/bench_gpu.h"
#include "halley/cli/bench_model.h"
#include "halley/sampling/cuda/time_sampling.h"

namespace halley::cli {
namespace {

OrderedJson json_of(const cuda::SamplingTiming& timing) {
  return {{"name", timing.shape.name},
          {"num_rows", timing.shape.num_rows},
          {"vocab_size", timing.shape.vocab_size},
          {"median_us", timing.median_us},
          {"least_us", timing.least_us},
          {"most_us", timing.most_us},
          {"floor_us", timing.floor_us},
          {"roofline_share", timing.floor_us / timing.median_us}};
}

void print_table(const OrderedJson& rows) {
  std::printf("%-36s %10s %10s %10s\n", "rows of logits", "median us", "least us", "floor us");
  for (const OrderedJson& row : rows) {
    const auto number = [&](const char* name) { return row.at(name).get<double>(); };
    std::printf("%-36s %10.1f %10.1f %10.1f\n", row.at("name").get<std::string>().c_str(),
                number("median_us"), number("least_us"), number("floor_us"));
  }
}

int run_sampling(const GpuBenchOptions& options) {
  const DeviceRates rates = gpu_rates(options);
  const CudaDeviceInfo device = use_cuda_device(options.device);
  OrderedJson rows = OrderedJson::array();
  for (const cuda::SamplingTiming& timing :
       cuda::time_sampling(device, rates.bytes, cuda::sampling_timing_cases())) {
    rows.push_back(json_of(timing));
  }
  OrderedJson json = gpu_facts(device, rates);
  json["sampling"] = std::move(rows);
  write_json(json, options.output_json, options.is_json);
  if (!options.is_json) print_table(json.at("sampling"));
  return kExitOk;
}

}  // namespace

Run add_bench_sampling(CLI::App& bench) {
  CLI::App& app = *bench.add_subcommand("sampling", "Choosing tokens from logits on a GPU");
  auto options = std::make_shared<GpuBenchOptions>();
  add_gpu_options(app, *options);
  app.footer(
      R"(Rows of Llama-3's vocabulary: greedy, with log-probabilities, penalties, temperature,
top-k, top-p, and all of them. Launches in a graph; the median of several. The floor is one read of
the logits.

Example:
  halley bench sampling --output-json result.json)");
  return [options] { return run_sampling(*options); };
}

}  // namespace halley::cli
