#include "halley/cuda/library/halley_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <variant>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/matrix.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/gemv/gemv.h"
#include "halley/cuda/library/checked_arguments.h"
#include "halley/cuda/library/weight_source.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"
#include "halley/cuda/w4ax_gemm/w4ax_pack.h"

struct halley_kernels_context {
  halley::CudaDeviceInfo device;
  const halley::cuda::W4KernelRow* kernels;
  halley::DeviceArena workspace;
};

struct halley_kernels_weight {
  std::variant<halley::cuda::MixedWeight, halley::cuda::GemvWeight> weight;
  int device = 0;

  const halley::cuda::MixedWeight* mixed() const {
    return std::get_if<halley::cuda::MixedWeight>(&weight);
  }
  const halley::cuda::GemvWeight& gemv() const {
    return std::get<halley::cuda::GemvWeight>(weight);
  }
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
using halley::cuda::input_dtype;
using halley::cuda::kSizeMax;
using halley::cuda::matrix_of;
using halley::cuda::require;
using halley::cuda::require_pointer;
using halley::cuda::require_shape;
using halley::cuda::require_wide_rows;
using halley::cuda::W4axOperands;
using halley::cuda::W4axWeight;
using halley::cuda::W4Kernels;

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

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

/// [blocks, pitch] row-major, zero past N.
std::vector<float> block_scales_of(const W4axWeight& weight, const float* scales) {
  constexpr uint32_t kLostBits = 3;  // lowest of the 24 significant bits of f32, so that 22 remain
  std::vector<float> placed(static_cast<size_t>(weight.num_blocks() * weight.scales_pitch()));
  for (int64_t n = 0; n < weight.N; ++n) {
    for (int64_t b = 0; b < weight.num_blocks(); ++b) {
      const float scale = scales[n * weight.num_blocks() + b];
      require(std::isfinite(scale) && (std::bit_cast<uint32_t>(scale) & kLostBits) == 0,
              str("scales: expected finite values of 22 significant bits, got ", scale,
                  " of output ", n, ", block ", b, ". Round them to f16 or bf16."));
      placed[static_cast<size_t>(b * weight.scales_pitch() + n)] = scale;
    }
  }
  return placed;
}

/// x and its scales, checked.
W4axOperands block_operands(const halley_kernels_block_input& input) {
  const Matrix x = matrix_of(input.x, "x");
  require(x.dtype == DType::kI8, str("x: expected s8, got ", x.dtype, "."));
  require_wide_rows(x, "x");
  require(input.scales_pitch >= x.num_rows && input.scales_pitch <= kSizeMax &&
              input.scales_pitch % halley::cuda::kW4axTokenPadding == 0,
          str("scales_pitch: expected a multiple of ", halley::cuda::kW4axTokenPadding, " from ",
              x.num_rows, " on, got ", input.scales_pitch, "."));
  require_pointer(input.scales, "scales");
  require(std::bit_cast<uintptr_t>(input.scales) % 16 == 0,
          "scales: expected memory at a multiple of 16 bytes.");
  require(input.num_s8_inputs >= 0 && input.num_s8_inputs <= x.num_cols,
          str("num_s8_inputs: expected 0 to ", x.num_cols, ", got ", input.num_s8_inputs, "."));
  return {
      .x = x, .x_scales = input.scales, .x_scales_pitch = input.scales_pitch, .bias = input.bias};
}

/// That the context's kernels take the weight.
void require_kernels(const halley_kernels_context& context,
                     const halley::cuda::MixedWeight& weight) {
  if (!halley::cuda::is_u8(weight.kind) || context.kernels->kernels == W4Kernels::kHopper) return;
  throw halley::UnsupportedError(str("weight: of 8 bits, expected the kernels \"hopper\", got ",
                                     halley::quote(context.kernels->name),
                                     ". Choose these, or another GPU."));
}

/// Checks the type of x, its scales and its sums.
void require_input(const halley_kernels_weight& weight, const halley_kernels_input& input,
                   const Matrix& x) {
  bool is_s8 = false;
  if (const auto* mixed = weight.mixed()) {
    is_s8 = halley::cuda::is_s8(mixed->kind);
    require(x.dtype == input_dtype(mixed->kind),
            str("x: expected ", input_dtype(mixed->kind), " for this weight, got ", x.dtype, "."));
    require(!mixed->needs_sums() || input.sums != nullptr || x.num_rows == 0,
            "sums: expected row sums of x, which this weight needs, got null. Let "
            "halley_kernels_quantize_rows() write them.");
  } else {
    is_s8 = weight.gemv().shape.inputs == halley::cuda::GemvInputs::kS8;
    const bool is_right =
        is_s8 ? x.dtype == DType::kI8 : x.dtype == DType::kF16 || x.dtype == DType::kBf16;
    require(is_right, str("x: expected ", is_s8 ? "s8" : "f16 or bf16", " for this weight, got ",
                          x.dtype, "."));
  }
  if (is_s8 && x.num_rows > 0) require_pointer(input.scales, "scales");
}

/// Selects the context's GPU and calls `launch` with a context that borrows the caller's stream.
template <typename Launch>
void launch_on(halley_kernels_context& context, void* cuda_stream, const Launch& launch) {
  halley::check_cuda(cudaSetDevice(context.device.ordinal), "choice of the device");
  const CudaStream stream = CudaStream::borrow(static_cast<cudaStream_t>(cuda_stream));
  launch(CudaContext{context.device, stream, context.workspace});
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
        info, kernels, halley::DeviceArena(num_bytes, "workspace of halley_kernels")};
  });
}

void halley_kernels_close(halley_kernels_context* context) { delete context; }

