// `halley bench latency`: times of one batch of requests versus the machine's floors.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cli/batch_run.h"
#include "halley/cli/bench.h"
#include "halley/cli/bench_model.h"
#include "halley/cli/bench_profile.h"
#include "halley/cli/lora_options.h"
#include "halley/cli/named_model.h"
#include "halley/client/load/summary.h"
#include "halley/models/lora/load_adapter.h"

namespace halley::cli {
namespace {

struct LatencyOptions {
  ModelOptions model;
  DeviceRates rates;
  int64_t input_len = 32;
  int64_t output_len = 128;
  std::vector<int64_t> batch_sizes = {1};
  int64_t max_num_batched_tokens = 0;
  int64_t num_adapters = 0, adapter_rank = 16;
  int num_warmup = 1;
  int num_iters = 3;
  bool has_profile = false;
  std::string profile_trace;
  bool is_json = false;
  std::string output_json;

  int64_t batch_size_max() const {
    return *std::max_element(batch_sizes.begin(), batch_sizes.end());
  }
};

/// For one size of a batch.
struct LatencyReport {
  OrderedJson facts, rates, profile;
  std::vector<std::shared_ptr<const Adapter>> adapters;  // requests take them in turn
  int64_t batch_size = 0;
  int64_t num_rows_max = 0;
  std::vector<BatchTimes> iterations;
  StepCost decode;               // cost of a step with the whole batch, in mid-output
  double decode_floor = 0;       // seconds of that step
  double first_token_floor = 0;  // seconds of the steps until all prompts are done
  std::vector<double> idle_us;   // the device idles between decode steps
  double read_bytes_per_s = 0;   // bandwidth of the floors
};

template <typename Field>
std::vector<double> column(const LatencyReport& report, Field BatchTimes::*field) {
  std::vector<double> values;
  for (const BatchTimes& iteration : report.iterations) values.push_back(iteration.*field);
  return values;
}

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

/// Whether most decode steps behind the last first token have the whole batch. The first requests
/// decode while the prompts of the others are computed, and end as much earlier.
bool has_whole_batch(const LatencyOptions& options, int64_t batch_size, int64_t num_rows_max) {
  const int64_t num_prompt_steps = ceil_div(batch_size * options.input_len, num_rows_max);
  return 2 * num_prompt_steps <= options.output_len + 1;
}

OrderedJson json_of(const LatencyOptions& options, const LatencyReport& report) {
  const std::vector<double> latencies = column(report, &BatchTimes::latency);
  const double first_token = median(column(report, &BatchTimes::first_token));
  const double output_token = median(column(report, &BatchTimes::output_token));
  std::vector<double> steps;
  for (const BatchTimes& iteration : report.iterations) {
    steps.insert(steps.end(), iteration.decode_steps.begin(), iteration.decode_steps.end());
  }
  const double median_step = steps.empty() ? 0 : median(steps);
  const auto num_sequences = static_cast<double>(report.batch_size);
  const double prompt_rate = num_sequences * static_cast<double>(options.input_len) / first_token;
  const double output_rate = share_of(num_sequences, output_token);
  const double decode_bytes = share_of(report.decode.bytes, output_token);
  OrderedJson percentiles;
  for (const int percent : {10, 25, 50, 75, 90, 99}) {
    percentiles[str(percent)] = percentile(latencies, percent);
  }
  OrderedJson json = report.facts;
  json.update(OrderedJson{
      {"input_len", options.input_len},
      {"output_len", options.output_len},
      {"batch_size", report.batch_size},
      {"max_num_batched_tokens", report.num_rows_max},
      {"avg_latency", std::accumulate(latencies.begin(), latencies.end(), 0.0) /
                          static_cast<double>(latencies.size())},
      {"latencies", latencies},
      {"percentiles", std::move(percentiles)},
      {"time_to_first_token_s", first_token},
      {"time_per_output_token_s", output_token},
      {"median_time_per_output_token_s", median_step},
      {"median_is_of_whole_batch",
       has_whole_batch(options, report.batch_size, report.num_rows_max)},
      {"prompt_tokens_per_s", prompt_rate},
      {"output_tokens_per_s", output_rate},
      {"prompt_to_output_ratio", share_of(prompt_rate, output_rate)},
      {"decode_step_bytes", report.decode.bytes},
      {"decode_step_operations", report.decode.linear_operations + report.decode.dense_operations},
      {"decode_step_floor_s", report.decode_floor},
      {"decode_roofline_share", share_of(report.decode_floor, median_step)},
      {"first_token_floor_s", report.first_token_floor},
      {"first_token_roofline_share", share_of(report.first_token_floor, first_token)},
      {"rates", report.rates},
      {"decode_bytes_per_s", decode_bytes},
      {"read_bytes_per_s", report.read_bytes_per_s},
      {"decode_share_of_read_bandwidth", share_of(decode_bytes, report.read_bytes_per_s)}});
  if (!report.idle_us.empty()) {
    json["idle_between_decode_steps_us"] = {{"median", percentile(report.idle_us, 50)},
                                            {"p99", percentile(report.idle_us, 99)},
                                            {"num_gaps", report.idle_us.size()}};
  }
  if (!report.adapters.empty()) {
    json["adapters"] = {{"number", report.adapters.size()},
                        {"rank", options.adapter_rank},
                        {"bytes_each", report.adapters.front()->num_bytes}};
  }
  if (!report.profile.is_null()) json["profile"] = report.profile;
  return json;
}

void print_text(const OrderedJson& json) {
  const auto number = [&](const char* name) { return json.at(name).get<double>(); };
  std::printf("Batch size: %g\nAvg latency: %g seconds\n", number("batch_size"),
              number("avg_latency"));
  for (const auto& [percent, seconds] : json.at("percentiles").items()) {
    std::printf("%s%% percentile latency: %g seconds\n", percent.c_str(), seconds.get<double>());
  }
  std::printf(
      "Time to first token: %.4f s (%.1f prompt tokens/s); floor %.4f s, %.1f %% of the time\n",
      number("time_to_first_token_s"), number("prompt_tokens_per_s"), number("first_token_floor_s"),
      100 * number("first_token_roofline_share"));
  std::printf("Time per output token: mean %.3f ms, median %.3f ms (%.1f tokens/s)\n",
              1e3 * number("time_per_output_token_s"),
              1e3 * number("median_time_per_output_token_s"), number("output_tokens_per_s"));
  if (!json.at("median_is_of_whole_batch").get<bool>() && number("output_len") > 1) {
    std::printf(
        "The first requests end before the last one decodes: the median is of fewer. A longer "
        "--output-len has steps of the whole batch.\n");
  }
  std::printf("Decode step floor: %.3f ms (%s, %.4g operations), %.1f %% of the median\n",
              1e3 * number("decode_step_floor_s"),
              format_bytes(number("decode_step_bytes")).c_str(), number("decode_step_operations"),
              100 * number("decode_roofline_share"));
  std::printf("Decode reads %s a step: %s/s, %.1f %% of %s/s (%s)\n",
              format_bytes(number("decode_step_bytes")).c_str(),
              format_bytes(number("decode_bytes_per_s")).c_str(),
              100 * number("decode_share_of_read_bandwidth"),
              format_bytes(number("read_bytes_per_s")).c_str(),
              json.at("rates").at("unless_stated").get<std::string>().c_str());
  if (!json.contains("idle_between_decode_steps_us")) return;
  const OrderedJson& idle = json.at("idle_between_decode_steps_us");
  std::printf("Device idle between decode steps: median %.1f us, 99 %% below %.1f us (%zu gaps)\n",
              idle.at("median").get<double>(), idle.at("p99").get<double>(),
              idle.at("num_gaps").get<size_t>());
}

// One decode of every sequence at the middle of its output.
StepCost decode_cost(const LatencyOptions& options, int64_t batch_size, const DecoderCost& model) {
  const SequenceStep sequence = {.num_past = options.input_len + options.output_len / 2 - 1};
  const std::vector<SequenceStep> batch(static_cast<size_t>(batch_size), sequence);
  return step_cost(model, batch, batch_size);
}

EngineConfig engine_config(const LatencyOptions& options, const BenchModel& bench) {
  constexpr int64_t kRowsOnHost = 512, kRowsOnDevice = 8192;
  EngineConfig config;
  config.kv_dtype = bench.kv_dtype;
  config.precision = precision_mode_of(bench.loaded);
  config.max_model_len = options.model.max_model_len > 0 ? options.model.max_model_len
                                                         : options.input_len + options.output_len;
  config.max_num_seqs = options.batch_size_max();
  const int64_t usual = bench.is_on_host ? kRowsOnHost : kRowsOnDevice;
  config.max_num_batched_tokens =
      std::max(options.max_num_batched_tokens > 0 ? options.max_num_batched_tokens : usual,
               options.batch_size_max());
  config.max_num_queued = std::max(config.max_num_queued, options.batch_size_max());
  config.has_prefix_caching = false;  // every iteration computes the same prompts
  return config;
}

OrderedJson profile(const LatencyOptions& options, CausalLm& model, const EngineConfig& config) {
  const std::vector<StepProfile> steps =
      profile_steps(model, {.batch_size = options.batch_size_max(),
                            .input_len = options.input_len,
                            .output_len = options.output_len,
                            .num_rows_max = config.max_num_batched_tokens,
                            .kv_dtype = *config.kv_dtype});
  if (!options.profile_trace.empty()) write_trace(steps, options.profile_trace);
  if (!options.is_json) print_profile(steps);
  return json_of(steps);
}

std::vector<std::shared_ptr<const Adapter>> make_adapters(const LatencyOptions& options,
                                                          const BenchModel& bench) {
  std::vector<std::shared_ptr<const Adapter>> adapters;
  if (options.num_adapters > 0) check_takes_adapters(*bench.model, "--lora-adapters");
  for (int64_t i = 0; i < options.num_adapters; ++i) {
    adapters.push_back(make_random_adapter(bench.loaded.plan.config, options.adapter_rank,
                                           static_cast<uint32_t>(i)));
  }
  return adapters;
}

/// `report` has what is the same for all sizes.
LatencyReport measure(const LatencyOptions& options, int64_t batch_size, const BenchModel& bench,
                      Engine& engine, LatencyReport report) {
  report.batch_size = batch_size;
  auto requests = make_batch(batch_size, options.input_len, options.output_len,
                             bench.model->shape().vocab_size);
  for (size_t i = 0; i < requests.size() && !report.adapters.empty(); ++i) {
    requests[i].adapter = report.adapters[i % report.adapters.size()];
  }
  for (int i = 0; i < options.num_warmup; ++i) run_batch(engine, requests);
  bench.steps->take();
  WeightReads reads(bench);
  for (int i = 0; i < options.num_iters; ++i) {
    report.iterations.push_back(run_batch(engine, requests));
    reads.read();
  }
  const DeviceRates rates = rates_of(bench, options.rates, reads.bytes_per_second());
  const DecoderCost& cost = bench.steps->cost();
  report.rates = rates_json(rates, bench.is_on_host ? kRatesOfHost : kRatesOfDevice);
  report.read_bytes_per_s = rates.bytes;
  report.decode = decode_cost(options, batch_size, cost);
  report.decode_floor = floor_seconds(report.decode, cost.linear_type, rates);
  const std::vector<CountedStep> steps = bench.steps->take();
  report.idle_us = idle_between_decodes(steps);
  report.first_token_floor =
      sum_floors(steps, cost.linear_type, rates).prefill_seconds / options.num_iters;
  return report;
}

std::vector<LatencyReport> measure(const LatencyOptions& options) {
  BenchModel bench = load_bench_model(options.model);
  const EngineConfig config = engine_config(options, bench);
  LatencyReport same;
  same.facts = facts_of(bench, options.model);
  same.num_rows_max = config.max_num_batched_tokens;
  same.adapters = make_adapters(options, bench);
  if (options.has_profile || !options.profile_trace.empty()) {
    same.profile = profile(options, *bench.counted, config);
  }
  Engine engine(std::move(bench.counted), nullptr, {}, config);
  std::vector<LatencyReport> reports;
  for (const int64_t batch_size : options.batch_sizes) {
    reports.push_back(measure(options, batch_size, bench, engine, same));
  }
  return reports;
}

int run_latency(const LatencyOptions& options) {
  OrderedJson all = OrderedJson::array();
  for (const LatencyReport& report : measure(options)) {
    all.push_back(json_of(options, report));
    if (!options.is_json) print_text(all.back());
  }
  write_json(all.size() == 1 ? all[0] : all, options.output_json, options.is_json);
  return kExitOk;
}

}  // namespace

Run add_bench_latency(CLI::App& bench) {
  CLI::App& app =
      *bench.add_subcommand("latency", "Time one batch of requests, and count its memory traffic");
  auto options = std::make_shared<LatencyOptions>();
  add_model_options(app, options->model);
  add_precision_option(app, options->model);
  add_length_option(app, options->model);
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    app.add_option(name, value, text)->check(CLI::PositiveNumber)->capture_default_str();
  };
  add("--input-len", options->input_len, "Prompt tokens per request");
  add("--output-len", options->output_len, "Output tokens per request");
  app.add_option("--batch-size", options->batch_sizes,
                 "Requests in the batch; several, separated by commas, one after the other on one "
                 "loaded model: an array in JSON")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", options->max_num_batched_tokens,
                 "Tokens of one step; 0: 512 on the CPU, 8192 on a device")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--lora-adapters", options->num_adapters,
                 "Random LoRA adapters of all layers, which requests take in turn; floors are "
                 "without them")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--lora-rank", options->adapter_rank, "Their rank")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option("--num-iters-warmup", options->num_warmup, "Warm-up iterations, not counted")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add("--num-iters", options->num_iters, "Iterations; medians are reported");
  app.add_flag("--profile", options->has_profile,
               "First profile the operations of a prefill step and of a decode step");
  app.add_option("--profile-trace", options->profile_trace,
                 "Write the profile as a trace for chrome://tracing or ui.perfetto.dev");
  add_rate_options(app, options->rates);
  app.add_flag("--json", options->is_json, "One JSON object instead of text");
  app.add_option("--output-json", options->output_json, "Also write the JSON object to a file");
  app.footer(R"(Examples:
  halley bench latency models/demo-21m
  halley bench latency models/demo-21m --batch-size 1,4 --profile
  halley bench latency --load-format dummy --config llama-1b --dtype bfloat16 --input-len 512)");
  return [options] {
    find_model(options->model);
    return run_latency(*options);
  };
}

}  // namespace halley::cli
