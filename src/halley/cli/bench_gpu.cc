#include "halley/cli/bench_gpu.h"

#include <charconv>
#include <cstdio>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/bench_model.h"

namespace halley::cli {

void add_gemm_shape_options(CLI::App& app, GemmShapeOptions& options) {
  app.add_option(
         "--shape", options.shapes,
         "NxK, output and input features; repeat. Default: the layers of Llama-3 8B and 70B")
      ->allow_extra_args(false);
  app.add_option("--rows", options.rows, "M (rows of X), separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
}

void add_gpu_options(CLI::App& app, GpuBenchOptions& options) {
  app.add_option("--device", options.device, "Index of the GPU")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  add_rate_options(app, options.rates);
  add_output_options(app, options.is_json, options.output_json);
}

void add_output_options(CLI::App& app, bool& is_json, std::string& output_json) {
  app.add_flag("--json", is_json, "One JSON object instead of a table");
  app.add_option("--output-json", output_json, "Also write the JSON object to a file");
}

DeviceRates gpu_rates(const GpuBenchOptions& options) {
  return with_rates(options.rates, kH200Rates);
}

OrderedJson gpu_facts(const CudaDeviceInfo& device) {
  const CudaVersions versions = cuda_versions();
  return {{"device", device.name},
          {"num_multiprocessors", device.num_sms},
          {"device_bytes", device.total_bytes},
          {"l2_bytes", device.l2_bytes},
          {"cuda_driver", versions.driver},
          {"cuda_runtime", versions.runtime},
          {"halley", HALLEY_VERSION},
          {"date", date_of_today()}};
}

OrderedJson gpu_facts(const CudaDeviceInfo& device, const DeviceRates& rates) {
  OrderedJson json = gpu_facts(device);
  json["rates"] = rates_json(rates, kRatesOfDevice);
  return json;
}

std::pair<int64_t, int64_t> parse_shape(std::string_view text, const std::string& option) {
  constexpr int64_t kSizeMax = int64_t{1} << 24;
  int64_t first = 0, second = 0;
  const char* const end = text.data() + text.size();
  const auto [middle, error] = std::from_chars(text.data(), end, first);
  if (error == std::errc() && middle != end && *middle == 'x') {
    const auto [behind, second_error] = std::from_chars(middle + 1, end, second);
    const bool is_whole = second_error == std::errc() && behind == end;
    if (is_whole && first >= 1 && second >= 1 && first <= kSizeMax && second <= kSizeMax) {
      return {first, second};
    }
  }
  throw InputError(str(option, ": expected two sizes from 1 to ", kSizeMax, " as 4096x14336, got ",
                       quote(text), "."));
}

}  // namespace halley::cli