halley_kernels_status halley_kernels_choose(halley_kernels_context* context, const char* kernels) {
  return guarded([&] {
    require_pointer(context, "context");
    context->kernels = kernels == nullptr
                           ? kernels_of(context->device)
                           : &halley::cuda::w4_kernels_named(context->device, kernels);
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
    const halley::cuda::GemvShape shape = halley::cuda::gemv_shape_of(*source);
    if (shape.bits != 0) {
      const CudaStream stream;
      *weight = new halley_kernels_weight{
          halley::cuda::pack_gemv({context->device, stream, context->workspace}, *source, shape),
          context->device.ordinal};
      return;
    }
    const halley::cuda::MixedPacked packed =
        halley::cuda::pack_mixed(halley::cuda::mixed_source_of(*source));
    *weight = new halley_kernels_weight{halley::cuda::MixedWeight(packed), context->device.ordinal};
  });
}

void halley_kernels_free(halley_kernels_weight* weight) { delete weight; }

size_t halley_kernels_weight_bytes(const halley_kernels_weight* weight) {
  if (weight == nullptr) return 0;
  return weight->mixed() != nullptr ? weight->mixed()->num_bytes() : weight->gemv().num_bytes();
}

int halley_kernels_needs_sums(const halley_kernels_weight* weight) {
  const bool is_mixed = weight != nullptr && weight->mixed() != nullptr;
  return is_mixed && weight->mixed()->needs_sums() ? 1 : 0;
}

halley_kernels_status halley_kernels_quantize_rows(halley_kernels_context* context,
                                                   halley_kernels_matrix x,
                                                   halley_kernels_matrix quantized, float* scales,
                                                   int32_t* sums, void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    const Matrix from = matrix_of(x, "x");
    const Matrix to = matrix_of(quantized, "quantized");
    require(from.dtype != DType::kI8, "x: expected f32, f16 or bf16, got s8.");
    require(to.dtype == DType::kI8, str("quantized: expected s8, got ", to.dtype, "."));
    require_shape(to, from.num_rows, from.num_cols, "quantized");
    require_wide_rows(to, "quantized");
    if (from.num_rows == 0) return;
    require_pointer(scales, "scales");
    launch_on(*context, cuda_stream, [&](const CudaContext& on) {
      halley::cuda::quantize_rows(
          on, {.kind = halley::ActivationQuant::kS8Token}, from,
          {.codes = to, .padded_cols = to.num_cols, .scales = scales, .sums = sums});
    });
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
    const Matrix x = matrix_of(input->x, "x");
    const Matrix to = matrix_of(y, "y");
    require_input(*weight, *input, x);
    const auto* mixed = weight->mixed();
    require_shape(x, x.num_rows, mixed != nullptr ? mixed->K : weight->gemv().shape.K, "x");
    require_wide_rows(x, "x");
    require_shape(to, x.num_rows, mixed != nullptr ? mixed->N : weight->gemv().shape.N, "y");
    require(to.dtype != DType::kI8, "y: expected f32, f16 or bf16, got s8.");
    if (x.num_rows == 0) return;
    if (mixed == nullptr) {
      const bool is_s8 = x.dtype == DType::kI8;
      launch_on(*context, cuda_stream, [&](const CudaContext& on) {
        halley::cuda::gemv(
            on, weight->gemv(),
            {.x = x, .x_scales = is_s8 ? input->scales : nullptr, .bias = input->bias}, to);
      });
      return;
    }
    require_kernels(*context, *mixed);
    const halley::cuda::MixedOperands operands = {
        .x = x,
        .x_scales = {.x_scales = input->scales, .x_sums = input->sums},
        .bias = input->bias};
    const bool is_mma = context->kernels->kernels == W4Kernels::kMma;
    launch_on(*context, cuda_stream, [&](const CudaContext& on) {
      (is_mma ? halley::cuda::mma_gemm : halley::cuda::mixed_gemm)(on, *mixed, operands, to);
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
    const halley::cuda::MixedDevice device = {
        .num_sms = context->device.num_sms,
        .shared_bytes_max = static_cast<int>(context->device.shared_bytes_max)};
    if (weight->mixed() != nullptr) require_kernels(*context, *weight->mixed());
    const std::string plan =
        weight->mixed() == nullptr
            ? str(halley::cuda::plan_gemv(weight->gemv().shape, device.num_sms))
        : context->kernels->kernels == W4Kernels::kMma
            ? str("mma: ",
                  halley::cuda::plan_mma_gemm(halley::cuda::mma_shape(*weight->mixed(), M), device))
            : str("hopper: ", halley::cuda::plan_mixed_gemm(
                                  halley::cuda::mixed_shape(*weight->mixed(), M), device));
    const size_t count = std::min(plan.size(), size - 1);
    plan.copy(text, count);
    text[count] = '\0';
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
      const std::vector<float> placed_scales = block_scales_of(placed, scales);
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
    const W4axOperands operands = block_operands(*input);
    require(from.dtype != DType::kI8, "values: expected f32, f16 or bf16, got s8.");
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
    const W4axOperands operands = block_operands(*input);
    const Matrix to = matrix_of(y, "y");
    require_shape(matrix_of(input->x, "x"), operands.x.num_rows, weight->weight.K, "x");
    require_shape(to, operands.x.num_rows, weight->weight.N, "y");
    require(to.dtype != DType::kI8, "y: expected f32, f16 or bf16, got s8.");
    if (to.num_rows == 0) return;
    launch_on(*context, cuda_stream, [&](const CudaContext& on) {
      if (context->kernels->kernels == W4Kernels::kMma) {
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
