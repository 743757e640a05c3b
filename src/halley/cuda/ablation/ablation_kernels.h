// The kernels of the ablation: each is the W4Ax product without some of what makes it quick.
#pragma once

#include "halley/cuda/w4ax_gemm/w4ax_arguments.h"

namespace halley::cuda {

/// Each by the tokens of its tile; none where that is not compiled.
/// Serial: a block of inputs is decoded, multiplied and scaled before the next one is looked at.
W4axLaunch serial_launch(int tokens);
/// Rows: codes in the order of row_order.h.
W4axLaunch rows_launch(int tokens);
/// Signed: each code is cut out and its sign extended.
W4axLaunch signed_launch(int tokens);
W4axLaunch serial_signed_launch(int tokens);
W4axLaunch serial_rows_signed_launch(int tokens);

}  // namespace halley::cuda
