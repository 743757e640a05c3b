// How fast this machine reads memory: the yardstick for everything that streams weights.
#pragma once

#include <cstddef>
#include <span>

#include "halley/core/exec_context.h"

namespace halley {

/// Bytes per second at which all threads of the context read the memories once, one after the
/// other, with plain vector loads and the division of a GEMM: consecutive pieces, a contiguous
/// share for each thread. The best of num_repeats >= 1 passes, since other processes only ever slow
/// a pass down. Together they should be several times larger than the last-level cache, and written
/// before: pages that were never touched all map to one page of zeros.
double measure_read_bandwidth(ExecContext& context,
                              std::span<const std::span<const std::byte>> memories,
                              int num_repeats);

}  // namespace halley
