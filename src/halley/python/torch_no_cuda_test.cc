#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/python/torch_linear.h"

namespace halley::python {
namespace {

TEST(TorchLinear, SaysWhatABuildWithoutCudaIsFor) {
  try {
    load_cuda_linear(0, DType::kF16, {}, {}, {});
    FAIL() << "expected an UnsupportedError";
  } catch (const UnsupportedError& error) {
    EXPECT_STREQ(error.what(),
                 "halley.torch: expected a package with CUDA for a module on a GPU, got one "
                 "without. Build the "
                 "wheel where nvcc is, or leave the module on the CPU.");
  }
}

}  // namespace
}  // namespace halley::python
