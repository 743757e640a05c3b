// `halley bench all-reduce`: sums over the ranks of tensor parallelism, next to NCCL's.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/bench.h"
#include "halley/cli/bench_gpu.h"
#include "halley/cli/bench_model.h"
#include "halley/cuda/rank_sum/peer_exchange.h"
#include "halley/cuda/rank_sum/time_rank_sums.h"
#include "halley/parallel/base/thread_communicator.h"
#include "halley/parallel/nccl/nccl_communicator.h"

namespace halley::cli {
namespace {

struct AllReduceOptions {
  int first_device = 0;
  int num_ranks = 2;
  bool is_json = false;
  std::string output_json;
};

std::vector<cuda::RankSumShape> timed_shapes() {
  constexpr int64_t kColumns = 8192;
  std::vector<cuda::RankSumShape> shapes;
  for (int64_t num_elements = 4096; num_elements <= 64 * kColumns; num_elements *= 2) {
    const int64_t M = std::max<int64_t>(1, num_elements / kColumns);
    shapes.push_back({.M = M, .K = num_elements / M});
  }
  return shapes;
}

struct RankResult {
  std::vector<cuda::RankSumTiming> timings;
  std::string why_no_nccl;  // empty: NCCL was timed
  std::exception_ptr error;
};

/// Null where NCCL is not installed, which all ranks of a machine find alike.
std::unique_ptr<Communicator> open_nccl(Communicator& host, int ordinal, std::string& why_not) {
  try {
    return make_nccl_communicator(host, ordinal);
  } catch (const DeviceError& error) {
    why_not = error.what();
    return nullptr;
  }
}

RankResult run_rank(Communicator& host, int ordinal,
                    const std::vector<cuda::RankSumShape>& shapes) {
  RankResult result;
  const CudaDeviceInfo device = use_cuda_device(ordinal);
  const std::string why_not = cuda::why_no_peer_exchange(host, device);
  if (!why_not.empty()) {
    throw UnsupportedError(str("bench all-reduce: expected GPUs that reach each other's memory: ",
                               why_not, ". Choose others by --device."));
  }
  const auto nccl = open_nccl(host, ordinal, result.why_no_nccl);
  std::unique_ptr<NcclMemory> memory;
  if (nccl != nullptr) {
    memory = make_nccl_memory(*nccl, cuda::kTimedRows * shapes.back().num_bytes());
  }
  result.timings =
      cuda::time_rank_sums({.host = host,
                            .device = device,
                            .peer = nccl.get(),
                            .registered = memory == nullptr ? nullptr : memory->data()},
                           shapes);
  return result;
}

/// Rank 0's result. Every rank is a thread with its GPU.
RankResult run_ranks(const AllReduceOptions& options) {
  const std::vector<cuda::RankSumShape> shapes = timed_shapes();
  auto hosts = make_thread_communicators(options.num_ranks);
  std::vector<RankResult> results(hosts.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < hosts.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        results[r] = run_rank(*hosts[r], options.first_device + static_cast<int>(r), shapes);
      } catch (const Error& error) {
        results[r].error = std::current_exception();
        hosts[r]->abort_all(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (results[0].error) std::rethrow_exception(results[0].error);
  return results[0];
}

OrderedJson json_of(const std::optional<cuda::SumTimes>& times) {
  if (!times) return nullptr;
  return {{"sum_us", times->sum_us}, {"sum_add_norm_us", times->norm_us}};
}

OrderedJson json_of(const cuda::RankSumTiming& timing) {
  OrderedJson json = {{"num_bytes", timing.shape.num_bytes()},
                      {"num_rows", timing.shape.M},
                      {"num_columns", timing.shape.K},
                      {"one_shot", json_of(std::optional(timing.one_shot))},
                      {"nccl", json_of(timing.peer)},
                      {"nccl_registered", json_of(timing.registered)}};
  // One is as fast as the better of NCCL's; smaller is faster.
  if (timing.peer) {
    cuda::SumTimes best = *timing.peer;
    if (timing.registered) {
      best.sum_us = std::min(best.sum_us, timing.registered->sum_us);
      best.norm_us = std::min(best.norm_us, timing.registered->norm_us);
    }
    json["sum_over_nccl"] = timing.one_shot.sum_us / best.sum_us;
    json["sum_add_norm_over_nccl"] = timing.one_shot.norm_us / best.norm_us;
  }
  return json;
}

void print_times(const OrderedJson& row, const char* name, const char* ratio) {
  for (const char* what : {"one_shot", "nccl", "nccl_registered"}) {
    if (row.at(what).is_null()) {
      std::printf(" %10s", "-");
    } else {
      std::printf(" %10.2f", row.at(what).at(name).get<double>());
    }
  }
  if (row.contains(ratio)) {
    std::printf(" %6.2f", row.at(ratio).get<double>());
  } else {
    std::printf(" %6s", "-");
  }
}

void print_table(const OrderedJson& rows) {
  std::printf("%8s  %-34s     | %-34s\n", "", "sum, us", "sum, residual and norm, us");
  std::printf("%8s", "KiB");
  for (int part = 0; part < 2; ++part) {
    std::printf(" %10s %10s %10s %6s", "one-shot", "NCCL", "registered", "ratio");
  }
  std::printf("\n");
  for (const OrderedJson& row : rows) {
    std::printf("%8zu", row.at("num_bytes").get<size_t>() / 1024);
    print_times(row, "sum_us", "sum_over_nccl");
    print_times(row, "sum_add_norm_us", "sum_add_norm_over_nccl");
    std::printf("\n");
  }
}

int run_all_reduce(const AllReduceOptions& options) {
  const RankResult result = run_ranks(options);
  OrderedJson json = gpu_facts(use_cuda_device(options.first_device));
  json["tensor_parallel_size"] = options.num_ranks;
  json["nccl_version"] = nullptr;
  if (result.why_no_nccl.empty()) json["nccl_version"] = nccl_version();
  OrderedJson& rows = json["all_reduce"] = OrderedJson::array();
  for (const cuda::RankSumTiming& timing : result.timings) rows.push_back(json_of(timing));
  write_json(json, options.output_json, options.is_json);
  if (options.is_json) return kExitOk;
  if (!result.why_no_nccl.empty()) std::printf("Without NCCL. %s\n", result.why_no_nccl.c_str());
  print_table(rows);
  return kExitOk;
}

}  // namespace

Run add_bench_all_reduce(CLI::App& bench) {
  CLI::App& app = *bench.add_subcommand("all-reduce", "Sums over GPUs, next to NCCL's");
  auto options = std::make_shared<AllReduceOptions>();
  app.add_option("--tensor-parallel-size", options->num_ranks, "GPUs, one a rank")
      ->check(CLI::Range(2, cuda::kExchangeRanksMax))
      ->capture_default_str();
  app.add_option("--device", options->first_device, "Index of the first GPU; the others follow it")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  add_output_options(app, options->is_json, options->output_json);
  app.footer(
      R"(Rows of 8 KiB to 1 MiB in 16 bits: the one-shot kernel that writes into the memory
of all GPUs, NCCL's all-reduce, and NCCL's in registered ("symmetric") memory, from version 2.27 on;
each alone, and with the addition to the residual stream and the norm. Launches in a graph; the
median of several. The ratio is the time of the one-shot kernel by that of NCCL's better one.

Example:
  halley bench all-reduce --tensor-parallel-size 2 --output-json result.json)");
  return [options] { return run_all_reduce(*options); };
}

}  // namespace halley::cli
