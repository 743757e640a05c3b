// Codes of a W4Ax weight as they come: rows of outputs. Pure functions of the host and the device.
#pragma once

#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {

/// Bytes of an output in a chunk of kTileOutputs outputs and kW4axInputs inputs.
inline constexpr int kRowOrderBytes = kW4axInputs / 2;

/// The byte of a chunk that has the code of this output and input, of even inputs in the low half.
constexpr int row_code_byte(int output, int input) { return output * kRowOrderBytes + input / 2; }

}  // namespace halley::cuda
