#include "halley/cuda/library/halley_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/matrix.h"
#include "halley/cuda/gemm/quantize_rows.h"
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
  halley::cuda::MixedWeight weight;
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
using halley::cuda::MixedKind;
using halley::cuda::W4axOperands;
using halley::cuda::W4axWeight;
using halley::cuda::W4Kernels;

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
// Of N, K and M: their products stay far from the end of 64 bits, and tiles of 32.
constexpr int64_t kSizeMax = int64_t{1} << 30;

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

void require(bool is_met, const std::string& message) {
  if (!is_met) throw InputError(message);
}

template <typename T>
void require_pointer(const T* pointer, const char* what) {
  require(pointer != nullptr, str(what, ": expected a pointer, got null."));
}

DType dtype_of(halley_kernels_dtype dtype, const char* what) {
  switch (dtype) {
    case HALLEY_KERNELS_F32:
      return DType::kF32;
    case HALLEY_KERNELS_F16:
      return DType::kF16;
    case HALLEY_KERNELS_BF16:
      return DType::kBf16;
    case HALLEY_KERNELS_S8:
      return DType::kI8;
  }
  throw InputError(str(what, ": expected a halley_kernels_dtype, got ", static_cast<int>(dtype),
                       ". Use a value of the header."));
}

MixedKind kind_of(halley_kernels_kind kind) {
  switch (kind) {
    case HALLEY_KERNELS_W4A8:
      return MixedKind::kU4S8;
    case HALLEY_KERNELS_W4A8_GROUP:
      return MixedKind::kU4GroupS8;
    case HALLEY_KERNELS_W4A16_F16:
      return MixedKind::kU4F16;
    case HALLEY_KERNELS_W4A16_BF16:
      return MixedKind::kU4Bf16;
  }
  throw InputError(str("kind: expected a halley_kernels_kind, got ", static_cast<int>(kind),
                       ". Use a value of the header."));
}

DType input_dtype(MixedKind kind) {
  if (halley::cuda::is_s8(kind)) return DType::kI8;
  return kind == MixedKind::kU4F16 ? DType::kF16 : DType::kBf16;
}

Matrix matrix_of(const halley_kernels_matrix& matrix, const char* what) {
  const Matrix view = {static_cast<std::byte*>(matrix.data), dtype_of(matrix.dtype, what),
                       matrix.num_rows, matrix.num_cols, matrix.row_stride};
  require(view.num_rows >= 0 && view.num_rows <= kSizeMax && view.num_cols >= 1 &&
              view.num_cols <= kSizeMax && view.row_stride >= view.num_cols &&
              view.row_stride <= kSizeMax,
          str(what, ": expected 0 to ", kSizeMax, " rows, 1 to ", kSizeMax,
              " columns and a stride not below them, got ", view.num_rows, " x ", view.num_cols,
              ", stride ", view.row_stride, "."));
  require(view.data != nullptr || view.num_rows == 0, str(what, ": expected memory, got null."));
  const auto element_bytes = static_cast<uintptr_t>(halley::bits_of(view.dtype) / 8);
  require(std::bit_cast<uintptr_t>(view.data) % element_bytes == 0,
          str(what, ": expected memory at a multiple of ", element_bytes, " bytes."));
  return view;
}

void require_shape(const Matrix& matrix, int64_t num_rows, int64_t num_cols, const char* what) {
  require(matrix.num_rows == num_rows && matrix.num_cols == num_cols,
          str(what, ": expected ", num_rows, " x ", num_cols, ", got ", matrix.num_rows, " x ",
              matrix.num_cols, "."));
}

void require_wide_rows(const Matrix& matrix, const char* what) {
  const auto stride_bytes =
      static_cast<uint64_t>(matrix.row_stride * (halley::bits_of(matrix.dtype) / 8));
  require((std::bit_cast<uintptr_t>(matrix.data) | stride_bytes) % 16 == 0,
          str(what, ": expected memory and rows at multiples of 16 bytes, got a stride of ",
              stride_bytes, " bytes. Pad the rows."));
}

