// For tests: a GPU with a stream and a workspace.
#pragma once

#include <gtest/gtest.h>

#include "halley/core/exec_context.h"
#include "halley/core/thread_pool.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

class GpuTest : public testing::Test {
 protected:
  CudaDeviceInfo device_ = use_cuda_device(0);
  CudaStream stream_;
  DeviceArena workspace_{size_t{256} << 20, "a test's workspace"};
  CudaContext context_{device_, stream_, workspace_};
  ThreadPool pool_{2};
  ExecContext host_{pool_};
};

/// Tests of kernels for compute capability 9.0; skipped on other GPUs.
class HopperTest : public GpuTest {
 protected:
  void SetUp() override {
    if (device_.compute_major != 9 || device_.compute_minor != 0) {
      GTEST_SKIP() << "needs compute capability 9.0, the GPU has " << device_.compute_major << "."
                   << device_.compute_minor;
    }
  }
};

}  // namespace halley::cuda
