// `halley bench serve`.
#pragma once

#include "halley/cli/command.h"

namespace halley::cli {

/// Adds the subcommand to `bench`.
Run add_bench_serve(CLI::App& bench);

}  // namespace halley::cli
