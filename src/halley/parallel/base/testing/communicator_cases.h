// Cases that every communicator of host memory must pass, whatever its ranks are.
#pragma once

#include <span>

#include "halley/parallel/base/communicator.h"

namespace halley {

/// All ranks call `run` with their ends; it reports by EXPECT and leaves no operation unfinished.
struct CommunicatorCase {
  const char* name;
  void (*run)(Communicator& rank);
};

std::span<const CommunicatorCase> communicator_cases();

}  // namespace halley
