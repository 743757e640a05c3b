#include "halley/cuda/ablation/ablation_dequant.cuh"
#include "halley/cuda/ablation/ablation_instances.cuh"
#include "halley/cuda/ablation/serial_consumer.cuh"

namespace halley::cuda {
namespace {

template <int kTokens>
using SerialRowsSigned = SerialConsumer<kTokens, RowMajorWeights<SignExtendedNibbles>>;

}  // namespace

W4axLaunch serial_rows_signed_launch(int tokens) {
  return launch_of_tile<SerialRowsSigned>(tokens);
}

}  // namespace halley::cuda
