// `halley simulate`: what GPUs would make of a load, without one.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/bench_model.h"
#include "halley/cli/command.h"
#include "halley/cli/engine_options.h"
#include "halley/cli/load_output.h"
#include "halley/cli/load_plots.h"
#include "halley/cli/named_model.h"
#include "halley/cli/simulate_report.h"
#include "halley/cli/simulated_model.h"
#include "halley/cli/traffic.h"
#include "halley/precision/precision_policy.h"
#include "halley/simulation/simulation.h"
#include "halley/slo/slo.h"

namespace halley::cli {
namespace {

constexpr int64_t kGpusMax = 1024;
constexpr const char* kAll = "all";

struct SimulateOptions {
  SimulatedModelOptions model;
  EngineConfig engine;
  TrafficOptions traffic;
  LoadOutputOptions output = {.percents = {50, 90, 99}};
  std::vector<std::string> precisions = {"full"};
  int64_t num_gpus = 1;
  std::optional<double> goal_percent;  // of seconds: find the number of GPUs
  int64_t num_gpus_max = 64;
  std::string json_file;
};

std::vector<PrecisionMode> modes_of(const std::vector<std::string>& names) {
  std::vector<PrecisionMode> modes;
  for (const std::string& name : names) {
    if (name == kAll) {
      return {PrecisionMode::kFull, PrecisionMode::kLow, PrecisionMode::kAuto};
    }
    modes.push_back(*precision_mode_from_name(name));
  }
  return modes;
}

std::vector<SimulatedRequest> requests_of(const Traffic& traffic) {
  std::vector<SimulatedRequest> requests;
  for (size_t i = 0; i < traffic.arrivals.size(); ++i) {
    requests.push_back({.arrival = traffic.arrivals[i],
                        .input_len = traffic.input_lens[i],
                        .output_len = traffic.output_lens[i]});
  }
  return requests;
}

void say_what_is_too_long(const SimulatedEngine& engine,
                          const std::vector<SimulatedRequest>& requests) {
  size_t num_long = 0;
  for (const SimulatedRequest& request : requests) num_long += is_too_long(engine, request) ? 1 : 0;
  if (num_long == 0) return;
  std::fprintf(
      stderr,
      "%zu of %zu requests are longer than max_model_len=%lld, prompt and answer together, "
      "and fail; --trace-max-input-len shortens prompts of a trace\n",
      num_long, requests.size(), static_cast<long long>(engine.plan.config.max_model_len));
}

void say_what_does_not_suffice(const SimulatedRun& run) {
  if (run.meets_goal.value_or(true)) return;
  std::fprintf(stderr,
               "precision %s: %lld GPUs keep the SLO in %lld of %lld seconds; more were not tried "
               "(--max-num-gpus)\n",
               name_of(run.mode), static_cast<long long>(run.result.num_replicas),
               static_cast<long long>(run.seconds.kept), static_cast<long long>(run.seconds.of));
}

class Simulations {
 public:
  Simulations(const SimulateOptions& options, const EngineConfig& engine_config, size_t num_runs)
      : options_(options),
        engine_(make_simulated_engine(plan_simulated_model(options.model), options.model,
                                      engine_config)),
        traffic_(make_traffic(options.traffic)),
        requests_(requests_of(traffic_)),
        report_options_(report_options_of(options.output, options.traffic, traffic_)) {
    // A comparison shows these.
    if (num_runs > 1) report_options_.percents = {50, 90, 99};
    say_what_is_too_long(engine_, requests_);
  }

  SimulatedRun run(PrecisionMode mode) {
    engine_.plan.config.precision = mode;
    SimulatedRun run = {.mode = mode, .result = {}, .report = {}};
    if (options_.goal_percent) {
      Sizing sizing = find_num_replicas(engine_, requests_, goal());
      run.meets_goal = sizing.is_met;
      run.result = std::move(sizing.result);
    } else {
      run.result = simulate(engine_, requests_, options_.num_gpus);
    }
    run.report = make_load_report(run.result.load, report_options_);
    run.seconds =
        kept_seconds(engine_, requests_, run.result, report_options_.slo, traffic_.num_seconds);
    return run;
  }

