#include "halley/cuda/library/halley_kernels.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/matrix.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/library/block_arguments.h"
#include "halley/cuda/library/checked_arguments.h"
#include "halley/cuda/library/library_experts.h"
#include "halley/cuda/library/library_weight.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"
#include "halley/cuda/w4ax_gemm/w4ax_pack.h"

struct halley_kernels_context {
  halley::CudaDeviceInfo device;
  halley::cuda::LibrarySettings settings;
  halley::DeviceArena workspace;
  std::unique_ptr<halley::cuda::CublasLtGemm> lt = {};
};

struct halley_kernels_weight {
  std::unique_ptr<halley::cuda::LibraryWeight> weight;
  int device = 0;
};

struct halley_kernels_experts {
  halley::cuda::LibraryExperts experts;
  int device = 0;
};

struct halley_kernels_block_weight {
  halley::cuda::W4axWeight weight;
  int device = 0;
};

namespace {

using halley::ConstMatrix;
using halley::CudaContext;
using halley::CudaStream;
using halley::DType;
using halley::InputError;
using halley::Matrix;
using halley::str;
using halley::cuda::kSizeMax;
using halley::cuda::LibraryOperands;
using halley::cuda::LibraryWeight;
using halley::cuda::matrix_of;
using halley::cuda::require;
using halley::cuda::require_pointer;
using halley::cuda::require_shape;
using halley::cuda::require_wide_rows;
using halley::cuda::W4axOperands;
using halley::cuda::W4axWeight;
using halley::cuda::W4Kernels;

constexpr size_t kWorkspaceBytes = size_t{128} << 20;

thread_local std::string last_error;

halley_kernels_status fail(halley_kernels_status status, const char* message) {
  try {
    last_error = message;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

/// No exception leaves the library.
template <typename Call>
halley_kernels_status guarded(const Call& call) {
  try {
    call();
    return HALLEY_KERNELS_OK;
  } catch (const halley::UnsupportedError& error) {
    return fail(HALLEY_KERNELS_UNSUPPORTED, error.what());
  } catch (const halley::DeviceError& error) {
    return fail(HALLEY_KERNELS_DEVICE, error.what());
  } catch (const halley::Error& error) {
    return fail(HALLEY_KERNELS_WRONG_ARGUMENT, error.what());
  } catch (const std::exception& error) {
    return fail(HALLEY_KERNELS_OTHER, error.what());
  }
}

/// The preferred kernels of the GPU. Throws DeviceError where it runs none.
const halley::cuda::W4KernelRow* kernels_of(const halley::CudaDeviceInfo& device) {
  const std::string why_not = halley::cuda::why_no_w4_kernels(device);
  if (why_not.empty()) return halley::cuda::find_w4_kernels(device);
  throw halley::DeviceError(str(device.name, ": ", why_not, ". Choose another GPU."));
}

/// The device of that ordinal, even if the engine itself does not support it. Throws DeviceError
/// where there is none.
halley::CudaDeviceInfo find_device(int ordinal) {
  const std::vector<halley::CudaDeviceInfo> devices = halley::list_cuda_devices();
  const bool is_there = ordinal >= 0 && ordinal < static_cast<int>(devices.size());
  return is_there ? devices[static_cast<size_t>(ordinal)] : halley::use_cuda_device(ordinal);
}

void require_own_weight(const halley_kernels_context& context, int weight_device) {
  require(weight_device == context.device.ordinal,
          str("weight: expected one of device ", context.device.ordinal, ", got one of device ",
              weight_device, "."));
}

/// x, checked, with the scales and sums that a GEMM with the weight needs of it.
LibraryOperands checked_operands(const LibraryWeight& weight, const halley_kernels_input& input) {
  const Matrix x = matrix_of(input.x, "x");
  const std::vector<DType>& types = weight.input_types();
  std::string expected;
  for (const DType type : types) expected += str(expected.empty() ? "" : " or ", type);
  require(std::find(types.begin(), types.end(), x.dtype) != types.end(),
          str("x: expected ", expected, " for this weight, got ", x.dtype, "."));
  require_shape(x, x.num_rows, weight.K(), "x");
  require_wide_rows(x, "x");
  if (x.num_rows > 0) {
    if (x.dtype == DType::kI8 || x.dtype == DType::kF8E4M3) require_pointer(input.scales, "scales");
    require(!weight.needs_sums() || input.sums != nullptr,
            "sums: expected row sums of x, which this weight needs, got null. Let "
            "halley_kernels_quantize() write them.");
  }
  return {.x = x, .scales = input.scales, .sums = input.sums, .bias = input.bias};
}

void require_numbers(const Matrix& matrix, const char* what) {
  const bool is_number =
      matrix.dtype == DType::kF32 || matrix.dtype == DType::kF16 || matrix.dtype == DType::kBf16;
  require(is_number, str(what, ": expected f32, f16 or bf16, got ", matrix.dtype, "."));
}

/// Selects the context's GPU and calls `launch` with a context that borrows the caller's stream.
template <typename Launch>
void launch_on(halley_kernels_context& context, void* cuda_stream, const Launch& launch) {
  halley::check_cuda(cudaSetDevice(context.device.ordinal), "choice of the device");
  const CudaStream stream = CudaStream::borrow(static_cast<cudaStream_t>(cuda_stream));
  launch(CudaContext{context.device, stream, context.workspace});
}

void quantize(halley_kernels_context& context, const halley::cuda::CudaActivationQuant& quant,
              const halley_kernels_matrix& x, const halley_kernels_rows& quantized,
              void* cuda_stream) {
  const Matrix from = matrix_of(x, "x");
  const Matrix to = matrix_of(quantized.x, "quantized");
  const DType dtype = halley::cuda::activation_code_dtype(quant.kind);
  require_numbers(from, "x");
  require(to.dtype == dtype, str("quantized: expected ", dtype, ", got ", to.dtype, "."));
  require(quantized.sums == nullptr || dtype == DType::kI8,
          "sums: expected null for values of e4m3.");
  require_shape(to, from.num_rows, from.num_cols, "quantized");
  require_wide_rows(to, "quantized");
  if (from.num_rows == 0) return;
  require_pointer(quantized.scales, "scales");
  launch_on(context, cuda_stream, [&](const CudaContext& on) {
    halley::cuda::quantize_rows(on, quant, from,
                                {.codes = to,
                                 .padded_cols = to.num_cols,
                                 .scales = quantized.scales,
                                 .sums = quantized.sums});
  });
}

/// With memory of the workspace, which it keeps.
void open_cublaslt(halley_kernels_context& context, const CudaContext& on) {
  if (context.lt != nullptr) return;
  constexpr size_t kNeededBytes = size_t{64} << 20;
  if (context.workspace.num_bytes() < kNeededBytes) {
    throw halley::DeviceError(str("workspace: expected at least ", kNeededBytes,
                                  " bytes for this kind of weight, got ",
                                  context.workspace.num_bytes(), ". Open the context with more."));
  }
  context.lt = std::make_unique<halley::cuda::CublasLtGemm>(on, halley::cuda::CublasLtOptions{});
  context.settings.lt = context.lt.get();
}

}  // namespace

int halley_kernels_version(void) { return HALLEY_KERNELS_VERSION; }

const char* halley_kernels_last_error(void) { return last_error.c_str(); }

halley_kernels_status halley_kernels_open(int device, size_t workspace_bytes,
                                          halley_kernels_context** context) {
  return guarded([&] {
    require_pointer(context, "context");
    *context = nullptr;
    const halley::CudaDeviceInfo info = find_device(device);
    const halley::cuda::W4KernelRow* kernels = kernels_of(info);
    halley::check_cuda(cudaSetDevice(device), "choice of the device");
    const size_t num_bytes = workspace_bytes == 0 ? kWorkspaceBytes : workspace_bytes;
    *context = new halley_kernels_context{
        info, {.kernels = kernels}, halley::DeviceArena(num_bytes, "workspace of halley_kernels")};
  });
}

void halley_kernels_close(halley_kernels_context* context) { delete context; }

halley_kernels_status halley_kernels_choose(halley_kernels_context* context, const char* kernels) {
  return guarded([&] {
    require_pointer(context, "context");
    context->settings.kernels = kernels == nullptr
                                    ? kernels_of(context->device)
                                    : &halley::cuda::w4_kernels_named(context->device, kernels);
  });
}

halley_kernels_status halley_kernels_allow_pdl(halley_kernels_context* context, int is_allowed) {
  return guarded([&] {
    require_pointer(context, "context");
    context->settings.starts_early = is_allowed != 0;
  });
}

halley_kernels_status halley_kernels_pack(halley_kernels_context* context,
                                          const halley_kernels_source* source,
                                          halley_kernels_weight** weight) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(source, "source");
    require_pointer(weight, "weight");
    *weight = nullptr;
    halley::check_cuda(cudaSetDevice(context->device.ordinal), "choice of the device");
    const CudaStream stream;
    const CudaContext on{context->device, stream, context->workspace};
    auto packed = halley::cuda::pack_library_weight(on, *source);
    if (halley::cuda::needs_cublaslt(source->kind)) open_cublaslt(*context, on);
    *weight = new halley_kernels_weight{std::move(packed), context->device.ordinal};
  });
}

