// main() of the simulations: GoogleTest's, and options for their size.
#include <charconv>
#include <cstdint>
#include <string_view>

#include <gtest/gtest.h>

#include "halley/engine/simulation_options.h"

namespace halley {

SimulationOptions& simulation_options() {
  static SimulationOptions options;
  return options;
}

namespace {

template <typename T>
bool read_option(std::string_view text, std::string_view name, T& value) {
  if (!text.starts_with(name)) return false;
  text.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 1;
}

}  // namespace
}  // namespace halley

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  halley::SimulationOptions& options = halley::simulation_options();
  for (int i = 1; i < argc; ++i) {
    if (!halley::read_option(argv[i], "--steps=", options.num_steps) &&
        !halley::read_option(argv[i], "--seeds=", options.num_seeds) &&
        !halley::read_option(argv[i], "--first-seed=", options.first_seed)) {
      ADD_FAILURE() << "expected --steps=N, --seeds=N or --first-seed=N, got " << argv[i];
      return 1;
    }
  }
  return RUN_ALL_TESTS();
}