  void write_timeline(const SimulatedRun& run, const std::string& timeline_file) const {
    if (timeline_file.empty()) return;
    write_file(timeline_file, plot_seconds(run.report.seconds, report_options_.slo, title_of(run)));
  }

  OrderedJson settings_json() const {
    OrderedJson json = {{"date", date_of_today()},         {"halley", HALLEY_VERSION},
                        {"model_id", model_name()},        {"format", options_.model.quant_config},
                        {"device", options_.model.device}, {"num_prompts", requests_.size()},
                        {"seed", options_.traffic.seed}};
    add_traffic_json(options_.traffic, json);
    if (!options_.output.slo.empty()) json["slo"] = options_.output.slo;
    return json;
  }

  OrderedJson json_of(const SimulatedRun& run) const {
    OrderedJson json = {{"simulation", simulation_json(run, engine_)}};
    json.update(load_report_json(run.report, run.result.load, report_options_));
    return json;
  }

  const SimulatedEngine& engine() const { return engine_; }
  const LoadReportOptions& report_options() const { return report_options_; }

 private:
  SizingGoal goal() const {
    return {.slo = report_options_.slo,
            .share = *options_.goal_percent / 100,
            .num_seconds = traffic_.num_seconds,
            .num_replicas_max = options_.num_gpus_max};
  }

  const std::string& model_name() const {
    return options_.model.model.empty() ? options_.model.config_name : options_.model.model;
  }

  std::string title_of(const SimulatedRun& run) const {
    return str(model_name(), ", precision ", name_of(run.mode), ", ", run.result.num_replicas,
               " x ", options_.model.device, ", simulated");
  }

