#include "halley/cuda/ablation/ablation_instances.cuh"
#include "halley/cuda/ablation/serial_consumer.cuh"

namespace halley::cuda {
namespace {

template <int kTokens>
using Serial = SerialConsumer<kTokens, W4axCodes<W4axHighHalves>>;

}  // namespace

W4axLaunch serial_launch(int tokens) { return launch_of_tile<Serial>(tokens); }

}  // namespace halley::cuda
