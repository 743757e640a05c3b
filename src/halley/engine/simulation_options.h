// For tests: the length of simulations, from the command line.
#pragma once

#include <cstdint>

namespace halley {

struct SimulationOptions {
  int64_t num_steps = 100'000;  // --steps=N, of all seeds together
  int64_t num_seeds = 100;      // --seeds=N
  uint64_t first_seed = 1;      // --first-seed=N

  int64_t num_steps_of_seed() const { return num_steps / num_seeds; }
};

/// The command line's options; set before the tests run.
SimulationOptions& simulation_options();

}  // namespace halley
