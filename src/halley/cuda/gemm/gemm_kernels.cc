#include <algorithm>
#include <array>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemm/gemm_epilogue.h"
#include "halley/cuda/gemm/gemm_plain.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/gemm/streamed_gemm.h"

namespace halley::cuda {
namespace {

bool is_number(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBf16 || dtype == DType::kF32;
}

/// What all kernels of cuBLASLt ask.
std::string empty_rejection(const CudaGemmProblem& problem) {
  if (problem.N > 0 && problem.K > 0) return {};
  return str("needs outputs and inputs, the weight is [", problem.N, ", ", problem.K, "]");
}

std::string number_rejection(const CudaGemmProblem& problem) {
  if (!is_number(problem.y_dtype)) return str("writes no ", problem.y_dtype);
  if (problem.y_dtype == problem.dtype || problem.y_dtype == DType::kF32) {
    return empty_rejection(problem);
  }
  return str("writes ", problem.dtype, problem.dtype == DType::kF32 ? "" : " or f32", ", not ",
             problem.y_dtype);
}

/// Of products that write y themselves from codes.
std::string direct_rejection(const CudaGemmProblem& problem) {
  std::string rejection = empty_rejection(problem);
  if (!rejection.empty()) return rejection;
  if (!is_number(problem.y_dtype)) return str("writes no ", problem.y_dtype);
  if (problem.N % kGemmPadding != 0) {
    return str("needs a multiple of ", kGemmPadding, " outputs, the weight has ", problem.N);
  }
  if (!problem.is_y_aligned) return "needs outputs that begin at multiples of 16 bytes";
  if (problem.has_bias && problem.y_dtype == DType::kF32) return "adds no bias to f32 outputs";
  if (problem.has_offsets) return "takes no offsets of outputs";
  return {};
}

std::string tensor_scale_rejection(const CudaGemmProblem& problem) {
  std::string rejection = direct_rejection(problem);
  if (!rejection.empty()) return rejection;
  if (problem.x_scale == ScaleSpan::kRow) return "needs one scale for all of x, it has one a row";
  if (problem.w_scale == ScaleSpan::kRow) {
    return "needs one scale for all of the weight, it has one an output";
  }
  return {};
}

std::string row_scale_rejection(const CudaGemmProblem& problem) {
  std::string rejection = direct_rejection(problem);
  if (!rejection.empty()) return rejection;
  if (problem.x_scale != ScaleSpan::kRow) return "needs a scale for each row of x";
  if (problem.w_scale != ScaleSpan::kRow) return "needs a scale for each output";
  return {};
}

std::string accumulator_rejection(const CudaGemmProblem& problem) {
  if (!is_number(problem.y_dtype)) return str("writes no ", problem.y_dtype);
  return empty_rejection(problem);
}

std::string plain_rejection(const CudaGemmProblem& problem) {
  return is_number(problem.y_dtype) ? "" : str("writes no ", problem.y_dtype);
}

std::string streamed_rejection(const CudaGemmProblem& problem) {
  if (!is_number(problem.y_dtype)) return str("writes no ", problem.y_dtype);
  const int64_t row_bytes = problem.K * bits_of(problem.dtype) / 8;
  if (row_bytes % kStreamedChunkBytes != 0) {
    return str("needs rows of a multiple of ", kStreamedChunkBytes,
               " bytes, those of the weight have ", row_bytes);
  }
  return empty_rejection(problem);
}

size_t no_workspace(const CudaGemmProblem&, int64_t) { return 0; }

size_t accumulator_workspace(const CudaGemmProblem& problem, int64_t M) {
  const int64_t rows = std::min(round_up(M, kGemmPadding), accumulator_rows_max(problem.N));
  return static_cast<size_t>(rows) * static_cast<size_t>(round_up(problem.N, kGemmPadding)) *
         sizeof(int32_t);
}

/// The bias in the type that cuBLASLt adds: y's.
const std::byte* bias_of(const CudaGemmOperands& operands, DType y_dtype) {
  if (operands.bias == nullptr) return nullptr;
  if (y_dtype == DType::kF32) return reinterpret_cast<const std::byte*>(operands.bias);
  HALLEY_CHECK(operands.rounded_bias != nullptr, name_of(y_dtype));
  return operands.rounded_bias;
}

/// The same with more rows and columns, of memory that is there.
ConstMatrix padded(ConstMatrix matrix, int64_t num_rows, int64_t num_cols) {
  HALLEY_CHECK(num_cols <= matrix.row_stride, num_cols, matrix.row_stride);
  matrix.num_rows = num_rows;
  matrix.num_cols = num_cols;
  return matrix;
}

void launch_numbers(CublasLtGemm& lt, const CudaContext& context, const CudaGemmProblem&,
                    const CudaGemmOperands& operands, Matrix y) {
  lt.multiply(context, {.x = operands.x, .w = operands.w, .bias = bias_of(operands, y.dtype)}, y);
}

template <LtScaling kScaling>
void launch_direct(CublasLtGemm& lt, const CudaContext& context, const CudaGemmProblem& problem,
                   const CudaGemmOperands& operands, Matrix y) {
  const int64_t inputs = round_up(problem.K, kGemmPadding);
  lt.multiply(context,
              {.x = padded(operands.x, y.num_rows, inputs),
               .w = padded(operands.w, problem.N, inputs),
               .scaling = kScaling,
               .x_scales = operands.scales.x_scales,
               .w_scales = operands.scales.w_scales,
               .bias = bias_of(operands, y.dtype)},
              y);
}

/// Sums into the workspace, then their scales; in pieces of rows where the sums are many.
template <DType kSumDType>
void launch_accumulators(CublasLtGemm& lt, const CudaContext& context,
                         const CudaGemmProblem& problem, const CudaGemmOperands& operands,
                         Matrix y) {
  const int64_t inputs = round_up(problem.K, kGemmPadding);
  const int64_t outputs = round_up(problem.N, kGemmPadding);
  const size_t mark = context.workspace.mark();
  auto* memory = context.workspace.take(accumulator_workspace(problem, y.num_rows));
  const int64_t rows_max = accumulator_rows_max(problem.N);
  for (int64_t begin = 0; begin < y.num_rows; begin += rows_max) {
    const int64_t end = std::min(begin + rows_max, y.num_rows);
    const int64_t rows = round_up(end - begin, kGemmPadding);
    const Matrix sums = {memory, kSumDType, rows, outputs, outputs};
    lt.multiply(context,
                {.x = padded(operands.x.rows(begin, end), rows, inputs),
                 .w = padded(operands.w, outputs, inputs)},
                sums);
    RowScales scales = operands.scales;
    if (scales.x_scales != nullptr && !scales.is_x_tensor) scales.x_scales += begin;
    if (scales.x_sums != nullptr) scales.x_sums += begin;
    scale_sums(context, sums.rows(0, end - begin).cols(0, problem.N), scales, operands.bias,
               y.rows(begin, end));
  }
  context.workspace.release(mark);
}

void launch_streamed(CublasLtGemm&, const CudaContext& context, const CudaGemmProblem&,
                     const CudaGemmOperands& operands, Matrix y) {
  streamed_gemm(
      context, {.x = operands.x, .w = operands.w, .scales = operands.scales, .bias = operands.bias},
      y);
}

void launch_streamed_gated(const CudaContext& context, const CudaGemmOperands& operands,
                           Activation activation, Matrix y) {
  streamed_gemm(context,
                {.x = operands.x,
                 .w = operands.w,
                 .scales = operands.scales,
                 .bias = operands.bias,
                 .gate = activation},
                y);
}

void launch_plain(CublasLtGemm&, const CudaContext& context, const CudaGemmProblem&,
                  const CudaGemmOperands& operands, Matrix y) {
  gemm_plain(context, operands.x, operands.w, operands.scales, operands.bias, y);
}

constexpr CudaGemmKernel lt_numbers(const char* name, DType dtype, const char* takes) {
  return {.name = name,
          .dtype = dtype,
          .takes = takes,
          .is_padded = false,
          .needs_algorithm = true,
          .why_not = number_rejection,
          .workspace_bytes = no_workspace,
          .launch = launch_numbers};
}

/// Where it was the fastest one on an H200, in whole decode steps of Llama-3 8B.
bool streamed_is_for(const CudaGemmProblem& problem, int64_t M) {
  constexpr int64_t kLargeBytes = 100 << 20, kSmallBytes = 20 << 20;
  const bool is_codes = problem.dtype == DType::kI8 || problem.dtype == DType::kF8E4M3;
  const int64_t weight_bytes = problem.N * problem.K * bits_of(problem.dtype) / 8;
  return M <= 32 || weight_bytes >= (is_codes ? kSmallBytes : kLargeBytes);
}

constexpr CudaGemmKernel streamed(const char* name, DType dtype, const char* takes) {
  return {.name = name,
          .dtype = dtype,
          .takes = takes,
          .is_padded = false,
          .needs_algorithm = false,
          .why_not = streamed_rejection,
          .workspace_bytes = no_workspace,
          .launch = launch_streamed,
          .rows_max = kStreamedRowsMax,
          .is_for = streamed_is_for,
          .launch_gated = launch_streamed_gated};
}

constexpr CudaGemmKernel plain(const char* name, DType dtype, const char* takes) {
  return {.name = name,
          .dtype = dtype,
          .takes = takes,
          .is_padded = false,
          .needs_algorithm = false,
          .why_not = plain_rejection,
          .workspace_bytes = no_workspace,
          .launch = launch_plain};
}

constexpr std::array<CudaGemmKernel, 17> kCudaGemmKernels = {{
    streamed("gemm_f16_streamed", DType::kF16, "f16, up to 64 rows, K a multiple of 64"),
    streamed("gemm_bf16_streamed", DType::kBf16, "bf16, up to 64 rows, K a multiple of 64"),
    streamed("gemm_fp8_streamed", DType::kF8E4M3,
             "e4m3, up to 64 rows, K a multiple of 128, any scales"),
    streamed("gemm_s8_streamed", DType::kI8,
             "s8, up to 64 rows, K a multiple of 128, any scales and offsets"),
    // On an H200 the product with scales for rows takes about 14 us or more for all that is small,
    // twice the time of one with scales for tensors; a pass behind that one costs less.
    {.name = "gemm_fp8_row_sums_cublaslt",
     .dtype = DType::kF8E4M3,
     .takes = "as gemm_fp8_row_cublaslt, up to 128 rows, by f32 sums in memory",
     .is_padded = true,
     .needs_algorithm = true,
     .why_not = row_scale_rejection,
     .workspace_bytes = accumulator_workspace,
     .launch = launch_accumulators<DType::kF32>,
     .rows_max = 128,
     .writes_accumulators = true},
    lt_numbers("gemm_f16_cublaslt", DType::kF16, "f16 to f16 or f32"),
    lt_numbers("gemm_bf16_cublaslt", DType::kBf16, "bf16 to bf16 or f32"),
    lt_numbers("gemm_f32_cublaslt", DType::kF32, "f32"),
    {.name = "gemm_fp8_tensor_cublaslt",
     .dtype = DType::kF8E4M3,
     .takes = "e4m3, a scale for x and one for the weight; outputs a multiple of 16",
     .is_padded = true,
     .needs_algorithm = true,
     .why_not = tensor_scale_rejection,
     .workspace_bytes = no_workspace,
     .launch = launch_direct<LtScaling::kTensor>,
     .scaling = LtScaling::kTensor},
    {.name = "gemm_fp8_row_cublaslt",
     .dtype = DType::kF8E4M3,
     .takes = "e4m3, a scale for each row of x and each output; outputs a multiple of 16",
     .is_padded = true,
     .needs_algorithm = true,
     .why_not = row_scale_rejection,
     .workspace_bytes = no_workspace,
     .launch = launch_direct<LtScaling::kVector>,
     .scaling = LtScaling::kVector},
    {.name = "gemm_fp8_sums_cublaslt",
     .dtype = DType::kF8E4M3,
     .takes = "e4m3, any scales, by f32 sums in memory",
     .is_padded = true,
     .needs_algorithm = true,
     .why_not = accumulator_rejection,
     .workspace_bytes = accumulator_workspace,
     .launch = launch_accumulators<DType::kF32>,
     .writes_accumulators = true},
    {.name = "gemm_s8_sums_cublaslt",
     .dtype = DType::kI8,
     .takes = "s8, any scales and offsets, by s32 sums in memory",
     .is_padded = true,
     .needs_algorithm = true,
     .why_not = accumulator_rejection,
     .workspace_bytes = accumulator_workspace,
     .launch = launch_accumulators<DType::kI32>,
     .writes_accumulators = true},
    plain("gemm_f16_plain", DType::kF16, "f16, any shape"),
    plain("gemm_bf16_plain", DType::kBf16, "bf16, any shape"),
    plain("gemm_f32_plain", DType::kF32, "f32, any shape"),
    plain("gemm_fp8_plain", DType::kF8E4M3, "e4m3, any shape and scales"),
    plain("gemm_s8_plain", DType::kI8, "s8, any shape, scales and offsets"),
}};

/// What the kernel asks cuBLASLt for, with rows as aligned as operands and outputs allow.
LtProblem lt_problem_of(const CudaGemmKernel& kernel, const CudaGemmProblem& problem) {
  const auto element_bytes = static_cast<uint64_t>(bits_of(problem.dtype) / 8);
  const int64_t stride_elements = 16 / static_cast<int64_t>(element_bytes);
  LtProblem lt = {.dtype = problem.dtype,
                  .y_dtype = problem.y_dtype,
                  .scaling = kernel.scaling,
                  .has_bias = problem.has_bias,
                  .N = problem.N,
                  .K = problem.K,
                  .w_stride = round_up(problem.K, stride_elements)};
  lt.x_alignment = alignment_of(static_cast<uint64_t>(problem.K) * element_bytes);
  const auto y_bytes = static_cast<uint64_t>(bits_of(problem.y_dtype) / 8);
  const uint64_t y_row_bytes = static_cast<uint64_t>(problem.N) * y_bytes;
  lt.y_alignment = problem.is_y_aligned ? alignment_of(y_row_bytes) : static_cast<int>(y_bytes);
  if (kernel.is_padded) {
    lt.K = round_up(problem.K, kGemmPadding);
    lt.w_stride = lt.K;
    lt.x_alignment = 16;
  }
  if (kernel.writes_accumulators) {
    lt.N = round_up(problem.N, kGemmPadding);
    lt.y_dtype = problem.dtype == DType::kI8 ? DType::kI32 : DType::kF32;
    lt.y_alignment = 16;
    lt.has_bias = false;
  }
  return lt;
}

}  // namespace

const char* name_of(ScaleSpan span) {
  switch (span) {
    case ScaleSpan::kNone:
      return "none";
    case ScaleSpan::kTensor:
      return "one";
    case ScaleSpan::kRow:
      return "one a row";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, const CudaGemmProblem& problem) {
  out << problem.dtype << " weight [" << problem.N << ", " << problem.K << "], outputs "
      << problem.y_dtype;
  if (problem.x_scale != ScaleSpan::kNone || problem.w_scale != ScaleSpan::kNone) {
    out << ", scales of x: " << problem.x_scale << ", of the weight: " << problem.w_scale;
  }
  if (problem.has_offsets) out << ", with offsets";
  return out << (problem.has_bias ? ", with a bias" : "");
}

std::span<const CudaGemmKernel> cuda_gemm_kernels() { return kCudaGemmKernels; }

int64_t accumulator_rows_max(int64_t N) {
  const auto row_bytes =
      static_cast<size_t>(round_up(std::max<int64_t>(N, 1), kGemmPadding)) * sizeof(int32_t);
  const auto rows = static_cast<int64_t>(kAccumulatorBytesMax / row_bytes);
  return std::max(kGemmPadding, rows / kGemmPadding * kGemmPadding);
}

const CudaGemmKernel& CudaGemmChoice::kernel_for(ConstMatrix x) const {
  if (row_alignment(x) < 16) return *kernel;
  const auto found = std::find_if(for_few_rows.begin(), for_few_rows.end(), [&](const auto* few) {
    return x.num_rows <= few->rows_max &&
           (few->is_for == nullptr || few->is_for(problem, x.num_rows));
  });
  return found == for_few_rows.end() ? *kernel : **found;
}

CudaGemmChoice choose_cuda_gemm_kernel(const CudaGemmProblem& problem, CublasLtGemm* lt) {
  CudaGemmChoice choice;
  choice.problem = problem;
  for (const CudaGemmKernel& kernel : kCudaGemmKernels) {
    if (kernel.dtype != problem.dtype) continue;
    const bool is_for_few = kernel.rows_max > 0;
    std::string reason = kernel.why_not(problem);
    if (reason.empty() && is_for_few && lt != nullptr && lt->choice().is_batch_invariant) {
      reason = "one algorithm for all batches is asked for";
    }
    if (reason.empty() && lt != nullptr && kernel.needs_algorithm) {
      reason = lt->why_no_algorithm(lt_problem_of(kernel, problem));
    }
    if (!reason.empty()) {
      (is_for_few ? choice.few_rows_rejections : choice.rejections)
          .push_back(str(kernel.name, ": ", reason));
    } else if (is_for_few) {
      choice.for_few_rows.push_back(&kernel);
    } else {
      choice.kernel = &kernel;
      return choice;
    }
  }
  throw UnsupportedError(str("gemm on the GPU: expected a kernel for a ", problem, ", got none (",
                             choice.rejections, "). Use f16, bf16 or f32 outputs."));
}

}  // namespace halley::cuda
