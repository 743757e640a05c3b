// A loaded model that a benchmark measures through the engine, with an account of its steps and the
// machine's rates, from which the floors follow.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "halley/cli/model_options.h"
#include "halley/json/json.h"
#include "halley/models/base/counted_model.h"
#include "halley/models/base/step_cost.h"

namespace halley::cli {

/// Options for the machine's rates; a rate that is not given stays 0.
void add_rate_options(CLI::App& app, DeviceRates& rates);

struct BenchModel {
  LoadedModel loaded;                 // `model` is null
  std::unique_ptr<CausalLm> counted;  // null once an engine owns it
  const CausalLm* model = nullptr;    // the same, valid as long as it lives
  std::shared_ptr<StepAccount> steps;
  KvDType kv_dtype = KvDType::kF16;
  bool is_on_host = true;
};
BenchModel load_bench_model(const ModelOptions& options);

/// The type in which most bytes of the model's linear weights are multiplied.
GemmType linear_type_of(const ModelPlan& plan);

/// Measures how fast the host reads the model's weights. The machine's bandwidth changes with other
/// load, so reads alternate with the runs that they are compared with. Does nothing if the weights
/// are on a device.
class WeightReads {
 public:
  explicit WeightReads(const BenchModel& model) : model_(model) {}
  /// The engine must be idle.
  void read();
  /// The median in bytes per second; 0 if nothing was read.
  double bytes_per_second() const;

 private:
  const BenchModel& model_;
  std::vector<double> rates_;
};

/// The rates of `declared` that are not 0, else those of `others`.
DeviceRates with_rates(const DeviceRates& declared, const DeviceRates& others);
/// The declared rates. The others are the measured bandwidth on the host and an H200's on a device.
DeviceRates rates_of(const BenchModel& model, const DeviceRates& declared, double host_bytes);

/// The source of rates that the user does not give.
inline constexpr const char* kRatesOfHost = "plain reads of the weights, measured here";
inline constexpr const char* kRatesOfDevice = "measured on an NVIDIA H200";
OrderedJson rates_json(const DeviceRates& rates, const char* unless_declared);

/// Device, model, types, kernels and times of loading.
OrderedJson facts_of(const BenchModel& model, const ModelOptions& options);

/// The time now, "2025-01-31T12:00:00Z".
std::string date_of_today();

/// Writes `json` to a file if `path` is not empty, and to stdout if `is_json`.
void write_json(const OrderedJson& json, const std::string& path, bool is_json);

/// Throws InputError that names the file.
void write_file(const std::string& path, const std::string& text);

}  // namespace halley::cli
