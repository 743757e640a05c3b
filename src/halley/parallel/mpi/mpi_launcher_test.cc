#include "halley/parallel/mpi/mpi_launcher.h"

#include <cstdlib>
#include <map>

#include <gmock/gmock.h>

#include "halley/base/error.h"

namespace halley {
namespace {

/// The launcher of a process with these variables and no others of a launcher.
std::optional<MpiLauncher> launcher_of(const std::map<std::string, std::string>& variables) {
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
        "SLURM_NTASKS", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  return find_mpi_launcher();
}

TEST(MpiLauncher, IsFoundByItsEnvironment) {
  struct {
    std::map<std::string, std::string> variables;
    const char* name;
    std::optional<int> num_ranks;
  } const cases[] = {
      {{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}},
       "mpirun",
       2},
      {{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_NTASKS", "16"}}, "srun", 16},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}, "PMI", 3},
      {{{"PMIX_RANK", "0"}}, "PMIx", std::nullopt},
  };
  for (const auto& [variables, name, num_ranks] : cases) {
    const auto launcher = launcher_of(variables);
    ASSERT_TRUE(launcher) << name;
    EXPECT_EQ(launcher->name, name);
    EXPECT_EQ(launcher->num_ranks, num_ranks) << name;
    EXPECT_TRUE(is_under_mpi_launcher()) << name;
  }
}

TEST(MpiLauncher, IsNotFoundWhereNothingWasLaunched) {
  EXPECT_FALSE(launcher_of({}));
  EXPECT_FALSE(is_under_mpi_launcher());
  // The script of a batch job of Slurm.
  EXPECT_FALSE(launcher_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
}

TEST(MpiLauncher, OneProcessAloneNeedsNoMpi) {
  EXPECT_TRUE(launcher_of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  EXPECT_FALSE(is_under_mpi_launcher());
}

TEST(MpiLauncher, ANumberThatIsNoneIsAnError) {
  for (const char* text : {"two", "0", "-1", "2x", "99999999999"}) {
    try {
      launcher_of({{"PMI_RANK", "0"}, {"PMI_SIZE", text}});
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()),
                "environment: PMI_SIZE: expected a number of processes >= 1, got \"" +
                    std::string(text) + "\". The launcher sets it: leave it alone.");
    }
  }
}

}  // namespace
}  // namespace halley
