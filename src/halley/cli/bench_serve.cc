// `halley bench serve`: sends load to any server with the OpenAI API and measures its answers.
#include <algorithm>
#include <cstdio>
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
#include "halley/cli/load_output.h"
#include "halley/cli/load_plots.h"
#include "halley/cli/named_model.h"
#include "halley/client/http/http_client.h"
#include "halley/client/load/load_report.h"
#include "halley/client/load/load_run.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

struct ServeOptions {
  ServeLoadOptions load;
  std::string base_url = "http://127.0.0.1:8000";
  int64_t max_concurrency = 0;
  int64_t num_warmups = 0;
  int64_t timeout = 600;  // seconds
  LoadOutputOptions output;
  std::string json_file, svg_file;
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
      {"seed", load.traffic.seed}, {"max_concurrency", nullptr}, {"ignore_eos", load.ignore_eos}};
  if (options.max_concurrency > 0) json["max_concurrency"] = options.max_concurrency;
  add_traffic_json(load.traffic, json);
  if (!options.output.slo.empty()) json["slo"] = options.output.slo;
  return json;
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
  LoadReportOptions report_options =
      report_options_of(options.output, options.load.traffic, load.traffic());
  report_options.max_concurrency = options.max_concurrency;
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
  if (options.num_warmups > 0) {
    const size_t num_warmups =
        std::min(static_cast<size_t>(options.num_warmups), load.traffic().arrivals.size());
    run_load(client, std::vector<double>(num_warmups, 0.0), make_body, run_options);
  }
  const LoadResult result = run_load(client, load.traffic().arrivals, make_body, run_options);
  const LoadReport report = make_load_report(result, report_options);
  print_load(report, report_options, options.output);
  print_errors(result);
  print_doubts(report, options);
  if (!options.json_file.empty()) {
    OrderedJson json = settings_json(options, load.traffic().arrivals.size());
    if (!metadata.empty()) json["metadata"] = metadata;
    json.update(load_report_json(report, result, report_options));
    write_file(options.json_file, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  const std::string& title = options.load.model;
  if (!options.svg_file.empty()) write_file(options.svg_file, plot_distributions(result, title));
  const std::string& timeline_file = options.output.timeline_file;
  if (!timeline_file.empty()) {
    write_file(timeline_file, plot_seconds(report.seconds, report_options.slo, title));
  }
  return report.completed > 0 ? kExitOk : kExitInternal;
}

void add_load_options(CLI::App& app, ServeLoadOptions& load) {
  add_traffic_options(app, load.traffic);
  constexpr const char* kGroup = "Load";
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->group(kGroup)->capture_default_str();
  };
  add("--tokenizer", load.tokenizer,
      "Model directory, GGUF file or ORG/NAME in the cache, for prompts of exact length; without "
      "it a word counts as a "
      "token");
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
  add_load_output_options(app, options.output);
  constexpr const char* kGroup = "Report";
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->group(kGroup);
  };
  add("--json", options.json_file, "Write the report and every request to a file");
  add("--svg", options.svg_file, "Plot the distributions of TTFT and TPOT to a file");
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
  return [options] {
    options->load.tokenizer = find_model(options->load.tokenizer, {});
    return run_serve(*options);
  };
}

}  // namespace halley::cli
