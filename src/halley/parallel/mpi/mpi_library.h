// libhalley_mpi.so, opened while the program runs.
#pragma once

#include <string>

#include "halley/parallel/mpi/mpi_api.h"

namespace halley {

/// Opens `file`, where a name without a folder is looked for in ../lib/halley from the program and
/// where the dynamic linker looks. Stays open. Throws DeviceError that says what is missing and how
/// to install it.
const HalleyMpiApi& open_mpi_library(const std::string& file = "libhalley_mpi.so");

}  // namespace halley
