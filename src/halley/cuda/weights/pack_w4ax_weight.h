// 4-bit weights in quad layouts, turned on the GPU to the chunks that the W4Ax product reads.
#pragma once

#include <cstdint>

#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/weights/decode_quads.h"

namespace halley::cuda {

/// Some whole panels of a kU4Quad weight, on the device.
struct W4axPanels {
  QuadPanels quads = {};    // groups and input_perm are not read: chunks keep the packed order
  int64_t num_outputs = 0;  // in these panels, of which chunks are filled up with zeros
  int64_t K = 0;
};

/// chunks = the panels' codes less 8 (w4ax_layout.h), from a panel that begins a chunk on.
void pack_w4ax_panels(const CudaContext& context, const W4axPanels& panels, uint8_t* chunks);

}  // namespace halley::cuda
