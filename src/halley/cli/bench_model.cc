#include "halley/cli/bench_model.h"

#include <array>
#include <ctime>
#include <fstream>
#include <iostream>
#include <utility>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/batch_run.h"
#include "halley/kernels/base/read_bandwidth.h"

namespace halley::cli {
namespace {

GemmType gemm_type_of(ActivationQuant activation) {
  switch (activation) {
    case ActivationQuant::kE4m3Token:
    case ActivationQuant::kE4m3Group128:
    case ActivationQuant::kE4m3Static:
      return GemmType::kE4m3;
    case ActivationQuant::kS8Token:
    case ActivationQuant::kS8Static:
    case ActivationQuant::kS4S8Block128:
      return GemmType::kS8;
    case ActivationQuant::kNone:
      break;
  }
  return GemmType::kF16;
}

}  // namespace

void add_rate_options(CLI::App& app, DeviceRates& rates) {
  const auto add = [&](const std::string& name, double& value, const std::string& text) {
    app.add_option(name, value, text + "; default: an H200's on a device")
        ->check(CLI::PositiveNumber)
        ->group("Floors");
  };
  app.add_option(
         "--bandwidth", rates.bytes,
         "Memory bandwidth of the floors in bytes per second; default: measured by plain reads "
         "of the weights on the CPU, an H200's 4.66e12 on a device")
      ->check(CLI::PositiveNumber)
      ->group("Floors");
  add("--peak-f16", rates.f16, "Operations per second in f16 (a multiply-add counts as two)");
  add("--peak-e4m3", rates.e4m3, "The same in FP8");
  add("--peak-s8", rates.s8, "The same in INT8");
}

GemmType linear_type_of(const ModelPlan& plan) {
  std::array<double, 3> num_bytes{};
  for (const ModelPart& part : plan.parts) {
    if (part.kind != "linear" || part.name == "lm_head") continue;
    for (const LinearPlan& linear : part.plans) {
      num_bytes.at(static_cast<size_t>(gemm_type_of(linear.weight.activation))) +=
          static_cast<double>(linear.packed_bytes);
    }
  }
  GemmType best = GemmType::kF16;
  for (const GemmType type : {GemmType::kE4m3, GemmType::kS8}) {
    if (num_bytes.at(static_cast<size_t>(type)) > num_bytes.at(static_cast<size_t>(best))) {
      best = type;
    }
  }
  return best;
}

BenchModel load_bench_model(const ModelOptions& options) {
  BenchModel bench;
  bench.loaded = load_model_files(options);
  std::unique_ptr<CausalLm> model = std::move(bench.loaded.model);
  bench.kv_dtype = parse_kv_dtype(options.kv_dtype).value_or(model->shape().kv_dtype_default);
  bench.is_on_host = model->device_name() == "cpu";
  const ModelPlan& plan = bench.loaded.plan;
  bench.steps = std::make_shared<StepAccount>(decoder_cost(
      plan.config, model->weight_memory(), bench.kv_dtype,
      bench.loaded.context->precision == Precision::kLow ? GemmType::kE4m3 : linear_type_of(plan)));
  bench.counted = std::make_unique<CountedModel>(std::move(model), bench.steps);
  bench.model = bench.counted.get();
  return bench;
}

void WeightReads::read() {
  if (!model_.is_on_host) return;
  const WeightMemory memory = model_.model->weight_memory();
  std::vector<WeightMemory::Bytes> parts = memory.always_read;
  parts.insert(parts.end(), memory.experts.begin(), memory.experts.end());
  constexpr int kNumReads = 5;
  for (int i = 0; i < kNumReads; ++i) {
    rates_.push_back(measure_read_bandwidth(*model_.loaded.context, parts, 1));
  }
}

double WeightReads::bytes_per_second() const { return rates_.empty() ? 0 : median(rates_); }

DeviceRates with_rates(const DeviceRates& declared, const DeviceRates& others) {
  const auto pick = [](double a, double b) { return a > 0 ? a : b; };
  return {.bytes = pick(declared.bytes, others.bytes),
          .f16 = pick(declared.f16, others.f16),
          .e4m3 = pick(declared.e4m3, others.e4m3),
          .s8 = pick(declared.s8, others.s8)};
}

DeviceRates rates_of(const BenchModel& model, const DeviceRates& declared, double host_bytes) {
  return with_rates(declared, model.is_on_host ? DeviceRates{.bytes = host_bytes} : kH200Rates);
}

OrderedJson rates_json(const DeviceRates& rates, const char* unless_declared) {
  return {{"unless_stated", unless_declared},
          {"bytes_per_s", rates.bytes},
          {"f16_per_s", rates.f16},
          {"e4m3_per_s", rates.e4m3},
          {"s8_per_s", rates.s8}};
}

OrderedJson facts_of(const BenchModel& model, const ModelOptions& options) {
  const LoadedModel& loaded = model.loaded;
  return {{"device", model.is_on_host ? cpu_name() : model.model->device_name()},
          {"threads", loaded.pool->num_threads()},
          {"model", options.model.empty() ? options.config_name : options.model},
          {"dtype", name_of(loaded.plan.config.dtype)},
          {"format", loaded.plan.format},
          {"kernels", kernels_in_words(loaded.plan)},
          {"packed_bytes", static_cast<double>(loaded.plan.packed_bytes)},
          {"load",
           {{"read_s", loaded.times.read},
            {"repack_s", loaded.times.pack},
            {"self_check_s", loaded.times.self_check},
            {"total_s", loaded.load_seconds}}},
          {"kv_dtype", name_of(model.kv_dtype)}};
}

std::string date_of_today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void write_json(const OrderedJson& json, const std::string& path, bool is_json) {
  if (!path.empty()) write_file(path, json.dump(1) + '\n');
  if (is_json) std::cout << json.dump() << '\n';
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw InputError(str(path, ": cannot write."));
}

}  // namespace halley::cli
