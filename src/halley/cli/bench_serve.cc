// `halley bench serve`: sends load to any server with the OpenAI API and measures its answers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/bench.h"
#include "halley/cli/bench_model.h"
#include "halley/cli/bench_serve_load.h"
#include "halley/cli/file_limit.h"
#include "halley/cli/load_plots.h"
#include "halley/client/http/http_client.h"
#include "halley/client/load/load_report.h"
#include "halley/client/load/load_run.h"
#include "halley/client/load/series_report.h"
#include "halley/json/json.h"
#include "halley/slo/slo.h"

namespace halley::cli {
namespace {

struct ServeOptions {
  ServeLoadOptions load;
  std::string base_url = "http://127.0.0.1:8000";
  int64_t max_concurrency = 0;
  int64_t num_warmups = 0;
  int64_t timeout = 600;  // seconds
  std::string slo;
  std::vector<std::string> metrics = {"ttft", "tpot", "itl"};
  std::vector<double> percents = {99};
  std::string json_file, svg_file, timeline_file;
  bool prints_seconds = false;
  std::vector<std::string> metadata;  // NAME=VALUE
};

// Each error once, the most frequent first.
void print_errors(const LoadResult& result) {
  std::map<std::string, int64_t> counts;
  for (const LoadOutcome& outcome : result.outcomes) {
    if (!outcome.error.empty()) ++counts[outcome.error];
  }
  std::vector<std::pair<int64_t, std::string>> errors;
  for (const auto& [error, count] : counts) errors.emplace_back(-count, error);
  std::sort(errors.begin(), errors.end());
  constexpr size_t kErrorsShown = 5;
  for (size_t i = 0; i < std::min(errors.size(), kErrorsShown); ++i) {
    std::fprintf(stderr, "failed requests: %lld: %s\n", static_cast<long long>(-errors[i].first),
                 errors[i].second.c_str());
  }
}

void print_doubts(const LoadReport& report, const ServeOptions& options) {
  if (!report.has_usage) {
    std::fprintf(stderr, "output tokens: the server sends no usage; events are counted instead\n");
  }
  // An end token without text is no event: one in twenty tokens is not worth a word.
  constexpr double kTokensPerEventMax = 1.05;
  if (report.tokens_per_event > kTokensPerEventMax && !options.load.has_continuous_usage) {
    std::fprintf(
        stderr,
        "events have %.2f tokens on average; ITL and the seconds' TPOT are those of events "
        "(--continuous-usage divides them by tokens)\n",
        report.tokens_per_event);
  }
}

OrderedJson settings_json(const ServeOptions& options, size_t num_prompts) {
  const ServeLoadOptions& load = options.load;
  OrderedJson json = {
      {"date", date_of_today()},   {"halley", HALLEY_VERSION},   {"base_url", options.base_url},
      {"endpoint", load.endpoint}, {"model_id", load.model},     {"num_prompts", num_prompts},
      {"seed", load.seed},         {"max_concurrency", nullptr}, {"ignore_eos", load.ignore_eos}};
  if (options.max_concurrency > 0) json["max_concurrency"] = options.max_concurrency;
  if (load.trace.empty()) {
    json["request_rate"] =
        std::isinf(load.request_rate) ? OrderedJson("inf") : OrderedJson(load.request_rate);
    json["burstiness"] = load.burstiness;
    json["burst_size"] = load.burst_size;
    if (load.peak_rate > 0) {
      json["peak_request_rate"] = load.peak_rate;
      json["peak_period"] = load.peak_period;
    }
    json["random_input_len"] = load.input_len;
    json["random_output_len"] = load.output_len;
    json["random_range_ratio"] = load.range_ratio;
  } else {
    json["trace"] = load.trace;
    json["rate_scale"] = load.rate_scale;
    json["trace_start"] = load.trace_start;
    json["trace_seconds"] =
        std::isinf(load.trace_seconds) ? OrderedJson() : OrderedJson(load.trace_seconds);
  }
  if (!options.slo.empty()) json["slo"] = options.slo;
  return json;
}

LoadReportOptions report_options_of(const ServeOptions& options, const ServeLoad& load) {
  LoadReportOptions report;
  report.percents = options.percents;
  report.metrics = options.metrics;
  if (!options.slo.empty()) report.slo = parse_slo(options.slo, "--slo");
  if (options.load.trace.empty() && std::isfinite(options.load.request_rate)) {
    report.request_rate = options.load.request_rate;
  }
  report.max_concurrency = options.max_concurrency;
  report.input_lens = load.input_lens();
  report.num_load_seconds = load.num_seconds();
  return report;
}

OrderedJson metadata_json(const std::vector<std::string>& metadata) {
  OrderedJson json = OrderedJson::object();
  for (const std::string& entry : metadata) {
    const size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw InputError(str("--metadata: expected NAME=VALUE, got ", quote(entry), "."));
    }
    json[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return json;
}

// It goes into the request line unchanged.
void check_endpoint(const std::string& endpoint) {
  const auto is_wrong = [](char c) { return c <= ' ' || c > '~'; };
  if (!endpoint.starts_with('/') || std::any_of(endpoint.begin(), endpoint.end(), is_wrong)) {
    throw InputError(
        str("--endpoint: expected a path like /v1/completions, got ", quote(endpoint), "."));
  }
}

int run_serve(const ServeOptions& options) {
  check_endpoint(options.load.endpoint);
  const OrderedJson metadata = metadata_json(options.metadata);
  const ServeLoad load(options.load);
  const LoadReportOptions report_options = report_options_of(options, load);
  raise_file_limit();  // every running request has a socket
  HttpClientLimits limits;
  limits.idle_timeout = std::chrono::seconds(options.timeout);
  HttpClient client(parse_http_url(options.base_url), limits);
  LoadRunOptions run_options;
  run_options.target = options.load.endpoint;
  run_options.headers = {{"Content-Type", "application/json"}, {"Accept", "text/event-stream"}};
  if (const auto key = env_string("OPENAI_API_KEY")) {
    run_options.headers.emplace_back("Authorization", "Bearer " + *key);
  }
  run_options.max_concurrency = options.max_concurrency;
  const auto make_body = [&](size_t index) { return load.make_body(index); };
  if (load.num_shortened() > 0) {
    std::fprintf(stderr, "%zu of %zu requests of the trace are shortened\n", load.num_shortened(),
                 load.arrivals().size());
  }
  if (options.num_warmups > 0) {
    const size_t num_warmups =
        std::min(static_cast<size_t>(options.num_warmups), load.arrivals().size());
    run_load(client, std::vector<double>(num_warmups, 0.0), make_body, run_options);
  }
  const LoadResult result = run_load(client, load.arrivals(), make_body, run_options);
  const LoadReport report = make_load_report(result, report_options);
  std::cout << format_load_report(report, report_options);
  if (options.prints_seconds) std::cout << format_load_series(report.seconds, report_options.slo);
  std::cout << std::flush;
  print_errors(result);
  print_doubts(report, options);
  if (!options.json_file.empty()) {
    OrderedJson json = settings_json(options, load.arrivals().size());
    if (!metadata.empty()) json["metadata"] = metadata;
    json.update(load_report_json(report, result, report_options));
    write_file(options.json_file, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  const std::string& title = options.load.model;
  if (!options.svg_file.empty()) write_file(options.svg_file, plot_distributions(result, title));
  if (!options.timeline_file.empty()) {
    write_file(options.timeline_file, plot_seconds(report.seconds, report_options.slo, title));
  }
  return report.completed > 0 ? kExitOk : kExitInternal;
}

void add_load_options(CLI::App& app, ServeLoadOptions& load) {
  constexpr const char* kGroup = "Load";
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->group(kGroup)->capture_default_str();
  };
  const CLI::Range rates(1e-6, std::numeric_limits<double>::infinity());
  constexpr int64_t kTokensMax = 10'000'000;
  const CLI::Range lengths(int64_t{1}, kTokensMax);
  add("--num-prompts", load.num_prompts,
      "Number of requests (1000 unless given); with --trace, at most its first ones (all)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  add("--request-rate", load.request_rate, "Requests per second; inf: all at once")->check(rates);
  add("--burstiness", load.burstiness,
      "Gamma shape of the intervals; 1: Poisson, less: more bursty, inf: even")
      ->check(rates);
  add("--burst-size", load.burst_size, "Requests that are sent together")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  auto* peak = add("--peak-request-rate", load.peak_rate,
                   "Let the rate swing from --request-rate up to this and back")
                   ->check(CLI::Range(1e-6, 1e6))
                   ->needs("--request-rate");
  add("--peak-period", load.peak_period, "Seconds from one peak of the rate to the next")
      ->check(CLI::Range(1e-3, 1e6))
      ->needs(peak);
  auto* trace = add("--trace", load.trace,
                    "CSV of TIMESTAMP, ContextTokens, GeneratedTokens: replaces rate and lengths");
  for (const char* name :
       {"--request-rate", "--burstiness", "--burst-size", "--peak-request-rate"}) {
    trace->excludes(name);
  }
  constexpr double kTraceSecondsMax = 1e9;
  add("--trace-start", load.trace_start, "Begin at this second of the trace")
      ->check(CLI::Range(0.0, kTraceSecondsMax))
      ->needs(trace);
  add("--trace-seconds", load.trace_seconds, "Replay this many seconds of the trace; inf: all")
      ->check(CLI::Range(1e-3, std::numeric_limits<double>::infinity()))
      ->needs(trace);
  add("--rate-scale", load.rate_scale, "Replay the trace this many times as fast")
      ->check(CLI::Range(1e-6, 1e6))
      ->needs(trace);
  add("--trace-max-input-len", load.trace_max_input, "Shorten prompts of the trace")
      ->check(lengths)
      ->needs(trace);
  add("--trace-max-output-len", load.trace_max_output, "Shorten answers of the trace")
      ->check(lengths)
      ->needs(trace);
  add("--random-input-len", load.input_len, "Prompt tokens per request")->check(lengths);
  add("--random-output-len", load.output_len, "Output tokens per request (max_tokens)")
      ->check(lengths);
  add("--random-range-ratio", load.range_ratio, "Lengths vary by up to this fraction, both ways")
      ->check(CLI::Range(0.0, 0.999));
  add("--tokenizer", load.tokenizer,
      "Model directory, for prompts of exact length; without it a word counts as a token");
  add("--seed", load.seed, "Seed of the load");
  add("--temperature", load.temperature, "Temperature of every request")
      ->check(CLI::Range(0.0, 2.0));
  app.add_flag("--ignore-eos", load.ignore_eos,
               "Send ignore_eos, for outputs of the exact length; not all servers support it")
      ->group(kGroup);
  app.add_flag("--continuous-usage", load.has_continuous_usage,
               "Ask for the usage in every event, to tell tokens and their precision from events; "
               "not all servers support it")
      ->group(kGroup);
}

void add_report_options(CLI::App& app, ServeOptions& options) {
  constexpr const char* kGroup = "Report";
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->group(kGroup);
  };
  add("--slo", options.slo,
      "Objectives for goodput and seconds of violation: ttft=200ms,tpot=33ms,e2el=5s");
  add("--percentile-metrics", options.metrics, "Metrics to print: ttft, tpot, itl, e2el")
      ->delimiter(',')
      ->check(CLI::IsMember({"ttft", "tpot", "itl", "e2el"}))
      ->capture_default_str();
  add("--metric-percentiles", options.percents, "Percentiles to print: 50,90,99")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  add("--json", options.json_file, "Write the report and every request to a file");
  add("--svg", options.svg_file, "Plot the distributions of TTFT and TPOT to a file");
  app.add_flag("--per-second", options.prints_seconds,
               "Print rate, tokens, percentiles and violations of every second")
      ->group(kGroup);
  add("--timeline-svg", options.timeline_file,
      "Plot rate, TTFT, TPOT and precision over the seconds to a file");
  add("--metadata", options.metadata,
      "NAME=VALUE, entries for the JSON: device=H200 commit=1a2b3c");
}

}  // namespace

Run add_bench_serve(CLI::App& bench) {
  CLI::App& app = *bench.add_subcommand("serve", "Send load to a server and measure its answers");
  auto options = std::make_shared<ServeOptions>();
  app.add_option("--base-url", options->base_url, "URL of the server")->capture_default_str();
  app.add_option("--model", options->load.model, "Name of the model in requests")->required();
  app.add_option("--endpoint", options->load.endpoint,
                 "/v1/completions, or a path with chat/completions")
      ->capture_default_str();
  app.add_option(
         "--max-concurrency", options->max_concurrency,
         "Maximum of concurrent requests; the time of one that waits starts when it is sent")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app.add_option("--num-warmups", options->num_warmups, "Warm-up requests, not counted")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--timeout", options->timeout,
                 "Seconds without a byte after which a request fails")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}))
      ->capture_default_str();
  add_load_options(app, options->load);
  add_report_options(app, *options);
  app.footer(R"(OPENAI_API_KEY, if it is set, is sent as the API key.

Examples:
  halley bench serve --model demo --request-rate 4 --num-prompts 100 --random-input-len 128
  halley bench serve --model demo --trace AzureLLMInferenceTrace_conv.csv --rate-scale 2 \
    --num-prompts 500 --slo ttft=200ms,tpot=33ms --json result.json --svg result.svg
  halley bench serve --model demo --trace testdata/traces/azure_llm_2023_conv.csv \
    --trace-start 501 --trace-seconds 60 --slo ttft=200ms,tpot=33.3ms --per-second \
    --timeline-svg minute.svg
  halley bench serve --model demo --request-rate 1 --peak-request-rate 11 --num-prompts 360
  halley bench serve --model demo --endpoint /v1/chat/completions --max-concurrency 8)");
  return [options] { return run_serve(*options); };
}

}  // namespace halley::cli
