// Launchers of the ablation kernels, each the W4Ax GEMM without some of its optimisations.
#pragma once

#include "halley/cuda/w4ax_gemm/w4ax_arguments.h"

namespace halley::cuda {

/// Each takes the tokens of a tile and returns null where that tile is not compiled.
/// Serial: a k-block is dequantized, multiplied and scaled before the next one is loaded.
W4axLaunch serial_launch(int tokens);
/// Rows: weights packed as in row_order.h.
W4axLaunch rows_launch(int tokens);
/// Signed: each nibble is extracted and sign-extended.
W4axLaunch signed_launch(int tokens);
W4axLaunch serial_signed_launch(int tokens);
W4axLaunch serial_rows_signed_launch(int tokens);

}  // namespace halley::cuda
