// Stands for torch_cuda.cc in builds without CUDA.
#include "halley/base/error.h"
#include "halley/python/torch_linear.h"

namespace halley::python {

std::unique_ptr<CudaLinear> load_cuda_linear(int /*device*/, DType /*dtype*/,
                                             const PackedFormat& /*format*/,
                                             const PackedTensors& /*weight*/,
                                             TensorMemory /*bias*/) {
  throw UnsupportedError(
      "halley.torch: expected a package with CUDA for a module on a GPU, got one without. Build "
      "the "
      "wheel where nvcc is, or leave the module on the CPU.");
}

}  // namespace halley::python
