#include "halley/cli/rank_options.h"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/parallel/load_ranked_model.h"
#include "halley/parallel/mpi/mpi_communicator.h"
#include "halley/parallel/mpi/mpi_launcher.h"

namespace halley::cli {
namespace {

constexpr double kTimeoutSecondsMax = 24 * 3600;
constexpr const char* kGroup = "Parallelism";

std::chrono::milliseconds timeout_of(const RankOptions& options) {
  return std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
}

/// This process's end of the job that it has joined.
std::unique_ptr<Communicator>& job_end() {
  static std::unique_ptr<Communicator> end;
  return end;
}

/// Joins the job where a launcher has started this process, else null.
Communicator* join_job(const RankOptions& options) {
  std::unique_ptr<Communicator>& end = job_end();
  if (end == nullptr && is_under_mpi_launcher()) end = make_mpi_communicator(timeout_of(options));
  return end.get();
}

}  // namespace

void add_rank_options(CLI::App& app, RankOptions& options) {
  app.add_option("--tensor-parallel-size", options.tensor_parallel_size,
                 "Ranks that divide every layer among themselves, on GPUs one each from the first "
                 "one on; 0: the processes that mpirun or srun started, else 1")
      ->check(CLI::Range(0, kRanksMax))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--pipeline-parallel-size", options.pipeline_parallel_size,
                 "Stages that divide the sequence of layers, each of as many ranks")
      ->check(CLI::Range(1, kRanksMax))
      ->capture_default_str()
      ->group(kGroup);
  add_expert_option(app, options);
  app.add_option("--rank-timeout", options.timeout_s,
                 "Seconds after which a rank that does not come counts as dead, which ends the "
                 "program with an error")
      ->check(CLI::Range(0.1, kTimeoutSecondsMax))
      ->capture_default_str()
      ->group(kGroup);
}

void add_expert_option(CLI::App& app, RankOptions& options) {
  app.add_flag(
         "--enable-expert-parallel", options.has_whole_experts,
         "Ranks have some of the experts each, whole, instead of some rows of every expert, on "
         "the CPU")
      ->group(kGroup);
}

bool is_other_rank(const RankOptions& options) {
  const Communicator* job = join_job(options);
  if (job == nullptr) return false;
  const int num_stages = options.pipeline_parallel_size;
  const int size = options.tensor_parallel_size;
  const bool fits =
      size == 0 ? job->num_ranks() % num_stages == 0 : job->num_ranks() == size * num_stages;
  if (!fits) {
    throw InputError(str("--tensor-parallel-size, --pipeline-parallel-size: expected sizes for ",
                         job->num_ranks(), " ranks, the processes that the launcher has started, ",
                         "got ", size, " and ", num_stages,
                         ". Start as many as both multiplied, or leave the former out."));
  }
  return job->rank() > 0;
}

bool are_ranks_processes(const RankOptions& options) {
  const Communicator* job = join_job(options);
  return job != nullptr && job->num_ranks() > 1;
}

void leave_job() { job_end().reset(); }

int num_local_ranks(const RankOptions& options) {
  if (join_job(options) != nullptr) return 1;
  return num_thread_ranks(options);
}

void prepare_local_ranks(const RankOptions& options) {
  prepare_thread_ranks(num_local_ranks(options));
}

LoadedDecoder load_divided(ExecContext& context, const RankOptions& options,
                           const ModelFiles& files, const LoadProgress& progress,
                           const LoadOptions& load) {
  const bool is_other = is_other_rank(options);
  // A signal to all processes of the job drains rank 0, which ends the others.
  if (is_other) {
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, SIG_IGN);
  }
  if (are_ranks_processes(options) && options.divides_among_processes) {
    Communicator& job = *join_job(options);
    // Rank 0 may take any time before it loads: it reads texts, or works with another model.
    std::byte here{};
    job.broadcast_idle(&here, sizeof(here), 0);
    LoadedDecoder loaded =
        load_as_rank(context, {.ranks = job.split(0), .num_stages = options.pipeline_parallel_size},
                     files.config, *files.source, progress, load);
    if (is_other) throw RankHasEnded();
    return loaded;
  }
  if (are_ranks_processes(options)) {
    return load_model(context, files.config, *files.source, progress, load);
  }
  return load_here(context, options, files, progress, load);
}

}  // namespace halley::cli
