// Whether a launcher of MPI jobs has started this process.
#pragma once

#include <optional>
#include <string>

namespace halley {

/// The processes of this process's job, as the launcher's environment tells.
struct MpiLauncher {
  std::string name;              // "mpirun", "srun", ...
  std::optional<int> num_ranks;  // unknown: PMIx tells it to MPI alone
};

/// Nothing where no launcher (mpirun, mpiexec, srun) has started this process.
std::optional<MpiLauncher> find_mpi_launcher();

/// Whether one has started several processes, or may have: one alone needs no MPI.
bool is_under_mpi_launcher();

}  // namespace halley