/// What the arrays of a source have.
halley::cuda::MixedSource source_of(const halley_kernels_source& source) {
  const MixedKind kind = kind_of(source.kind);
  require(source.N >= 1 && source.N <= kSizeMax && source.K >= 1 && source.K <= kSizeMax &&
              source.group_size >= 1 && source.group_size <= kSizeMax,
          str("weight: expected N, K and group_size from 1 to ", kSizeMax, ", got ", source.N, ", ",
              source.K, ", ", source.group_size, "."));
  require_pointer(source.codes, "codes");
  require_pointer(source.scales, "scales");
  const bool has_group_scales = kind == MixedKind::kU4GroupS8;
  require((source.group_scales != nullptr) == has_group_scales,
          str("group_scales: expected ", has_group_scales ? "a pointer" : "null",
              " for this kind of weight."));
  const auto outputs = static_cast<size_t>(source.N);
  const size_t groups = outputs * static_cast<size_t>((source.K - 1) / source.group_size + 1);
  halley::cuda::MixedSource plain = {
      .kind = kind,
      .N = source.N,
      .K = source.K,
      .group_size = source.group_size,
      .codes = {source.codes, outputs * static_cast<size_t>(source.K)},
      .scales = {source.scales, halley::cuda::is_s8(kind) ? outputs : groups}};
  if (source.zeros != nullptr) plain.zeros = {source.zeros, groups};
  if (has_group_scales) plain.group_scales = {source.group_scales, groups};
  return plain;
}

/// Those that the GPU runs best. Throws DeviceError where it runs none.
const halley::cuda::W4KernelRow* kernels_of(const halley::CudaDeviceInfo& device) {
  const std::string why_not = halley::cuda::why_no_w4_kernels(device);
  if (why_not.empty()) return halley::cuda::find_w4_kernels(device);
  throw halley::DeviceError(str(device.name, ": ", why_not, ". Choose another GPU."));
}

/// One for which the engine has no kernels too. Throws DeviceError where there is none of that
/// number.
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

/// [blocks][pitch], zero behind N.
std::vector<float> block_scales_of(const W4axWeight& weight, const float* scales) {
  constexpr uint32_t kLostBits = 3;  // of the 24 of f32, the first included: 22 stay
  std::vector<float> placed(static_cast<size_t>(weight.num_blocks() * weight.scales_pitch()));
  for (int64_t n = 0; n < weight.N; ++n) {
    for (int64_t b = 0; b < weight.num_blocks(); ++b) {
      const float scale = scales[n * weight.num_blocks() + b];
      require(std::isfinite(scale) && (std::bit_cast<uint32_t>(scale) & kLostBits) == 0,
              str("scales: expected finite numbers of 22 significant bits, got ", scale,
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

/// Makes the context's GPU the thread's, and a context of a stream that stays the caller's.
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
    const halley::cuda::MixedPacked packed = halley::cuda::pack_mixed(source_of(*source));
    *weight = new halley_kernels_weight{halley::cuda::MixedWeight(packed), context->device.ordinal};
  });
}

void halley_kernels_free(halley_kernels_weight* weight) { delete weight; }

size_t halley_kernels_weight_bytes(const halley_kernels_weight* weight) {
  return weight == nullptr ? 0 : weight->weight.num_bytes();
}

int halley_kernels_needs_sums(const halley_kernels_weight* weight) {
  return weight != nullptr && weight->weight.has_offsets ? 1 : 0;
}

halley_kernels_status halley_kernels_quantize_rows(halley_kernels_context* context,
                                                   halley_kernels_matrix x,
                                                   halley_kernels_matrix codes, float* scales,
                                                   int32_t* sums, void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    const Matrix from = matrix_of(x, "x");
    const Matrix to = matrix_of(codes, "codes");
    require(from.dtype != DType::kI8, "x: expected f32, f16 or bf16, got s8.");
    require(to.dtype == DType::kI8, str("codes: expected s8, got ", to.dtype, "."));
    require_shape(to, from.num_rows, from.num_cols, "codes");
    require_wide_rows(to, "codes");
    if (from.num_rows == 0) return;
    require_pointer(scales, "scales");
    launch_on(*context, cuda_stream, [&](const CudaContext& on) {
      halley::cuda::quantize_rows(
          on, {.kind = halley::ActivationQuant::kS8Token}, from,
          {.codes = to, .padded_cols = to.num_cols, .scales = scales, .sums = sums});
    });
  });
}

