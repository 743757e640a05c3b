// The GPUs that a simulation knows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/models/base/step_cost.h"

namespace halley {

struct SimulatedDevice {
  const char* name;
  DeviceRates rates;
  int64_t memory_bytes;
};

/// Throws InputError that lists the names.
const SimulatedDevice& simulated_device(const std::string& name);
std::vector<std::string> simulated_device_names();

}  // namespace halley