  const SimulateOptions& options_;
  SimulatedEngine engine_;
  Traffic traffic_;
  std::vector<SimulatedRequest> requests_;
  LoadReportOptions report_options_;
};

// "minute.svg" of several runs: "minute_full.svg".
std::string file_of(const std::string& path, PrecisionMode mode, bool is_alone) {
  if (path.empty() || is_alone) return path;
  const std::filesystem::path file(path);
  const std::string name = str(file.stem().string(), "_", name_of(mode), file.extension().string());
  return (file.parent_path() / name).string();
}

EngineConfig engine_config_of(const SimulateOptions& options,
                              const std::vector<PrecisionMode>& modes) {
  EngineConfig config = options.engine;
  config.precision = modes.front();
  if (!options.output.slo.empty()) config.slo = parse_slo(options.output.slo, "--slo");
  if (options.goal_percent && !config.slo.ttft && !config.slo.tpot) {
    throw InputError(
        "--find-num-gpus: expected --slo with ttft or tpot, got neither. Give an objective, like "
        "ttft=200ms,tpot=33.3ms.");
  }
  return config;
}

void write_result(const OrderedJson& json, const std::string& path) {
  write_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

int run_simulate(const SimulateOptions& options) {
  const std::vector<PrecisionMode> modes = modes_of(options.precisions);
  const bool is_alone = modes.size() == 1;
  Simulations simulations(options, engine_config_of(options, modes), modes.size());
  OrderedJson json = simulations.settings_json();
  if (!is_alone) json["runs"] = OrderedJson::array();
  std::vector<SimulatedRun> runs;
  for (const PrecisionMode mode : modes) {
    SimulatedRun& run = runs.emplace_back(simulations.run(mode));
    say_what_does_not_suffice(run);
    simulations.write_timeline(run, file_of(options.output.timeline_file, mode, is_alone));
    if (!options.json_file.empty()) {
      if (is_alone) {
        json.update(simulations.json_of(run));
      } else {
        json["runs"].push_back(simulations.json_of(run));
      }
    }
    if (!is_alone && options.output.prints_seconds) std::printf("precision %s\n", name_of(mode));
    if (is_alone || options.output.prints_seconds) {
      print_load(run.report, simulations.report_options(), options.output);
      std::cout << format_simulation(run, simulations.engine()) << std::flush;
    }
    run.result.load = {};  // the report has what is printed
  }
  if (!is_alone) std::cout << format_comparison(runs) << std::flush;
  if (!options.json_file.empty()) write_result(json, options.json_file);
  return kExitOk;
}

void add_engine_group(CLI::App& app, SimulateOptions& options) {
  EngineConfig& engine = options.engine;
  engine.itl_target.kind = ItlTarget::Kind::kAutoOnHost;
  add_engine_number(app, "--max-model-len", engine.max_model_len, 0,
                    "Maximum tokens of prompt and output; 0: the model's maximum");
  add_engine_number(app, "--max-num-seqs", engine.max_num_seqs, 0,
                    "Maximum of running sequences; 0: 256");
  add_engine_number(app, "--max-num-batched-tokens", engine.max_num_batched_tokens, 0,
                    "Tokens of one step; 0: 8192");
  add_engine_number(app, "--block-size", engine.page_tokens, 1, "Tokens per page of the KV cache");
  app.add_option("--kv-cache-memory-bytes", engine.kv_bytes,
                 "Size of the KV cache, 4GB for example; default: what the GPU has left")
      ->transform(CLI::AsSizeValue(true))
      ->group("Engine");
  add_engine_number(app, "--max-num-queued-reqs,--max-num-queued", engine.max_num_queued, 1,
                    "Maximum of waiting sequences; more fail");
  add_itl_target_option(app, engine, "75 % of the SLO's tpot, without one off");
}

void add_simulate_options(CLI::App& app, SimulateOptions& options) {
  add_simulated_model_options(app, options.model);
  app.add_option("--precision", options.precisions,
                 "Precision of steps, for weights that hold two: full; low; auto: full while that "
                 "holds the SLO, else low. Several, or all, are compared")
      ->delimiter(',')
      ->check(CLI::IsMember({"full", "low", "auto", kAll}))
      ->capture_default_str();
  auto* num_gpus = app.add_option("--num-gpus", options.num_gpus,
                                  "Replicas; a request goes to the one with the fewest waiting "
                                  "prompt tokens")
                       ->check(CLI::Range(int64_t{1}, kGpusMax))
                       ->capture_default_str();
  auto* goal = app.add_option("--find-num-gpus", options.goal_percent,
                              "Find the smallest number of GPUs that keep the SLO in this "
                              "percentage of the seconds")
                   ->check(CLI::Range(0.1, 100.0))
                   ->excludes(num_gpus);
  app.add_option("--max-num-gpus", options.num_gpus_max, "Largest number that is tried")
      ->check(CLI::Range(int64_t{1}, kGpusMax))
      ->needs(goal)
      ->capture_default_str();
  add_engine_group(app, options);
  add_traffic_options(app, options.traffic);
  add_load_output_options(app, options.output);
  app.add_option("--output-json", options.json_file,
                 "Write the report and every request to a file, as bench serve --json does")
      ->group("Report");
}

}  // namespace

Run add_simulate(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand(
      "simulate", "Simulate a load on GPUs: latencies, precision, and how many GPUs it needs");
  auto options = std::make_shared<SimulateOptions>();
  add_simulate_options(app, *options);
  app.footer(R"(The engine's own scheduler and precision policy run on a virtual clock. Steps take
their roofline time multiplied by a measured ratio. No GPU and no weights are needed.

Examples:
  halley simulate models/nested --precision all --slo ttft=200ms,tpot=33.3ms \
    --trace testdata/traces/azure_llm_2023_conv.csv --trace-start 501 --trace-seconds 210 \
    --rate-scale 3.5
  halley simulate --config llama-3.1-8b --quant-config fp8 --slo ttft=200ms,tpot=33.3ms \
    --trace testdata/traces/azure_llm_2023_conv.csv --rate-scale 20 --find-num-gpus 99
  halley simulate models/demo-21m --request-rate 40 --num-prompts 400 --random-input-len 200)");
  return [options] {
    options->model.model = find_model(options->model.model, options->model.lookup);
    return run_simulate(*options);
  };
}

}  // namespace halley::cli
