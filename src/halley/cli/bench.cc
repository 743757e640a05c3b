// `halley bench`: finds the subcommand that was chosen.
#include "halley/cli/bench.h"

#include <utility>
#include <vector>

namespace halley::cli {

Run add_bench(CLI::App& parent) {
  CLI::App& bench = *parent.add_subcommand("bench", "Measure speed");
  bench.require_subcommand(1);
  std::vector<Command> commands = {
      {"latency", add_bench_latency},
      {"throughput", add_bench_throughput},
      {"serve", add_bench_serve},
      {"serve-overhead", add_bench_serve_overhead},
  };
#ifdef HALLEY_HAS_CUDA
  commands.push_back({"ablation", add_bench_ablation});
  commands.push_back({"all-reduce", add_bench_all_reduce});
  commands.push_back({"attention", add_bench_attention});
  commands.push_back({"experts", add_bench_experts});
  commands.push_back({"gemm", add_bench_gemm});
  commands.push_back({"sampling", add_bench_sampling});
#endif
  std::vector<std::pair<CLI::App*, Run>> runs;
  for (const Command& command : commands) {
    Run run = command.add(bench);
    runs.emplace_back(bench.get_subcommand(command.name), std::move(run));
  }
  bench.footer(R"(Examples:
  halley bench latency models/demo-21m
  halley bench throughput models/demo-21m --num-prompts 16
  halley bench serve --model demo --request-rate 4 --num-prompts 100)");
  return [runs] {
    for (const auto& [subcommand, run] : runs) {
      if (subcommand->parsed()) return run();
    }
    return static_cast<int>(kExitUsage);
  };
}

}  // namespace halley::cli
