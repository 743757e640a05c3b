// Linear layers of halley.torch: GEMMs on PyTorch's tensors, by the kernels of the CPU and of a
// GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "halley/core/dtype.h"
#include "halley/core/exec_context.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/quant/packed/packed_tensors.h"

namespace halley::python {

/// Calls `run` with the process's pool of so many threads, one caller at a time. A process that was
/// forked gets a pool of its own.
void with_threads(int num_threads, const std::function<void(ExecContext& context)>& run);

/// The kernel of the CPU for weights of a format. Immutable; any thread.
class CpuLinear {
 public:
  /// Throws InputError for a wrong format, UnsupportedError where no kernel runs it. Low precision
  /// is for layouts that hold it.
  CpuLinear(PackedFormat format, Precision precision);

  /// y [M, N] = x W^T + bias. All are f32; x is [M, num_inputs], bias [N] or null. Throws
  /// InputError where memory does not fit.
  void run(int num_threads, const PackedTensors& weight, TensorMemory bias, TensorMemory x,
           TensorMemory y) const;

 private:
  PackedFormat format_;
  const GemmKernel* kernel_;
};

/// Device memory of a matrix [num_rows, num_cols]: rows begin at multiples of 16 bytes.
struct DeviceMatrix {
  uintptr_t address = 0;
  DType dtype = DType::kF16;
  int64_t num_rows = 0, num_cols = 0, row_stride = 0;
};

/// A weight on a GPU with its kernels. Its GEMMs, and those of all weights of the GPU, run on
/// streams that are ordered one after the other.
class CudaLinear {
 public:
  virtual ~CudaLinear() = default;
  /// Bytes of the workspace of a GEMM of M rows.
  virtual size_t workspace_bytes(int64_t M) const = 0;
  /// Queues y [M, N] = x W^T + bias on the stream, and neither allocates nor waits, so that CUDA
  /// graphs can capture it. x [M, num_inputs] has the type of activations, y has it or f32.
  /// `workspace` is device memory of workspace_bytes(M) at a multiple of 256 bytes. Throws
  /// InputError where one does not fit.
  virtual void run(const DeviceMatrix& x, const DeviceMatrix& y, TensorMemory workspace,
                   uintptr_t cuda_stream, Precision precision) const = 0;
  /// The storage format and the kernels.
  virtual std::string describe() const = 0;
  virtual size_t device_bytes() const = 0;
};

/// Copies a weight of the host to a GPU and waits for it. `dtype`: f16 or bf16, of activations.
/// `bias`: f32 [N] of the host, or null. Throws InputError for wrong tensors, DeviceError where
/// there is no such GPU or no memory, UnsupportedError in builds without CUDA.
std::unique_ptr<CudaLinear> load_cuda_linear(int device, DType dtype, const PackedFormat& format,
                                             const PackedTensors& weight, TensorMemory bias);

}  // namespace halley::python
