#include "halley/cli/engine_options.h"

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cli {
namespace {

constexpr const char* kGroup = "Engine";

/// Reads --slo: the limits that a choice of precision can hold.
Slo engine_slo_of(const std::string& text) {
  const Slo slo = parse_slo(text, "--slo");
  if (!slo.e2el) return slo;
  throw InputError(str("--slo: expected ttft and tpot, like ttft=200ms,tpot=33.3ms, got ",
                       quote(text),
                       ". No precision of a step holds e2el; --request-timeout ends "
                       "requests that take too long."));
}

}  // namespace

void add_engine_number(CLI::App& app, const std::string& name, int64_t& value, int64_t min,
                       const std::string& text) {
  app.add_option(name, value, text)
      ->check(CLI::Range(min, int64_t{1} << 30))
      ->capture_default_str()
      ->group(kGroup);
}

void add_num_seqs_option(CLI::App& app, EngineConfig& config) {
  add_engine_number(app, "--max-num-seqs", config.max_num_seqs, 0,
                    "Maximum of running sequences; 0: 64, on a device 256");
}

void add_itl_target_option(CLI::App& app, EngineConfig& config,
                           const std::string& what_by_default) {
  app.add_option_function<std::string>(
         "--itl-target",
         [&config](const std::string& text) { config.itl_target = itl_target_from_text(text); },
         str("Longest step for requests that decode, while prompts of others are computed: 50ms or "
             "0.05; auto: ",
             ItlTarget::kAutoFactor, " times a step without prompts, at least ",
             1000 * ItlTarget::kAutoSecondsMin, " ms; off: none (default: ", what_by_default, ")"))
      ->group(kGroup);
}

void add_step_precision_options(CLI::App& app, EngineConfig& config) {
  app.add_option_function<std::string>(
         "--precision",
         [&config](const std::string& name) { config.precision = *precision_mode_from_name(name); },
         "Precision of steps, for weights that hold two, unless a request has its own: full; low; "
         "auto: full while that holds the SLOs, else low")
      ->check(CLI::IsMember({"full", "low", "auto"}))
      ->default_str(name_of(config.precision))
      ->group(kGroup);
  app.add_option_function<std::string>(
         "--slo", [&config](const std::string& text) { config.slo = engine_slo_of(text); },
         "Limits of the latency of requests that have none of their own: "
         "ttft=200ms,tpot=33.3ms, or one of them. --precision auto holds them, metrics count what "
         "violates them")
      ->group(kGroup);
}

void add_engine_options(CLI::App& app, EngineConfig& config) {
  add_engine_number(app, "--max-num-batched-tokens", config.max_num_batched_tokens, 0,
                    "Tokens of one step; 0: 512, on a device 8192");
  add_engine_number(app, "--block-size", config.page_tokens, 1, "Tokens per page of the KV cache");
  app.add_option(
         "--kv-cache-memory-bytes", config.kv_bytes,
         "Size of the KV cache, 4GB for example; default: enough for the sequences, at most "
         "a quarter of the memory")
      ->transform(CLI::AsSizeValue(true))
      ->group(kGroup);
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", config.has_prefix_caching,
               "Reuse the KV cache of equal prefixes in later requests (default: on)")
      ->group(kGroup);
}

}  // namespace halley::cli