void halley_kernels_free(halley_kernels_weight* weight) { delete weight; }

size_t halley_kernels_weight_bytes(const halley_kernels_weight* weight) {
  return weight == nullptr ? 0 : weight->weight->num_bytes();
}

int halley_kernels_needs_sums(const halley_kernels_weight* weight) {
  return weight != nullptr && weight->weight->needs_sums() ? 1 : 0;
}

halley_kernels_status halley_kernels_quantize_rows(halley_kernels_context* context,
                                                   halley_kernels_matrix x,
                                                   halley_kernels_matrix quantized, float* scales,
                                                   int32_t* sums, void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    quantize(*context, {.kind = halley::ActivationQuant::kS8Token}, x,
             {.x = quantized, .scales = scales, .sums = sums}, cuda_stream);
  });
}

halley_kernels_status halley_kernels_quantize(halley_kernels_context* context,
                                              const halley_kernels_weight* weight,
                                              halley_kernels_matrix x,
                                              const halley_kernels_rows* quantized,
                                              void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(weight, "weight");
    require_pointer(quantized, "quantized");
    const auto quant = weight->weight->quantization();
    require(quant.has_value(), "weight: expected a kind whose x is quantized, got another.");
    require(x.num_cols == weight->weight->K(),
            str("x: expected ", weight->weight->K(), " columns, got ", x.num_cols, "."));
    quantize(*context, *quant, x, *quantized, cuda_stream);
  });
}

