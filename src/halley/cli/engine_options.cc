#include "halley/cli/engine_options.h"

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
