// How the copy engine sees weights and inputs that stream through shared memory.
#pragma once

#include <cuda.h>

#include "halley/core/matrix.h"

namespace halley::cuda {

/// Boxes of `box_rows` rows and `box_chunks` chunks of kStreamedChunkBytes, chunk after chunk,
/// swizzled by 128 bytes.
CUtensorMap streamed_map(ConstMatrix matrix, int box_rows, int box_chunks);

}  // namespace halley::cuda
