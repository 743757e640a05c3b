#include "halley/cuda/ablation/ablation_dequant.cuh"
#include "halley/cuda/ablation/ablation_instances.cuh"

namespace halley::cuda {
namespace {

template <int kTokens>
using Signed = W4axConsumer<kTokens, W4axCodes<SignExtendedNibbles>>;

}  // namespace

W4axLaunch signed_launch(int tokens) { return launch_of_tile<Signed>(tokens); }

}  // namespace halley::cuda