halley_kernels_status halley_kernels_gemm(halley_kernels_context* context,
                                          const halley_kernels_weight* weight,
                                          const halley_kernels_input* input,
                                          halley_kernels_matrix y, void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(weight, "weight");
    require_pointer(input, "input");
    require_own_weight(*context, weight->device);
    const LibraryOperands operands = checked_operands(*weight->weight, *input);
    const Matrix to = matrix_of(y, "y");
    require_shape(to, operands.x.num_rows, weight->weight->N(), "y");
    require_numbers(to, "y");
    if (to.num_rows == 0) return;
    launch_on(*context, cuda_stream, [&](const CudaContext& on) {
      weight->weight->multiply(on, context->settings, operands, to);
    });
  });
}

halley_kernels_status halley_kernels_product(halley_kernels_context* context,
                                             const halley_kernels_weight* weight,
                                             const halley_kernels_input* input,
                                             halley_kernels_matrix y, void* cuda_stream) {
  return halley_kernels_gemm(context, weight, input, y, cuda_stream);
}

halley_kernels_status halley_kernels_describe(halley_kernels_context* context,
                                              const halley_kernels_weight* weight, int64_t M,
                                              char* text, size_t size) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(weight, "weight");
    require_pointer(text, "text");
    require(size >= 1, "size: expected at least 1, got 0.");
    require(M >= 1 && M <= kSizeMax, str("M: expected 1 to ", kSizeMax, ", got ", M, "."));
    std::string plan;
    launch_on(*context, nullptr, [&](const CudaContext& on) {
      plan = weight->weight->describe(on, context->settings, M);
    });
    const size_t count = std::min(plan.size(), size - 1);
    plan.copy(text, count);
    text[count] = '\0';
  });
}

halley_kernels_status halley_kernels_join_experts(halley_kernels_context* context,
                                                  const halley_kernels_weight* const* weights,
                                                  int64_t num_experts, const float* const* biases,
                                                  int is_gated, halley_kernels_experts** experts) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(weights, "weights");
    require_pointer(experts, "experts");
    *experts = nullptr;
    require(num_experts >= 1 && num_experts <= kSizeMax,
            str("num_experts: expected at least 1, got ", num_experts, "."));
    std::vector<const LibraryWeight*> all;
    for (int64_t e = 0; e < num_experts; ++e) {
      require_pointer(weights[e], "weights");
      require_own_weight(*context, weights[e]->device);
      all.push_back(weights[e]->weight.get());
    }
    const auto num_biases = static_cast<size_t>(biases == nullptr ? 0 : num_experts);
    launch_on(*context, nullptr, [&](const CudaContext& on) {
      *experts = new halley_kernels_experts{
          halley::cuda::LibraryExperts(on, all, {biases, num_biases}, is_gated != 0),
          context->device.ordinal};
    });
  });
}

void halley_kernels_free_experts(halley_kernels_experts* experts) { delete experts; }

halley_kernels_status halley_kernels_grouped_gemm(halley_kernels_context* context,
                                                  const halley_kernels_experts* experts,
                                                  const halley_kernels_input* input,
                                                  const halley_kernels_grouping* grouping,
                                                  halley_kernels_matrix y, void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(experts, "experts");
    require_pointer(input, "input");
    require_pointer(grouping, "grouping");
    require_own_weight(*context, experts->device);
    const LibraryOperands operands = checked_operands(experts->experts.first(), *input);
    const Matrix to = matrix_of(y, "y");
    require_shape(to, to.num_rows, experts->experts.num_outputs(), "y");
    if (to.num_rows == 0) return;
    launch_on(*context, cuda_stream, [&](const CudaContext& on) {
      experts->experts.multiply(on, operands, *grouping, to);
    });
  });
}

