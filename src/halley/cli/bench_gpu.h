// Options and output that all benchmarks of single GPU kernels share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "halley/cuda/runtime/cuda_device.h"
#include "halley/json/json.h"
#include "halley/models/base/step_cost.h"

namespace halley::cli {

struct GpuBenchOptions {
  int device = 0;
  DeviceRates rates;
  bool is_json = false;
  std::string output_json;
};

/// The shapes of the GEMMs to time.
struct GemmShapeOptions {
  std::vector<std::string> shapes;  // for parse_shape(); empty: all of Llama-3 8B and 70B
  std::vector<int64_t> rows;        // M: the defaults, or those of --rows
};

void add_gemm_shape_options(CLI::App& app, GemmShapeOptions& options);
void add_gpu_options(CLI::App& app, GpuBenchOptions& options);
/// --json and --output-json.
void add_output_options(CLI::App& app, bool& is_json, std::string& output_json);

/// The rates that the options give; an H200's for those that they do not.
DeviceRates gpu_rates(const GpuBenchOptions& options);

/// Device, versions of driver, runtime and program, and the date.
OrderedJson gpu_facts(const CudaDeviceInfo& device);
/// The same and the rates that give the floors.
OrderedJson gpu_facts(const CudaDeviceInfo& device, const DeviceRates& rates);

/// "4096x14336", two integers from 1 to 2^24. Throws InputError that names the option.
std::pair<int64_t, int64_t> parse_shape(std::string_view text, const std::string& option);

}  // namespace halley::cli
