#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/runtime/launch.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"
#include "halley/cuda/weights/pack_w4ax_weight.h"
#include "halley/cuda/weights/quad_code.h"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;

/// A code less 8; 0 where the weight has none.
__device__ uint32_t nibble_of(const W4axPanels& panels, int64_t n, int64_t k) {
  if (n >= panels.num_outputs || k >= panels.K) return 0;
  const int64_t num_units = (panels.K + kQuadUnitInputs - 1) / kQuadUnitInputs;
  const uint8_t* unit = panels.quads.data + (n / kPanelRows * num_units + k / kQuadUnitInputs) *
                                                quad_unit_bytes(PackedLayout::kU4Quad);
  const int in_unit = static_cast<int>(k % kQuadUnitInputs);
  return quad_code(PackedLayout::kU4Quad, unit, static_cast<int>(n % kPanelRows), in_unit / 4,
                   in_unit % 4) ^
         8u;
}

/// A block has one chunk, a thread some bytes of it.
__global__ void __launch_bounds__(kThreads)
    pack_w4ax_kernel(const __grid_constant__ W4axPanels panels, uint8_t* chunks) {
  const int64_t first_output = int64_t{blockIdx.y} * kTileOutputs;
  const int64_t first_input = int64_t{blockIdx.x} * kW4axInputs;
  uint8_t* chunk = chunks + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * kW4axChunkBytes;
  for (int byte = static_cast<int>(threadIdx.x); byte < kW4axChunkBytes; byte += kThreads) {
    const W4axBytePlace place = w4ax_byte_place(byte);
    const int64_t n = first_output + place.output, k = first_input + place.input;
    chunk[byte] = static_cast<uint8_t>(nibble_of(panels, n, k) | nibble_of(panels, n + 8, k) << 4);
  }
}

}  // namespace

void pack_w4ax_panels(const CudaContext& context, const W4axPanels& panels, uint8_t* chunks) {
  HALLEY_CHECK(panels.quads.layout == PackedLayout::kU4Quad, panels.quads.layout);
  const int64_t rows = ceil_div<int64_t>(panels.num_outputs, kTileOutputs);
  constexpr int64_t kRowsMax = 65535;  // of a grid: 8 million outputs
  HALLEY_CHECK(rows <= kRowsMax, panels.num_outputs);
  if (rows == 0 || panels.K == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(panels.K, kW4axInputs)),
                  static_cast<unsigned>(rows));
  launch_kernel(context, "pack_w4ax_panels", {.grid = grid, .block = dim3(kThreads), .pdl = false},
                pack_w4ax_kernel, panels, chunks);
}

}  // namespace halley::cuda
