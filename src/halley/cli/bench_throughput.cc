// `halley bench throughput`: many concurrent requests through the engine, without a server, versus
// the least time that their steps could take.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/cli/batch_run.h"
#include "halley/cli/bench.h"
#include "halley/cli/bench_model.h"
#include "halley/cli/engine_options.h"
#include "halley/cli/json_lines.h"
#include "halley/cli/named_model.h"
#include "halley/client/load/summary.h"
#include "halley/engine/generate.h"

namespace halley::cli {
namespace {

constexpr int64_t kTokensMax = 10'000'000;

struct ThroughputOptions {
  ModelOptions model;
  DeviceRates rates;
  int64_t num_prompts = 64;
  int64_t input_len = 128;
  int64_t output_len = 128;
  std::string dataset;
  EngineConfig engine;  // from the options
  bool is_json = false;
  std::string output_json;
};

// The lengths of the requests that ran, and their times.
struct ThroughputReport {
  int64_t num_requests = 0, num_prompt_tokens = 0, num_output_tokens = 0;
  double seconds = 0;
  std::vector<double> first_tokens, output_tokens;  // seconds of each request
  EngineStats before, after;
};

GenerateRequest request_of(std::vector<int32_t> prompt_ids, int64_t output_len) {
  GenerateRequest request;
  request.prompt_ids = std::move(prompt_ids);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = output_len;
  request.sampling.ignore_eos = true;
  return request;
}

int64_t output_len_of(const OrderedJson& line, int64_t fallback) {
  if (!line.contains("output_len")) return fallback;
  const OrderedJson& value = line.at("output_len");
  if (value.is_number_integer() && value >= 1 && value <= kTokensMax) return value.get<int64_t>();
  throw InputError(
      str("'output_len': expected a whole number from 1 to ", kTokensMax, ", got ", value.dump()));
}

// The first requests of a file of lines {"prompt": text, "output_len": n}.
std::vector<GenerateRequest> read_dataset(const ThroughputOptions& options) {
  if (options.model.model.empty()) {
    throw InputError(
        "--dataset: expected MODEL, whose tokenizer reads the prompts, got a built-in shape.");
  }
  const auto tokenizer = load_tokenizer(check_model_dir(options.model.model));
  std::ifstream file(options.dataset);
  if (!file) throw InputError(str(options.dataset, ": cannot read."));
  std::vector<GenerateRequest> requests;
  std::ostringstream answers;
  for_each_json_line(file, answers, [&](const OrderedJson& line) -> OrderedJson {
    if (static_cast<int64_t>(requests.size()) == options.num_prompts) return {};
    if (!line.contains("prompt") || !line.at("prompt").is_string()) {
      throw InputError(
          "'prompt': expected a text. Each line is {\"prompt\": ..., "
          "\"output_len\": ...}.");
    }
    requests.push_back(request_of(tokenizer->encode(line.at("prompt").get<std::string>(), true),
                                  output_len_of(line, options.output_len)));
    return {};
  });
  if (requests.empty()) {
    throw InputError(str(options.dataset, ": expected lines with a prompt, got none."));
  }
  return requests;
}

EngineConfig engine_config(const ThroughputOptions& options, const BenchModel& bench,
                           const std::vector<GenerateRequest>& requests) {
  EngineConfig config = options.engine;
  config.kv_dtype = bench.kv_dtype;
  config.precision = precision_mode_of(bench.loaded);
  config.max_model_len = options.model.max_model_len;
  if (config.max_model_len == 0) {
    for (const GenerateRequest& request : requests) {
      config.max_model_len =
          std::max(config.max_model_len,
                   static_cast<int64_t>(request.prompt_ids.size()) + request.sampling.max_tokens);
    }
  }
  config.max_num_queued = static_cast<int64_t>(requests.size());
  config.has_prefix_caching = false;  // every prompt must be computed
  return config;
}

void check(const GenerateResult& result) {
  if (result.submit.status != Submit::kQueued) throw InputError(result.submit.message);
  if (result.finish_reason == FinishReason::kError) throw DeviceError(result.error);
}

ThroughputReport run_requests(Engine& engine, const std::vector<GenerateRequest>& requests) {
  ThroughputReport report;
  report.before = engine.stats();
  const auto start = std::chrono::steady_clock::now();
  const std::vector<GenerateResult> results = generate_all(engine, requests);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.after = engine.stats();
  report.num_requests = static_cast<int64_t>(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const GenerateResult& result = results[i];
    check(result);
    const auto num_tokens = static_cast<int64_t>(result.token_ids.size());
    report.num_prompt_tokens += static_cast<int64_t>(requests[i].prompt_ids.size());
    report.num_output_tokens += num_tokens;
    report.first_tokens.push_back(result.token_seconds.front());
    if (num_tokens > 1) {
      report.output_tokens.push_back((result.token_seconds.back() - result.token_seconds.front()) /
                                     static_cast<double>(num_tokens - 1));
    }
  }
  return report;
}

OrderedJson json_of(const std::vector<double>& values) {
  const Summary summary = summarize(values, {99});
  return {{"mean", summary.mean}, {"median", summary.median}, {"p99", percentile(values, 99)}};
}

OrderedJson json_of(const ThroughputReport& report, const EngineConfig& config) {
  const auto per_second = [&](int64_t count) {
    return static_cast<double>(count) / report.seconds;
  };
  return {{"num_prompts", report.num_requests},
          {"num_prompt_tokens", report.num_prompt_tokens},
          {"num_output_tokens", report.num_output_tokens},
          {"max_num_seqs", config.max_num_seqs},
          {"max_num_batched_tokens", config.max_num_batched_tokens},
          {"itl_target", text_of(config.itl_target)},
          {"max_model_len", config.max_model_len},
          {"kv_cache_tokens", report.after.num_pages * config.page_tokens},
          {"elapsed_s", report.seconds},
          {"requests_per_s", per_second(report.num_requests)},
          {"total_tokens_per_s", per_second(report.num_prompt_tokens + report.num_output_tokens)},
          {"output_tokens_per_s", per_second(report.num_output_tokens)},
          {"time_to_first_token_s", json_of(report.first_tokens)},
          {"time_per_output_token_s", json_of(report.output_tokens)},
          {"num_preemptions", report.after.num_preemptions - report.before.num_preemptions}};
}

OrderedJson json_of(const FloorSum& floor, double seconds) {
  const double sum = floor.prefill_seconds + floor.decode_seconds;
  return {{"num_prefill_steps", floor.num_prefill_steps},
          {"num_decode_steps", floor.num_decode_steps},
          {"largest_batch", floor.num_sequences_max},
          {"prefill_floor_s", floor.prefill_seconds},
          {"decode_floor_s", floor.decode_seconds},
          {"roofline_s", sum},
          {"roofline_share", sum / seconds}};
}

/// Splits the time between the device and the host, which launches steps and waits for them.
OrderedJson json_of(const StepTimes& times, const FloorSum& floor) {
  const auto per_step = [](double seconds, int64_t count) {
    return count > 0 ? seconds / static_cast<double>(count) : 0.0;
  };
  return {
      {"decode_steps_s", times.decode_seconds},
      {"prefill_steps_s", times.prefill_seconds},
      {"idle_between_steps_s", times.idle_seconds},
      {"decode_step_s", per_step(times.decode_seconds, floor.num_decode_steps)},
      {"decode_step_floor_s", per_step(floor.decode_seconds, floor.num_decode_steps)},
      {"decode_step_sequences", times.decode_sequences},
      {"host_decode_launch_s", per_step(times.decode_launch_seconds, floor.num_decode_steps)},
      {"host_prefill_launch_s", per_step(times.prefill_launch_seconds, floor.num_prefill_steps)},
      {"host_waits_s", times.wait_seconds}};
}

OrderedJson measure(const ThroughputOptions& options) {
  std::vector<GenerateRequest> requests;
  if (!options.dataset.empty()) requests = read_dataset(options);
  BenchModel bench = load_bench_model(options.model);
  const int64_t vocab_size = bench.model->shape().vocab_size;
  if (options.dataset.empty()) {
    requests = make_batch(options.num_prompts, options.input_len, options.output_len, vocab_size);
  }
  const EngineConfig config = engine_config(options, bench, requests);
  OrderedJson json = facts_of(bench, options.model);
  Engine engine(std::move(bench.counted), nullptr, {}, config);
  // A warm-up with one prompt and a few decodes: the first use of a kernel is not measured.
  GenerateRequest warmup = requests.front();
  warmup.sampling.max_tokens = std::min<int64_t>(4, warmup.sampling.max_tokens);
  check(generate_all(engine, {std::move(warmup)}).front());
  WeightReads reads(bench);
  reads.read();
  bench.steps->take();
  const ThroughputReport report = run_requests(engine, requests);
  reads.read();
  const DeviceRates rates = rates_of(bench, options.rates, reads.bytes_per_second());
  json.update(json_of(report, engine.config()));
  const std::vector<CountedStep> steps = bench.steps->take();
  const FloorSum floor = sum_floors(steps, bench.steps->cost().linear_type, rates);
  json.update(json_of(floor, report.seconds));
  const StepTimes times = sum_times(steps);
  if (times.decode_seconds + times.prefill_seconds > 0)
    json["device_times"] = json_of(times, floor);
  json["rates"] = rates_json(rates, bench.is_on_host ? kRatesOfHost : kRatesOfDevice);
  return json;
}

void print_text(const OrderedJson& json) {
  const auto number = [&](const char* name) { return json.at(name).get<double>(); };
  const auto count = [&](const char* name) {
    return static_cast<long long>(json.at(name).get<int64_t>());
  };
  std::printf("Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n",
              number("requests_per_s"), number("total_tokens_per_s"),
              number("output_tokens_per_s"));
  std::printf("Total num prompt tokens:  %lld\nTotal num output tokens:  %lld\n",
              count("num_prompt_tokens"), count("num_output_tokens"));
  std::printf(
      "Steps: %lld with prefill, %lld of decodes alone; largest batch %lld sequences; %lld "
      "preemptions\n",
      count("num_prefill_steps"), count("num_decode_steps"), count("largest_batch"),
      count("num_preemptions"));
  std::printf(
      "Roofline: %.3f s of %.3f s, %.1f %% (floors: prefill %.3f s, decode %.3f s; rates: %s)\n",
      number("roofline_s"), number("elapsed_s"), 100 * number("roofline_share"),
      number("prefill_floor_s"), number("decode_floor_s"),
      json.at("rates").at("unless_stated").get<std::string>().c_str());
  if (!json.contains("device_times")) return;
  const OrderedJson& device = json.at("device_times");
  const auto of_device = [&](const char* name) { return device.at(name).get<double>(); };
  std::printf(
      "Device: steps with prefill %.3f s, of decodes alone %.3f s (%.3f ms each of %.1f sequences, "
      "floor %.3f ms), idle %.3f s\n",
      of_device("prefill_steps_s"), of_device("decode_steps_s"), 1e3 * of_device("decode_step_s"),
      of_device("decode_step_sequences"), 1e3 * of_device("decode_step_floor_s"),
      of_device("idle_between_steps_s"));
  std::printf(
      "Host: %.0f us to launch a step of decodes alone, %.0f us one with prefill; waits for the "
      "device %.1f %% of the time\n",
      1e6 * of_device("host_decode_launch_s"), 1e6 * of_device("host_prefill_launch_s"),
      100 * of_device("host_waits_s") / number("elapsed_s"));
}

}  // namespace

Run add_bench_throughput(CLI::App& bench) {
  CLI::App& app =
      *bench.add_subcommand("throughput", "Time many concurrent requests, without a server");
  auto options = std::make_shared<ThroughputOptions>();
  add_model_options(app, options->model);
  add_precision_option(app, options->model);
  add_length_option(app, options->model);
  const auto add = [&](const std::string& name, int64_t& value, const std::string& text,
                       int64_t least) {
    app.add_option(name, value, text)->check(CLI::Range(least, kTokensMax))->capture_default_str();
  };
  add("--num-prompts", options->num_prompts, "Number of requests; with --dataset, its first ones",
      1);
  add("--input-len", options->input_len, "Prompt tokens per request, random", 1);
  add("--output-len", options->output_len, "Output tokens per request; EOS is ignored", 1);
  app.add_option(
      "--dataset", options->dataset,
      "File of prompts, one JSON object per line: {\"prompt\": text, \"output_len\": n}; "
      "output_len defaults to --output-len");
  add("--max-num-seqs", options->engine.max_num_seqs,
      "Maximum of running sequences; 0: the engine's default", 0);
  add("--max-num-batched-tokens", options->engine.max_num_batched_tokens,
      "Tokens of one step; 0: the engine's default", 0);
  add_itl_target_option(app, options->engine, "off");
  add_rate_options(app, options->rates);
  app.add_flag("--json", options->is_json, "One JSON object instead of text");
  app.add_option("--output-json", options->output_json, "Also write the JSON object to a file");
  app.footer(
      R"(The roofline is the sum of the steps' floors. A floor is the longer of the time to
read weights and KV cache and the time to compute. On the CPU only reads count, unless --peak-f16
is given.

Examples:
  halley bench throughput models/demo-21m --num-prompts 16
  halley bench throughput --load-format dummy --config llama-3-8b --num-prompts 512 \
    --input-len 1024 --output-len 512 --output-json result.json)");
  return [options] {
    find_model(options->model);
    const OrderedJson json = measure(*options);
    write_json(json, options->output_json, options->is_json);
    if (!options->is_json) print_text(json);
    return static_cast<int>(kExitOk);
  };
}

}  // namespace halley::cli
