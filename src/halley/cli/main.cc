// The program `halley`: parses the command line, runs a subcommand, and turns errors into one line
// on stderr and an exit code. No other file maps errors to exit codes.
#include <array>
#include <cstdio>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "halley/base/error.h"
#include "halley/cli/chat.h"
#include "halley/cli/command.h"
#include "halley/cli/flag_hints.h"
#include "halley/cli/rank_options.h"
#include "halley/parallel/mpi/mpi_communicator.h"

namespace halley::cli {
namespace {

constexpr std::array<Command, 14> kCommands = {{
    {"pull", add_pull},
    {"generate", add_generate},
    {"chat", add_chat},
    {"compare", add_compare},
    {"eval", add_eval},
    {"quantize", add_quantize},
    {"serve", add_serve},
    {"formats", add_formats},
    {"inspect", add_inspect},
    {"tokenize", add_tokenize},
    {"template", add_template},
    {"bench", add_bench},
    {"simulate", add_simulate},
    {"tune", add_tune},
}};

constexpr const char* kFooter = R"(Examples:
  halley generate models/demo-21m --prompt "The Python programming language" --temperature 0
  halley eval models/demo-21m --perplexity testdata/text/docs_heldout.txt
  halley serve models/demo-21m
  halley pull Qwen/Qwen2.5-0.5B-Instruct
  halley inspect models/demo-21m
  halley bench latency --load-format dummy --config llama-1b

Exit codes: 0 success; 1 the machine failed, or a bug; 2 wrong option, input or configuration;
3 damaged or contradictory checkpoint; 4 not supported; 130 interrupted.)";

int report(const char* what, int exit_code) {
  std::cout.flush();
  std::fprintf(stderr, "halley: %s\n", what);
  return exit_code;
}

// One line: what the parser says, what helps, and where the help is.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string text = error.what();
  std::string command = "halley";
  for (const CLI::App* parsed : app.get_subcommands()) {
    command += " " + parsed->get_name();
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const bool is_unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    const std::string advice = is_unknown ? advice_for_flags(*parsed, arguments) : std::string();
    if (!advice.empty()) text += ". " + advice;
  }
  if (text.back() != '.' && text.back() != '?') text += '.';
  return text + " Try '" + command + " --help'.";
}

int run_program(int argc, char** argv) {
  CLI::App app("Halley: low-precision inference of large language models");
  app.name("halley");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("halley ") + HALLEY_VERSION);
  std::vector<std::pair<CLI::App*, Run>> runs;
  for (const Command& command : kCommands) {
    Run run = command.add(app);
    runs.emplace_back(app.get_subcommand(command.name), std::move(run));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return report(usage_error(app, error, argc, argv).c_str(), kExitUsage);
  }
  for (const auto& [subcommand, run] : runs) {
    if (!subcommand->parsed()) continue;
    const int exit_code = run();
    leave_job();  // all that needs it is gone
    return exit_code;
  }
  return kExitUsage;
}

// The exit code; errors have been reported.
int run_guarded(int argc, char** argv) {
  try {
    return run_program(argc, argv);
  } catch (const RankHasEnded&) {
    leave_job();
    return kExitOk;
  } catch (const InputError& error) {
    return report(error.what(), kExitUsage);
  } catch (const CheckpointError& error) {
    return report(error.what(), kExitCheckpoint);
  } catch (const UnsupportedError& error) {
    return report(error.what(), kExitUnsupported);
  } catch (const std::bad_alloc&) {
    return report("out of memory. Use a smaller model, a shorter context or fewer sequences.",
                  kExitInternal);
  } catch (const std::exception& error) {
    return report(error.what(), kExitInternal);
  }
}

}  // namespace

}  // namespace halley::cli

int main(int argc, char** argv) {
  const int exit_code = halley::cli::run_guarded(argc, argv);
  if (exit_code != halley::cli::kExitOk) halley::abort_mpi_job(exit_code);
  return exit_code;
}
