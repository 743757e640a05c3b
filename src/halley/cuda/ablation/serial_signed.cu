#include "halley/cuda/ablation/ablation_dequant.cuh"
#include "halley/cuda/ablation/ablation_instances.cuh"
#include "halley/cuda/ablation/serial_consumer.cuh"

namespace halley::cuda {
namespace {

template <int kTokens>
using SerialSigned = SerialConsumer<kTokens, W4axCodes<SignExtendedNibbles>>;

}  // namespace

W4axLaunch serial_signed_launch(int tokens) { return launch_of_tile<SerialSigned>(tokens); }

}  // namespace halley::cuda
