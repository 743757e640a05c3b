#include "halley/cli/engine_options.h"

#include "halley/base/str.h"

namespace halley::cli {
namespace {

constexpr const char* kGroup = "Engine";

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
