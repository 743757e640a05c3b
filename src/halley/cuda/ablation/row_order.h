// Row-major layout of a packed W4Ax tile. Pure functions of the host and the device.
#pragma once

#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {

/// Bytes of an output in a packed tile of kTileOutputs outputs and kW4axInputs inputs.
inline constexpr int kRowOrderBytes = kW4axInputs / 2;

/// Byte of a packed tile that holds this output and input; even inputs are in the low nibble.
constexpr int row_major_byte(int output, int input) { return output * kRowOrderBytes + input / 2; }

}  // namespace halley::cuda
