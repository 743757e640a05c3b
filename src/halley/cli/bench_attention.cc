// `halley bench attention`: attention over the paged KV cache on a GPU versus its floors.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/bench.h"
#include "halley/cli/bench_gpu.h"
#include "halley/cli/bench_model.h"
#include "halley/cuda/attention/time_attention.h"

namespace halley::cli {
namespace {

struct AttentionOptions {
  GpuBenchOptions gpu;
  std::vector<std::string> decodes, prefills;  // "64x8192": sequences, tokens of each
  std::vector<std::string> kv_dtypes = {"f16", "fp8", "int8", "int4"};
  int64_t num_heads = 32, num_kv_heads = 8, head_dim = 128;
};

void add_cases(const AttentionOptions& options, const std::vector<std::string>& shapes,
               bool is_prefill, std::vector<AttentionTimingCase>& cases) {
  for (const std::string& shape : shapes) {
    const auto [num_sequences, num_tokens] =
        parse_shape(shape, is_prefill ? "--prefill" : "--decode");
    for (const std::string& name : options.kv_dtypes) {
      const auto dtype = kv_dtype_from_name(name);
      if (!dtype) throw InputError(str("--kv-dtype: expected a type of the cache, got ", name));
      cases.push_back({.name = str(is_prefill ? "prefill " : "decode ", shape, " ", name),
                       .dtype = *dtype,
                       .num_sequences = num_sequences,
                       .num_tokens = num_tokens,
                       .num_new_tokens = is_prefill ? num_tokens : 1,
                       .num_heads = options.num_heads,
                       .num_kv_heads = options.num_kv_heads,
                       .head_dim = options.head_dim});
    }
  }
}

OrderedJson json_of(const AttentionTiming& timing) {
  const AttentionTimingCase& shape = timing.shape;
  return {{"name", shape.name},
          {"kv_dtype", name_of(shape.dtype)},
          {"num_sequences", shape.num_sequences},
          {"num_tokens", shape.num_tokens},
          {"num_new_tokens", shape.num_new_tokens},
          {"num_heads", shape.num_heads},
          {"num_kv_heads", shape.num_kv_heads},
          {"head_dim", shape.head_dim},
          {"median_us", timing.median_us},
          {"least_us", timing.least_us},
          {"most_us", timing.most_us},
          {"floor_us", timing.floor_us},
          {"roofline_share", timing.floor_us / timing.median_us},
          {"tera_bytes_per_s", static_cast<double>(timing.num_kv_bytes) / timing.median_us * 1e-6},
          {"tera_operations_per_s", timing.tera_flops_per_second()}};
}

void print_table(const OrderedJson& rows) {
  std::printf("%-28s %10s %10s %10s %10s %8s %8s\n", "one layer", "median us", "least us",
              "floor us", "roofline", "TB/s", "TOP/s");
  for (const OrderedJson& row : rows) {
    const auto number = [&](const char* name) { return row.at(name).get<double>(); };
    std::printf("%-28s %10.1f %10.1f %10.1f %8.1f %% %8.2f %8.1f\n",
                row.at("name").get<std::string>().c_str(), number("median_us"), number("least_us"),
                number("floor_us"), 100 * number("roofline_share"), number("tera_bytes_per_s"),
                number("tera_operations_per_s"));
  }
}

int run_attention(const AttentionOptions& options) {
  std::vector<AttentionTimingCase> cases;
  add_cases(options, options.decodes, false, cases);
  add_cases(options, options.prefills, true, cases);
  const DeviceRates rates = gpu_rates(options.gpu);
  const CudaDeviceInfo device = use_cuda_device(options.gpu.device);
  OrderedJson rows = OrderedJson::array();
  for (const AttentionTiming& timing : time_attention(device, rates.bytes, cases, rates.f16)) {
    rows.push_back(json_of(timing));
  }
  OrderedJson json = gpu_facts(device, rates);
  json["attention"] = std::move(rows);
  write_json(json, options.gpu.output_json, options.gpu.is_json);
  if (!options.gpu.is_json) print_table(json.at("attention"));
  return kExitOk;
}

}  // namespace

Run add_bench_attention(CLI::App& bench) {
  CLI::App& app =
      *bench.add_subcommand("attention", "Time attention over the paged KV cache on a GPU");
  auto options = std::make_shared<AttentionOptions>();
  // The heads of Llama-3, and typical batches of servers.
  options->decodes = {"32x4096", "64x8192", "128x2048", "1024x1024", "1x32768", "1x1024"};
  options->prefills = {"1x8192", "4x2048"};
  const auto add_shapes = [&](const char* name, std::vector<std::string>& value, const char* text) {
    app.add_option(name, value, text)->delimiter(',')->capture_default_str();
  };
  add_shapes("--decode", options->decodes,
             "Decode batches as SEQUENCESxTOKENS, separated by commas");
  add_shapes("--prefill", options->prefills, "Prefill batches of whole prompts, in the same form");
  add_shapes("--kv-dtype", options->kv_dtypes, "Types of the KV cache, separated by commas");
  const auto add_size = [&](const char* name, int64_t& value, const char* text) {
    app.add_option(name, value, text)
        ->check(CLI::Range(int64_t{1}, int64_t{4096}))
        ->capture_default_str();
  };
  add_size("--num-heads", options->num_heads, "Query heads");
  add_size("--num-kv-heads", options->num_kv_heads, "KV heads");
  add_size("--head-dim", options->head_dim, "Head size");
  add_gpu_options(app, options->gpu);
  app.footer(
      R"(Keys and values come from memory, not from the L2 cache. A CUDA graph
launches the kernels; the median of several runs counts.

Examples:
  halley bench attention
  halley bench attention --decode 256x1024 --prefill 1x32768 --kv-dtype f16,fp8)");
  return [options] { return run_attention(*options); };
}

}  // namespace halley::cli
