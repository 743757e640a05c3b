// The subcommands of `halley bench`: each is added to the parser of `bench`.
#pragma once

#include "halley/cli/command.h"

namespace halley::cli {

Run add_bench_latency(CLI::App& bench);
Run add_bench_throughput(CLI::App& bench);
Run add_bench_serve(CLI::App& bench);
Run add_bench_serve_overhead(CLI::App& bench);
/// Kernels alone; in builds with CUDA.
Run add_bench_ablation(CLI::App& bench);
Run add_bench_all_reduce(CLI::App& bench);
Run add_bench_attention(CLI::App& bench);
Run add_bench_experts(CLI::App& bench);
Run add_bench_gemm(CLI::App& bench);
Run add_bench_sampling(CLI::App& bench);

}  // namespace halley::cli
