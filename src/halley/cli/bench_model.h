// A model that is measured through the engine: loaded, its steps counted, and the rates of the
// machine that its floors are made of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "halley/cli/model_options.h"
#include "halley/json/json.h"
#include "halley/models/base/counted_model.h"
#include "halley/models/base/step_cost.h"

namespace halley::cli {

/// Options for the rates of the machine; what is not given stays 0.
void add_rate_options(CLI::App& app, DeviceRates& rates);

struct BenchModel {
  LoadedModel loaded;                 // `model` is null
  std::unique_ptr<CausalLm> counted;  // until an engine owns it
  const CausalLm* model = nullptr;    // the same, valid as long as it lives
  std::shared_ptr<StepAccount> steps;
  KvDType kv_dtype = KvDType::kF16;
  bool is_on_host = true;
};
BenchModel load_bench_model(const ModelOptions& options);

/// What most of the bytes of the model's linear layers are multiplied in.
GemmType linear_type_of(const ModelPlan& plan);

/// How fast the host reads the model's own weights. The machine's bandwidth changes with its other
/// load, so that reads alternate with what they are the yardstick of. Does nothing where the
/// weights lie on a device.
class WeightReads {
 public:
  explicit WeightReads(const BenchModel& model) : model_(model) {}
  /// The engine must be idle.
  void read();
  /// Bytes per second, the median; 0 where nothing was read.
  double bytes_per_second() const;

 private:
  const BenchModel& model_;
  std::vector<double> rates_;
};

/// Those of `declared` that are not 0, else the others.
DeviceRates with_rates(const DeviceRates& declared, const DeviceRates& others);
/// The declared rates; for those that are not: what was read on the host, an H200's on a device.
DeviceRates rates_of(const BenchModel& model, const DeviceRates& declared, double host_bytes);

/// Where rates are from that the user does not state.
inline constexpr const char* kRatesOfHost = "plain reads of the weights, measured here";
inline constexpr const char* kRatesOfDevice = "measured on an NVIDIA H200";
OrderedJson rates_json(const DeviceRates& rates, const char* unless_declared);

/// Device, model, types, kernels and times of loading.
OrderedJson facts_of(const BenchModel& model, const ModelOptions& options);

/// As it is, into a file where `path` is not empty, and to stdout where `is_json`.
void write_json(const OrderedJson& json, const std::string& path, bool is_json);

/// Throws InputError that names the file.
void write_file(const std::string& path, const std::string& text);

}  // namespace halley::cli