halley_kernels_status halley_kernels_product(halley_kernels_context* context,
                                             const halley_kernels_weight* weight,
                                             const halley_kernels_input* input,
                                             halley_kernels_matrix y, void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(weight, "weight");
    require_pointer(input, "input");
    const halley::cuda::MixedWeight& packed = weight->weight;
    require_own_weight(*context, weight->device);
    const Matrix x = matrix_of(input->x, "x");
    const Matrix to = matrix_of(y, "y");
    require(x.dtype == input_dtype(packed.kind),
            str("x: expected ", input_dtype(packed.kind), " for this weight, got ", x.dtype, "."));
    require_shape(x, x.num_rows, packed.K, "x");
    require_wide_rows(x, "x");
    require_shape(to, x.num_rows, packed.N, "y");
    require(to.dtype != DType::kI8, "y: expected f32, f16 or bf16, got s8.");
    if (x.num_rows == 0) return;
    if (halley::cuda::is_s8(packed.kind)) {
      require_pointer(input->scales, "scales");
      require(!packed.has_offsets || input->sums != nullptr,
              "sums: expected the sums of codes, which this weight's zeros need, got null. Let "
              "halley_kernels_quantize_rows() write them.");
    }
    const halley::cuda::MixedOperands operands = {
        .x = x,
        .x_scales = {.x_scales = input->scales, .x_sums = input->sums},
        .bias = input->bias};
    const bool is_mma = context->kernels->kernels == W4Kernels::kMma;
    launch_on(*context, cuda_stream, [&](const CudaContext& on) {
      (is_mma ? halley::cuda::mma_gemm : halley::cuda::mixed_gemm)(on, packed, operands, to);
    });
  });
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
        .num_multiprocessors = context->device.num_multiprocessors,
        .shared_bytes_max = static_cast<int>(context->device.shared_bytes_max)};
    const halley::cuda::MixedWeight& packed = weight->weight;
    const std::string plan =
        context->kernels->kernels == W4Kernels::kMma
            ? str("mma: ", halley::cuda::plan_mma_gemm(halley::cuda::mma_shape(packed, M), device))
            : str("hopper: ",
                  halley::cuda::plan_mixed_gemm(halley::cuda::mixed_shape(packed, M), device));
    const size_t count = std::min(plan.size(), size - 1);
    plan.copy(text, count);
    text[count] = '\0';
  });
}

halley_kernels_status halley_kernels_pack_blocks(halley_kernels_context* context, int64_t N,
                                                 int64_t K, const uint8_t* codes,
                                                 const float* scales,
                                                 halley_kernels_block_weight** weight) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(codes, "codes");
    require_pointer(scales, "scales");
    require_pointer(weight, "weight");
    *weight = nullptr;
    require(N >= 1 && N <= kSizeMax && K >= 1 && K <= kSizeMax,
            str("weight: expected N and K from 1 to ", kSizeMax, ", got ", N, ", ", K, "."));
    const auto num_codes = static_cast<size_t>(N) * static_cast<size_t>(K);
    for (size_t i = 0; i < num_codes; ++i) {
      require(codes[i] <= 15, str("codes: expected 0 to 15, got ", int{codes[i]}, " of output ",
                                  i / static_cast<size_t>(K), "."));
    }
    const std::vector<uint8_t> chunks = halley::cuda::pack_w4ax({codes, num_codes}, N, K);
    launch_on(*context, nullptr, [&](const CudaContext& on) {
      W4axWeight placed(on, N, K);
      const std::vector<float> placed_scales = block_scales_of(placed, scales);
      const auto copy = [&](const halley::DeviceBuffer& to, const void* from) {
        halley::check_cuda(cudaMemcpyAsync(to.data(), from, to.num_bytes(), cudaMemcpyHostToDevice,
                                           on.stream.get()),
                           "copy of a 4-bit weight");
      };
      copy(placed.codes, chunks.data());
      copy(placed.scales, placed_scales.data());
      on.stream.synchronize();
      *weight = new halley_kernels_block_weight{std::move(placed), context->device.ordinal};
    });
  });
}

void halley_kernels_free_blocks(halley_kernels_block_weight* weight) { delete weight; }

halley_kernels_status halley_kernels_quantize_blocks(halley_kernels_context* context,
                                                     halley_kernels_matrix numbers, float s4_clip,
                                                     const halley_kernels_block_input* input,
                                                     void* cuda_stream) {
  return guarded([&] {
    require_pointer(context, "context");
    require_pointer(input, "input");
    const Matrix from = matrix_of(numbers, "numbers");
    const Matrix to = matrix_of(input->x, "x");
    const W4axOperands operands = block_operands(*input);
    require(from.dtype != DType::kI8, "numbers: expected f32, f16 or bf16, got s8.");
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

halley_kernels_status halley_kernels_block_product(halley_kernels_context* context,
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