halley_kernels_status halley_kernels_pack_blocks(halley_kernels_context* context, int64_t N,
                                                 int64_t K, const uint8_t* qweight,
                                                 const float* scales,
                                                 halley_kernels_block_weight** weight) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(qweight, "qweight");
    require_pointer(scales, "scales");
    require_pointer(weight, "weight");
    *weight = nullptr;
    require(N >= 1 && N <= kSizeMax && K >= 1 && K <= kSizeMax,
            str("weight: expected N and K from 1 to ", kSizeMax, ", got ", N, ", ", K, "."));
    const auto num_values = static_cast<size_t>(N) * static_cast<size_t>(K);
    for (size_t i = 0; i < num_values; ++i) {
      require(qweight[i] <= 15, str("qweight: expected 0 to 15, got ", int{qweight[i]},
                                    " of output ", i / static_cast<size_t>(K), "."));
    }
    const std::vector<uint8_t> packed = halley::cuda::pack_w4ax({qweight, num_values}, N, K);
    launch_on(*context, nullptr, [&](const CudaContext& on) {
      W4axWeight placed(on, N, K);
      const std::vector<float> placed_scales = halley::cuda::block_scales_of(placed, scales);
      const auto copy = [&](const halley::DeviceBuffer& to, const void* from) {
        halley::check_cuda(cudaMemcpyAsync(to.data(), from, to.num_bytes(), cudaMemcpyHostToDevice,
                                           on.stream.get()),
                           "copy of a 4-bit weight");
      };
      copy(placed.codes, packed.data());
      copy(placed.scales, placed_scales.data());
      on.stream.synchronize();
      *weight = new halley_kernels_block_weight{std::move(placed), context->device.ordinal};
    });
  });
}

void halley_kernels_free_blocks(halley_kernels_block_weight* weight) { delete weight; }

halley_kernels_status halley_kernels_quantize_blocks(halley_kernels_context* context,
                                                     halley_kernels_matrix values, float s4_clip,
                                                     const halley_kernels_block_input* input,
                                                     void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(input, "input");
    const Matrix from = matrix_of(values, "values");
    const Matrix to = matrix_of(input->x, "x");
    const W4axOperands operands = halley::cuda::block_operands(*input);
    require_numbers(from, "values");
    require_shape(to, from.num_rows, from.num_cols, "x");
    require(s4_clip > 0 && s4_clip <= 1,
            str("s4_clip: expected above 0, at most 1, got ", s4_clip, "."));
    if (from.num_rows == 0) return;
    launch_on(*context, cuda_stream, [&](const CudaContext& on) {
      halley::cuda::quantize_rows(on,
                                  {.kind = halley::ActivationQuant::kS4S8Block128,
                                   .num_s8_inputs = input->num_s8_inputs,
                                   .s4_clip = s4_clip},
                                  from,
                                  {.codes = to,
                                   .padded_cols = to.num_cols,
                                   .scales = input->scales,
                                   .scales_pitch = operands.x_scales_pitch});
    });
  });
}

halley_kernels_status halley_kernels_block_gemm(halley_kernels_context* context,
                                                const halley_kernels_block_weight* weight,
                                                const halley_kernels_block_input* input,
                                                halley_kernels_matrix y, void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(weight, "weight");
    require_pointer(input, "input");
    require_own_weight(*context, weight->device);
    W4axOperands operands = halley::cuda::block_operands(*input);
    operands.starts_early = context->settings.starts_early;
    const Matrix to = matrix_of(y, "y");
    require_shape(matrix_of(input->x, "x"), operands.x.num_rows, weight->weight.K, "x");
    require_shape(to, operands.x.num_rows, weight->weight.N, "y");
    require_numbers(to, "y");
    if (to.num_rows == 0) return;
    launch_on(*context, cuda_stream, [&](const CudaContext& on) {
      if (context->settings.kernels->kernels == W4Kernels::kMma) {
        halley::cuda::mma_w4ax_gemm(
            on, weight->weight, {.operands = operands, .num_s8_inputs = input->num_s8_inputs}, to);
      } else {
        halley::cuda::w4ax_gemm(on, weight->weight, operands, to);
      }
    });
  });
}

halley_kernels_status halley_kernels_block_product(halley_kernels_context* context,
                                                   const halley_kernels_block_weight* weight,
                                                   const halley_kernels_block_input* input,
                                                   halley_kernels_matrix y, void* cuda_stream) {
  return halley_kernels_block_gemm(context, weight, input, y, cuda_stream);
}
