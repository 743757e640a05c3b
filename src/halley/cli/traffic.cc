#include "halley/cli/traffic.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/client/load/arrivals.h"
#include "halley/client/load/trace.h"

namespace halley::cli {
namespace {

constexpr size_t kTraceBytesMax = size_t{1} << 30;
constexpr int64_t kNumPrompts = 1000;
constexpr double kSecondsMax = 1e12;  // of a load

Traffic take_trace(const TrafficOptions& options) {
  Traffic traffic;
  const std::string& path = options.trace;
  std::vector<TraceEntry> entries =
      trace_window(parse_trace(read_text_file(path, kTraceBytesMax), path), options.trace_start,
                   options.trace_seconds, path);
  if (options.num_prompts) {
    entries.resize(std::min(entries.size(), static_cast<size_t>(*options.num_prompts)));
  }
  const auto shorten = [](int64_t length, int64_t limit) {
    return limit > 0 ? std::min(length, limit) : length;
  };
  for (const TraceEntry& entry : entries) {
    traffic.arrivals.push_back(entry.seconds / options.rate_scale);
    traffic.input_lens.push_back(shorten(entry.input_len, options.trace_max_input));
    traffic.output_lens.push_back(shorten(entry.output_len, options.trace_max_output));
    const bool is_whole = traffic.input_lens.back() == entry.input_len &&
                          traffic.output_lens.back() == entry.output_len;
    traffic.num_shortened += is_whole ? 0 : 1;
  }
  return traffic;
}

Traffic draw_traffic(const TrafficOptions& options) {
  if (options.peak_rate > 0 && !(options.peak_rate >= options.request_rate)) {
    throw InputError(str("--peak-request-rate: expected at least --request-rate, ",
                         options.request_rate, ", got ", options.peak_rate, "."));
  }
  Traffic traffic;
  const int64_t num_prompts = options.num_prompts.value_or(kNumPrompts);
  std::mt19937_64 random(options.seed);
  traffic.arrivals = make_arrivals({.num_requests = num_prompts,
                                    .request_rate = options.request_rate,
                                    .burstiness = options.burstiness,
                                    .burst_size = options.burst_size,
                                    .peak_rate = options.peak_rate,
                                    .period = options.peak_period},
                                   random);
  const auto draw = [&](int64_t length) {
    const auto middle = static_cast<double>(length);
    std::uniform_int_distribution<int64_t> range(
        std::max<int64_t>(1, std::llround(middle * (1 - options.range_ratio))),
        std::max<int64_t>(1, std::llround(middle * (1 + options.range_ratio))));
    return range(random);
  };
  for (int64_t i = 0; i < num_prompts; ++i) {
    traffic.input_lens.push_back(draw(options.input_len));
    traffic.output_lens.push_back(draw(options.output_len));
  }
  return traffic;
}

void add_trace_options(CLI::App& app, CLI::Option* trace, TrafficOptions& options) {
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->group("Load")->capture_default_str()->needs(trace);
  };
  constexpr double kTraceSecondsMax = 1e9;
  constexpr int64_t kTokensMax = 10'000'000;
  const CLI::Range lengths(int64_t{1}, kTokensMax);
  add("--trace-start", options.trace_start, "Begin at this second of the trace")
      ->check(CLI::Range(0.0, kTraceSecondsMax));
  add("--trace-seconds", options.trace_seconds, "Replay this many seconds of the trace; inf: all")
      ->check(CLI::Range(1e-3, std::numeric_limits<double>::infinity()));
  add("--rate-scale", options.rate_scale, "Replay the trace this many times as fast")
      ->check(CLI::Range(1e-6, 1e6));
  add("--trace-max-input-len", options.trace_max_input, "Shorten prompts of the trace")
      ->check(lengths);
  add("--trace-max-output-len", options.trace_max_output, "Shorten answers of the trace")
      ->check(lengths);
}

}  // namespace

void add_traffic_options(CLI::App& app, TrafficOptions& options) {
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->group("Load")->capture_default_str();
  };
  const CLI::Range rates(1e-6, std::numeric_limits<double>::infinity());
  constexpr int64_t kTokensMax = 10'000'000;
  const CLI::Range lengths(int64_t{1}, kTokensMax);
  add("--num-prompts", options.num_prompts,
      "Number of requests (1000 unless given); with --trace, at most its first ones (all)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  add("--request-rate", options.request_rate, "Requests per second; inf: all at once")
      ->check(rates);
  add("--burstiness", options.burstiness,
      "Gamma shape of the intervals; 1: Poisson, less: more bursty, inf: even")
      ->check(rates);
  add("--burst-size", options.burst_size, "Requests that are sent together")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  auto* peak = add("--peak-request-rate", options.peak_rate,
                   "Let the rate swing from --request-rate up to this and back")
                   ->check(CLI::Range(1e-6, 1e6))
                   ->needs("--request-rate");
  add("--peak-period", options.peak_period, "Seconds from one peak of the rate to the next")
      ->check(CLI::Range(1e-3, 1e6))
      ->needs(peak);
  auto* trace = add("--trace", options.trace,
                    "CSV of TIMESTAMP, ContextTokens, GeneratedTokens: replaces rate and lengths");
  for (const char* name :
       {"--request-rate", "--burstiness", "--burst-size", "--peak-request-rate"}) {
    trace->excludes(name);
  }
  add_trace_options(app, trace, options);
  add("--random-input-len", options.input_len, "Prompt tokens per request")->check(lengths);
  add("--random-output-len", options.output_len, "Output tokens per request (max_tokens)")
      ->check(lengths);
  add("--random-range-ratio", options.range_ratio, "Lengths vary by up to this fraction, both ways")
      ->check(CLI::Range(0.0, 0.999));
  add("--seed", options.seed, "Seed of the load");
}

void add_traffic_json(const TrafficOptions& options, OrderedJson& json) {
  if (options.trace.empty()) {
    json["request_rate"] =
        std::isinf(options.request_rate) ? OrderedJson("inf") : OrderedJson(options.request_rate);
    json["burstiness"] = options.burstiness;
    json["burst_size"] = options.burst_size;
    if (options.peak_rate > 0) {
      json["peak_request_rate"] = options.peak_rate;
      json["peak_period"] = options.peak_period;
    }
    json["random_input_len"] = options.input_len;
    json["random_output_len"] = options.output_len;
    json["random_range_ratio"] = options.range_ratio;
    return;
  }
  json["trace"] = options.trace;
  json["rate_scale"] = options.rate_scale;
  json["trace_start"] = options.trace_start;
  json["trace_seconds"] =
      std::isinf(options.trace_seconds) ? OrderedJson() : OrderedJson(options.trace_seconds);
}

Traffic make_traffic(const TrafficOptions& options) {
  Traffic traffic = options.trace.empty() ? draw_traffic(options) : take_trace(options);
  const double last = traffic.arrivals.back();
  const double length = std::isinf(options.trace_seconds)
                            ? std::floor(last) + (last > 0 ? 1 : 0)
                            : std::ceil(options.trace_seconds / options.rate_scale);
  traffic.num_seconds = std::llround(std::min(length, kSecondsMax));
  if (traffic.num_shortened > 0) {
    std::fprintf(stderr, "%zu of %zu requests of the trace are shortened\n", traffic.num_shortened,
                 traffic.arrivals.size());
  }
  return traffic;
}

}  // namespace halley::cli
