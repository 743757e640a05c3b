// The engine options of every command that runs an engine.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "halley/engine/engine.h"

namespace halley::cli {

/// --max-num-batched-tokens, --block-size, --kv-cache-memory-bytes and --enable-prefix-caching.
void add_engine_options(CLI::App& app, EngineConfig& config);

/// --itl-target, for commands that run several sequences at once. `config` has its default, which
/// `what_by_default` describes.
void add_itl_target_option(CLI::App& app, EngineConfig& config, const std::string& what_by_default);

/// --max-num-seqs, for commands that run several sequences at once.
void add_num_seqs_option(CLI::App& app, EngineConfig& config);

/// --precision and --slo, for commands whose engine chooses the precision of each step.
void add_step_precision_options(CLI::App& app, EngineConfig& config);

/// An option of the group "Engine" for an integer of at least `min`.
void add_engine_number(CLI::App& app, const std::string& name, int64_t& value, int64_t min,
                       const std::string& text);

}  // namespace halley::cli
