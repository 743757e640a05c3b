// `halley bench gemm`: the products of linear layers on a GPU beside their floors.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/str.h"
#include "halley/cli/bench.h"
#include "halley/cli/bench_gpu.h"
#include "halley/cli/bench_model.h"
#include "halley/cli/svg_plot.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"

namespace halley::cli {
namespace {

struct GemmOptions {
  GpuBenchOptions gpu;
  ProductOptions products = {.shapes = {}, .rows = {1, 8, 16, 32, 64, 128, 256, 2048}};
  std::string svg_file;
};

double weights_of(const cuda::GemmTime& time) {
  return static_cast<double>(time.N) * static_cast<double>(time.K);
}

OrderedJson json_of(const cuda::GemmTime& time, double weight_bytes) {
  const double operations = 2 * static_cast<double>(time.M) * weights_of(time);
  return {{"problem", time.problem},
          {"kernel", time.kernel},
          {"is_chosen", time.is_chosen},
          {"refused", time.refusals},
          {"N", time.N},
          {"K", time.K},
          {"M", time.M},
          {"us", time.microseconds},
          {"floor_us", time.floor_microseconds},
          {"roofline_share", time.floor_microseconds / time.microseconds},
          {"tera_operations_per_s", operations / time.microseconds * 1e-6},
          {"weight_tera_bytes_per_s", weight_bytes / time.microseconds * 1e-6}};
}

/// Products of 4-bit weights in the form of the others.
OrderedJson json_of(const cuda::MixedGemmTime& time) {
  cuda::GemmTime same;
  same.problem = time.problem;
  same.kernel = time.plan;
  same.is_chosen = time.is_chosen;
  same.N = time.N;
  same.K = time.K;
  same.M = time.M;
  same.microseconds = time.microseconds;
  same.floor_microseconds = time.floor_microseconds;
  return json_of(same, time.weight_bytes);
}

cuda::TimeMixedOptions mixed_options(const cuda::TimeGemmOptions& timing) {
  return {.shapes = timing.shapes, .rows = timing.rows, .has_f16 = false, .rates = timing.rates};
}

/// Shares of the roofline of 4-bit weights and of FP8, the geometric mean of all shapes.
std::string render_shares(const OrderedJson& rows) {
  Plot plot;
  plot.title = "Products of linear layers on a GPU";
  plot.x_label = "rows of X";
  plot.y_label = "share of the roofline in percent, geometric mean of all layers";
  for (const char* problem : {"u4_s8", "fp8_tensor"}) {
    std::map<int64_t, std::pair<double, int>> logs;  // of M: their sum and number
    for (const OrderedJson& row : rows) {
      if (row.at("problem").get<std::string>() != problem || !row.at("is_chosen").get<bool>()) {
        continue;
      }
      auto& [sum, count] = logs[row.at("M").get<int64_t>()];
      sum += std::log(row.at("roofline_share").get<double>());
      ++count;
    }
    PlotLine line = {problem, {}};
    for (const auto& [M, log] : logs) {
      line.points.emplace_back(static_cast<double>(M), 100 * std::exp(log.first / log.second));
    }
    if (!line.points.empty()) plot.lines.push_back(std::move(line));
  }
  return render_svg(plot);
}

void print_table(const OrderedJson& rows) {
  std::printf("%-12s %-23s %7s %7s %6s %10s %10s %9s %8s\n", "problem", "kernel", "N", "K", "M",
              "us", "floor us", "roofline", "TOP/s");
  for (const OrderedJson& row : rows) {
    const auto number = [&](const char* name) { return row.at(name).get<double>(); };
    const auto count = [&](const char* name) {
      return static_cast<long long>(row.at(name).get<int64_t>());
    };
    std::printf("%-12s %-23s %7lld %7lld %6lld %10.2f %10.2f %7.1f %% %8.1f\n",
                row.at("problem").get<std::string>().c_str(),
                str(row.at("is_chosen").get<bool>() ? "" : "-", row.at("kernel").get<std::string>())
                    .c_str(),
                count("N"), count("K"), count("M"), number("us"), number("floor_us"),
                100 * number("roofline_share"), number("tera_operations_per_s"));
  }
}

// cuBLASLt's, and sums of four bytes that are scaled behind the product.
size_t workspace_bytes(const cuda::TimeGemmOptions& timing) {
  constexpr int64_t kFixedBytes = int64_t{128} << 20, kPadding = 64;
  int64_t outputs_max = 0;
  for (const auto& shape : timing.shapes.empty() ? cuda::llama_gemm_shapes() : timing.shapes) {
    outputs_max = std::max(outputs_max, shape.first);
  }
  const int64_t rows_max = *std::max_element(timing.rows.begin(), timing.rows.end());
  return static_cast<size_t>(kFixedBytes + 4 * (rows_max + kPadding) * (outputs_max + kPadding));
}

int run_gemm(const GemmOptions& options) {
  cuda::TimeGemmOptions timing = {.shapes = {}, .rows = options.products.rows};
  for (const std::string& shape : options.products.shapes) {
    timing.shapes.push_back(parse_shape(shape, "--shape"));
  }
  const DeviceRates rates = gpu_rates(options.gpu);
  timing.rates = {.bytes_per_second = rates.bytes,
                  .f16_per_second = rates.f16,
                  .e4m3_per_second = rates.e4m3,
                  .s8_per_second = rates.s8};
  const CudaDeviceInfo device = use_cuda_device(options.gpu.device);
  const CudaStream stream;
  DeviceArena workspace(workspace_bytes(timing), "the workspace of products");
  const CudaContext context{device, stream, workspace};
  cuda::CublasLtGemm lt(context, {});
  OrderedJson rows = OrderedJson::array();
  for (const cuda::GemmTime& time : cuda::time_gemm(context, lt, timing)) {
    const double bytes = time.problem == "f16" ? 2 : 1;  // of a weight; the others have 8 bits
    rows.push_back(json_of(time, bytes * weights_of(time)));
  }
  if (device.compute_major == 9 && device.compute_minor == 0) {
    for (const cuda::MixedGemmTime& time :
         cuda::time_mixed_gemm(context, lt, mixed_options(timing))) {
      rows.push_back(json_of(time));
    }
  }
  if (!options.svg_file.empty()) write_file(options.svg_file, render_shares(rows));
  OrderedJson json = gpu_facts(device, rates);
  json["products"] = std::move(rows);
  write_json(json, options.gpu.output_json, options.gpu.is_json);
  if (!options.gpu.is_json) print_table(json.at("products"));
  return kExitOk;
}

}  // namespace

Run add_bench_gemm(CLI::App& bench) {
  CLI::App& app = *bench.add_subcommand("gemm", "Products of linear layers on a GPU");
  auto options = std::make_shared<GemmOptions>();
  add_product_options(app, options->products);
  app.add_option("--svg", options->svg_file,
                 "Plot the shares of the roofline of 4-bit and FP8 weights to a file");
  add_gpu_options(app, options->gpu);
  app.footer(
      R"(Weights come from memory, not from the L2 cache. A graph runs at least 20 products;
the best of three graphs. A kernel behind a minus sign is not the one that a layer runs for these
rows. Weights of 4 bits (u4_) are timed on GPUs of compute capability 9.0.

Examples:
  halley bench gemm
  halley bench gemm --shape 28672x4096 --rows 1,64,8192 --output-json result.json)");
  return [options] { return run_gemm(*options); };
}

}  // namespace halley::cli
