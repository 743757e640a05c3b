// Linear layers of halley.torch on GPUs: the engine's layers (cuda/weights) on tensors of PyTorch.
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/thread_pool.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/weights/cuda_linear.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/python/torch_linear.h"

namespace halley::python {
namespace {

using EngineLinear = halley::cuda::CudaLinear;

/// At its end the thread has the GPU that it had before, on which PyTorch counts.
class DeviceGuard {
 public:
  DeviceGuard() { check_cuda(cudaGetDevice(&before_), "query of the device"); }
  ~DeviceGuard() { cudaSetDevice(before_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  void choose(int ordinal) const { check_cuda(cudaSetDevice(ordinal), "choice of the device"); }

 private:
  int before_ = 0;
};

/// The weights of a GPU share it. Lives until the process ends: CUDA may end before it.
struct SharedGpu {
  explicit SharedGpu(int ordinal)
      : device(use_cuda_device(ordinal)),
        lt_memory(kLtArenaBytes, "cuBLASLt's workspace"),
        context{device, stream, lt_memory},
        lt(context, {}) {}

  /// The loader of the last type: a model has many layers, and page-locked memory takes long.
  halley::cuda::CudaWeightLoader& loader_of(DType dtype) {
    if (loader == nullptr || loader_dtype != dtype) {
      loader.reset();
      loader = std::make_unique<halley::cuda::CudaWeightLoader>(host, context, lt, dtype);
      loader_dtype = dtype;
    }
    return *loader;
  }

  static constexpr int kLoadThreads = 4;
  static constexpr size_t kLtArenaBytes =
      halley::cuda::CublasLtOptions().workspace_bytes + DeviceArena::kAlignment;

  std::mutex mutex;  // of GEMMs that are queued, and of weights that are loaded
  CudaDeviceInfo device;
  CudaStream stream;  // of loading
  DeviceArena lt_memory;
  CudaContext context;
  halley::cuda::CublasLtGemm lt;
  ThreadPool pool{kLoadThreads};
  ExecContext host{pool};
  DType loader_dtype = DType::kF16;
  std::unique_ptr<halley::cuda::CudaWeightLoader> loader;
};

SharedGpu& shared_gpu(int ordinal) {
  static std::mutex mutex;
  static auto* gpus = new std::map<int, std::unique_ptr<SharedGpu>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<SharedGpu>& gpu = (*gpus)[ordinal];
  if (gpu == nullptr) gpu = std::make_unique<SharedGpu>(ordinal);
  return *gpu;
}

class TorchCudaLinear final : public CudaLinear {
 public:
  TorchCudaLinear(SharedGpu& gpu, const PackedFormat& format, EngineLinear linear)
      : gpu_(gpu), N_(format.N), num_inputs_(format.num_inputs), linear_(std::move(linear)) {}

  size_t workspace_bytes(int64_t M) const override { return linear_.workspace_bytes(M); }

  void run(const DeviceMatrix& x, const DeviceMatrix& y, TensorMemory workspace,
           uintptr_t cuda_stream, Precision precision) const override {
    check(x, "x", num_inputs_, x.dtype == linear_.dtype());
    check(y, "y", N_, y.dtype == linear_.dtype() || y.dtype == DType::kF32);
    require(y.num_rows == x.num_rows,
            str("y: expected ", x.num_rows, " rows, got ", y.num_rows, "."));
    require(
        workspace.num_bytes >= linear_.workspace_bytes(x.num_rows) &&
            workspace.address % DeviceArena::kAlignment == 0,
        str("workspace: expected ", linear_.workspace_bytes(x.num_rows), " bytes at a multiple of ",
            DeviceArena::kAlignment, ", got ", workspace.num_bytes, "."));
    if (x.num_rows == 0) return;
    const std::lock_guard lock(gpu_.mutex);
    const DeviceGuard guard;
    guard.choose(gpu_.device.ordinal);
    const CudaStream stream = CudaStream::borrow(reinterpret_cast<cudaStream_t>(cuda_stream));
    DeviceArena arena(
        DeviceBuffer::borrow(reinterpret_cast<std::byte*>(workspace.address), workspace.num_bytes),
        "the workspace of halley.torch");
    linear_.run({gpu_.device, stream, arena}, matrix_of(x), matrix_of(y), precision);
  }

  std::string describe() const override { return linear_.describe(); }
  size_t device_bytes() const override { return linear_.device_bytes(); }

 private:
  static void require(bool is_met, const std::string& message) {
    if (!is_met) throw InputError(str("halley.torch: ", message));
  }
  void check(const DeviceMatrix& matrix, const char* what, int64_t num_cols,
             bool is_right_type) const {
    constexpr int64_t kRowBits = 128;
    require(is_right_type, str(what, ": expected ", linear_.dtype(), ", got ", matrix.dtype,
                               ". Move the module to that type."));
    require(matrix.num_rows >= 0 && matrix.num_cols == num_cols,
            str(what, ": expected ", num_cols, " columns, got ", matrix.num_cols, "."));
    require(matrix.row_stride >= num_cols &&
                matrix.row_stride * bits_of(matrix.dtype) % kRowBits == 0 &&
                matrix.address % (kRowBits / 8) == 0,
            str(what, ": expected rows at multiples of 16 bytes."));
  }
  static Matrix matrix_of(const DeviceMatrix& matrix) {
    return {reinterpret_cast<std::byte*>(matrix.address), matrix.dtype, matrix.num_rows,
            matrix.num_cols, matrix.row_stride};
  }

  SharedGpu& gpu_;
  int64_t N_, num_inputs_;
  EngineLinear linear_;
};

}  // namespace

std::unique_ptr<CudaLinear> load_cuda_linear(int device, DType dtype, const PackedFormat& format,
                                             const PackedTensors& weight, TensorMemory bias) {
  const PackedWeight view = view_linear(format, weight);
  std::span<const float> biases;
  if (bias.address != 0) {
    biases = {elements_of<float>(bias, format.N, "bias"), static_cast<size_t>(format.N)};
  }
  const DeviceGuard guard;
  SharedGpu& gpu = shared_gpu(device);
  guard.choose(device);
  const std::lock_guard lock(gpu.mutex);
  std::vector<EngineLinear::Section> sections;
  sections.push_back(gpu.loader_of(dtype).load_packed("halley.torch", view, biases, 0));
  gpu.stream.synchronize();
  return std::make_unique<TorchCudaLinear>(
      gpu, format, EngineLinear("halley.torch", dtype, std::move(sections), gpu.lt));
}

}  // namespace halley::python
