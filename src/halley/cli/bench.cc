// `halley bench`, and `halley bench latency`: times of one batch of requests, and the memory
// traffic behind them.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/batch_run.h"
#include "halley/cli/bench_serve.h"
#include "halley/cli/command.h"
#include "halley/cli/model_options.h"
#include "halley/client/load/summary.h"
#include "halley/json/json.h"
#include "halley/kernels/base/read_bandwidth.h"

namespace halley::cli {
namespace {

struct LatencyOptions {
  ModelOptions model;
  int64_t input_len = 32;
  int64_t output_len = 128;
  int64_t batch_size = 1;
  int num_warmup = 1;
  int num_iters = 3;
  bool is_json = false;
  std::string output_json;
};

struct LatencyReport {
  std::string model, dtype, kv_dtype;
  std::string format, kernels;
  double packed_bytes = 0;  // of all weights
  LoadTimes times;
  int num_threads = 0;
  std::vector<BatchTimes> iterations;
  double step_bytes = 0;        // weights and KV that one decode step reads
  double read_bytes_per_s = 0;  // plain reads of the model's own weights, all threads
};

template <typename Field>
std::vector<double> column(const LatencyReport& report, Field BatchTimes::*field) {
  std::vector<double> values;
  for (const BatchTimes& iteration : report.iterations) values.push_back(iteration.*field);
  return values;
}

OrderedJson json_of(const LatencyOptions& options, const LatencyReport& report) {
  const std::vector<double> latencies = column(report, &BatchTimes::latency);
  const double first_token = median(column(report, &BatchTimes::first_token));
  const double output_token = median(column(report, &BatchTimes::output_token));
  const auto num_sequences = static_cast<double>(options.batch_size);
  const double prompt_rate = num_sequences * static_cast<double>(options.input_len) / first_token;
  const double output_rate = output_token > 0 ? num_sequences / output_token : 0;
  const double decode_bytes = output_token > 0 ? report.step_bytes / output_token : 0;
  return {{"device", cpu_name()},
          {"threads", report.num_threads},
          {"model", report.model},
          {"dtype", report.dtype},
          {"format", report.format},
          {"kernels", report.kernels},
          {"packed_bytes", report.packed_bytes},
          {"load",
           {{"read_s", report.times.read},
            {"repack_s", report.times.pack},
            {"self_check_s", report.times.self_check}}},
          {"kv_dtype", report.kv_dtype},
          {"input_len", options.input_len},
          {"output_len", options.output_len},
          {"batch_size", options.batch_size},
          {"avg_latency", std::accumulate(latencies.begin(), latencies.end(), 0.0) /
                              static_cast<double>(latencies.size())},
          {"latencies", latencies},
          {"percentiles",
           {{"10", percentile(latencies, 10)},
            {"50", percentile(latencies, 50)},
            {"90", percentile(latencies, 90)},
            {"99", percentile(latencies, 99)}}},
          {"time_to_first_token_s", first_token},
          {"time_per_output_token_s", output_token},
          {"prompt_tokens_per_s", prompt_rate},
          {"output_tokens_per_s", output_rate},
          {"prompt_to_output_ratio", output_rate > 0 ? prompt_rate / output_rate : 0},
          {"decode_step_bytes", report.step_bytes},
          {"decode_bytes_per_s", decode_bytes},
          {"read_bytes_per_s", report.read_bytes_per_s},
          {"decode_share_of_read_bandwidth",
           report.read_bytes_per_s > 0 ? decode_bytes / report.read_bytes_per_s : 0}};
}

void print_text(const OrderedJson& json) {
  const auto number = [&](const char* name) { return json.at(name).get<double>(); };
  std::printf("Avg latency: %g seconds\n", number("avg_latency"));
  for (const auto& [percent, seconds] : json.at("percentiles").items()) {
    std::printf("%s%% percentile latency: %g seconds\n", percent.c_str(), seconds.get<double>());
  }
  std::printf("Time to first token: %.4f s (%.1f prompt tokens/s)\n",
              number("time_to_first_token_s"), number("prompt_tokens_per_s"));
  std::printf("Time per output token: %.4f s (%.1f tokens/s)\n", number("time_per_output_token_s"),
              number("output_tokens_per_s"));
  std::printf(
      "Decode reads %s a step: %s/s, %.1f %% of the %s/s that plain reads of the same "
      "weights reach\n",
      format_bytes(number("decode_step_bytes")).c_str(),
      format_bytes(number("decode_bytes_per_s")).c_str(),
      100 * number("decode_share_of_read_bandwidth"),
      format_bytes(number("read_bytes_per_s")).c_str());
}

// Weights once, and the keys and values of every sequence at the middle of its output. Experts
// count as if no two sequences shared one, up to all of them.
double decode_step_bytes(const LatencyOptions& options, const CausalLm& model, KvDType kv_dtype) {
  const WeightMemory memory = model.weight_memory();
  const auto sum = [](const std::vector<WeightMemory::Bytes>& parts) {
    double num_bytes = 0;
    for (const auto& part : parts) num_bytes += static_cast<double>(part.size());
    return num_bytes;
  };
  const double expert_share =
      std::min(1.0, memory.expert_share * static_cast<double>(options.batch_size));
  const int64_t num_positions = options.input_len + options.output_len / 2;
  const double kv_bytes = static_cast<double>(kv_bytes_per_token(model.shape(), kv_dtype)) *
                          static_cast<double>(num_positions * options.batch_size);
  return sum(memory.always_read) + expert_share * sum(memory.experts) + kv_bytes;
}

LatencyReport measure(const LatencyOptions& options) {
  LoadedModel loaded = load_model_files(options.model);
  const CausalLm& model = *loaded.model;  // the engine owns it from below on
  std::vector<double> reads;
  const auto read_weights = [&] {
    const WeightMemory memory = model.weight_memory();
    std::vector<WeightMemory::Bytes> parts = memory.always_read;
    parts.insert(parts.end(), memory.experts.begin(), memory.experts.end());
    reads.push_back(measure_read_bandwidth(*loaded.context, parts, 1));
  };
  LatencyReport report;
  report.model = options.model.model.empty() ? options.model.config_name : options.model.model;
  report.dtype = name_of(loaded.plan.config.dtype);
  report.format = loaded.plan.format;
  report.kernels = kernels_in_words(loaded.plan);
  report.packed_bytes = static_cast<double>(loaded.plan.packed_bytes);
  report.times = loaded.times;
  report.num_threads = loaded.pool->num_threads();
  const KvDType kv_dtype =
      parse_kv_dtype(options.model.kv_dtype).value_or(model.shape().kv_dtype_default);
  report.kv_dtype = name_of(kv_dtype);
  report.step_bytes = decode_step_bytes(options, model, kv_dtype);
  EngineConfig config;
  config.kv_dtype = kv_dtype;
  config.max_model_len = options.model.max_model_len > 0 ? options.model.max_model_len
                                                         : options.input_len + options.output_len;
  config.max_num_seqs = options.batch_size;
  config.max_num_batched_tokens = std::max<int64_t>(512, options.batch_size);
  config.has_prefix_caching = false;  // every iteration has the same prompts, and computes them
  const auto requests = make_batch(options.batch_size, options.input_len, options.output_len,
                                   model.shape().vocab_size);
  Engine engine(std::move(loaded.model), nullptr, {}, config);
  for (int i = 0; i < options.num_warmup; ++i) run_batch(engine, requests);
  // The machine's bandwidth changes with its other load: reads alternate with what they are the
  // yardstick of, and both are reported as medians. The engine is idle while the weights are read.
  constexpr int kReadsPerIteration = 5;
  for (int i = 0; i < options.num_iters; ++i) {
    report.iterations.push_back(run_batch(engine, requests));
    for (int read = 0; read < kReadsPerIteration; ++read) read_weights();
  }
  report.read_bytes_per_s = median(reads);
  return report;
}

int run_latency(const LatencyOptions& options) {
  const OrderedJson json = json_of(options, measure(options));
  if (!options.output_json.empty()) {
    std::ofstream file(options.output_json);
    file << json.dump(1) << '\n';
    if (!file.flush()) throw InputError(str(options.output_json, ": cannot write."));
  }
  if (options.is_json) {
    std::cout << json.dump() << '\n';
  } else {
    print_text(json);
  }
  return kExitOk;
}

}  // namespace

Run add_bench(CLI::App& parent) {
  CLI::App& bench = *parent.add_subcommand("bench", "Measure speed");
  bench.require_subcommand(1);
  CLI::App& app = *bench.add_subcommand("latency", "Times of one batch, and its memory traffic");
  auto options = std::make_shared<LatencyOptions>();
  add_model_options(app, options->model);
  add_length_option(app, options->model);
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    app.add_option(name, value, text)->check(CLI::PositiveNumber)->capture_default_str();
  };
  add("--input-len", options->input_len, "Prompt tokens of a request");
  add("--output-len", options->output_len, "Output tokens of a request");
  add("--batch-size", options->batch_size, "Requests that run together");
  app.add_option("--num-iters-warmup", options->num_warmup, "Iterations that are not counted")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add("--num-iters", options->num_iters, "Iterations; medians are reported");
  app.add_flag("--json", options->is_json, "One JSON object instead of text");
  app.add_option("--output-json", options->output_json, "Also write the JSON object to a file");
  app.footer(R"(Examples:
  halley bench latency models/demo-21m
  halley bench latency --load-format dummy --config llama-1b --dtype bfloat16 --input-len 512)");
  const Run serve = add_bench_serve(bench);
  bench.footer(R"(Examples:
  halley bench latency models/demo-21m
  halley bench serve --model demo --request-rate 4 --num-prompts 100)");
  return [options, &app, serve] { return app.parsed() ? run_latency(*options) : serve(); };
}

}  // namespace halley::cli
