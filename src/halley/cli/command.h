// The subcommands of the program: each adds its options to the parser and gives a function to run.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace halley::cli {

/// Exit codes, documented in --help and the README.
enum ExitCode : int {
  kExitOk = 0,
  kExitInternal = 1,     // the machine failed, or a bug
  kExitUsage = 2,        // a wrong option, input or configuration file
  kExitCheckpoint = 3,   // the checkpoint's files are damaged or contradict each other
  kExitUnsupported = 4,  // well-formed, but not supported
  kExitInterrupted = 130,
};

/// Called after parsing; returns the exit code and throws halley::Error.
using Run = std::function<int()>;

struct Command {
  const char* name;
  /// Adds the subcommand to `parent` and returns what to call when it was chosen.
  Run (*add)(CLI::App& parent);
};

Run add_generate(CLI::App& parent);
Run add_compare(CLI::App& parent);
Run add_eval(CLI::App& parent);
Run add_formats(CLI::App& parent);
Run add_inspect(CLI::App& parent);
Run add_pull(CLI::App& parent);
Run add_quantize(CLI::App& parent);
Run add_serve(CLI::App& parent);
Run add_simulate(CLI::App& parent);
Run add_tokenize(CLI::App& parent);
Run add_template(CLI::App& parent);
Run add_bench(CLI::App& parent);
Run add_tune(CLI::App& parent);

}  // namespace halley::cli
