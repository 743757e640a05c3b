#include "halley/parallel/mpi/mpi_launcher.h"

#include <charconv>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

struct LauncherVariables {
  const char* name;
  const char* rank;       // the launcher's mark
  const char* num_ranks;  // null: it has none
};

// The first one that is there counts. Slurm sets SLURM_PROCID and SLURM_NTASKS in the script of a
// batch job too, where srun has not started anything yet; the number of a step's tasks is srun's.
constexpr LauncherVariables kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"PMI", "PMI_RANK", "PMI_SIZE"},
    {"PMIx", "PMIX_RANK", nullptr},
};

int parse_num_ranks(const char* variable, const std::string& text) {
  int num_ranks = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, num_ranks);
  if (error != std::errc() || stop != end || num_ranks < 1) {
    throw InputError(str("environment: ", variable, ": expected a number of processes >= 1, got ",
                         quote(text), ". The launcher sets it: leave it alone."));
  }
  return num_ranks;
}

}  // namespace

std::optional<MpiLauncher> find_mpi_launcher() {
  for (const LauncherVariables& launcher : kLaunchers) {
    if (!env_string(launcher.rank)) continue;
    if (launcher.num_ranks == nullptr) return MpiLauncher{launcher.name, std::nullopt};
    const auto num_ranks = env_string(launcher.num_ranks);
    if (num_ranks)
      return MpiLauncher{launcher.name, parse_num_ranks(launcher.num_ranks, *num_ranks)};
  }
  return std::nullopt;
}

bool is_under_mpi_launcher() {
  const auto launcher = find_mpi_launcher();
  return launcher && launcher->num_ranks != 1;
}

}  // namespace halley
