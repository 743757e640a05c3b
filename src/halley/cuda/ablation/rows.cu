#include "halley/cuda/ablation/ablation_dequant.cuh"
#include "halley/cuda/ablation/ablation_instances.cuh"

namespace halley::cuda {
namespace {

template <int kTokens>
using Rows = W4axConsumer<kTokens, RowMajorWeights<RowMajorHighNibbles>>;

}  // namespace

W4axLaunch rows_launch(int tokens) { return launch_of_tile<Rows>(tokens); }

}  // namespace halley::cuda
