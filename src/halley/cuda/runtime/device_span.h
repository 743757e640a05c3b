// Begin and end of work on the GPU by its own clock.
#pragma once

#include <cstdint>

namespace halley {

/// Nanoseconds of %globaltimer, which runs on between kernels. Both 0: not measured.
struct DeviceSpan {
  uint64_t begin_ns = 0, end_ns = 0;
};

}  // namespace halley
