// What measurements of single kernels on a GPU share.
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

/// Products of linear layers.
struct ProductOptions {
  std::vector<std::string> shapes;  // for parse_shape(); none are all of Llama-3 8B and 70B
  std::vector<int64_t> rows;        // the defaults, then what is asked for
};

void add_product_options(CLI::App& app, ProductOptions& options);
void add_gpu_options(CLI::App& app, GpuBenchOptions& options);

/// The declared rates, an H200's where nothing is declared.
DeviceRates gpu_rates(const GpuBenchOptions& options);

/// Device, versions of driver, runtime and program, the date, and the rates that floors count with.
OrderedJson gpu_facts(const CudaDeviceInfo& device, const DeviceRates& rates);

/// "4096x14336", two numbers from 1 to 2^24. Throws InputError that names the option.
std::pair<int64_t, int64_t> parse_shape(std::string_view text, const std::string& option);

}  // namespace halley::cli
