#include "halley/cuda/gemm/cublaslt_gemm.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/cublaslt_library.h"

namespace halley::cuda {
namespace {

void check_cublas(cublasStatus_t status, const std::string& call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(str("cuBLASLt: ", call, ": ", cublaslt().status_name(status), ": ",
                        cublaslt().status_string(status)));
}

cudaDataType_t cuda_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBf16:
      return CUDA_R_16BF;
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    case DType::kI8:
      return CUDA_R_8I;
    case DType::kI32:
      return CUDA_R_32I;
    default:
      HALLEY_CHECK(false, name_of(dtype));
  }
  return CUDA_R_32F;
}

/// cuBLASLt's columns are our rows: it is told D [N, M] = A^T B with A = w [K, N], B = x [K, M].
class LtDescription {
 public:
  LtDescription(const LtProblem& problem, bool has_short_fp8_sums) {
    const bool is_integer = problem.dtype == DType::kI8;
    check_cublas(cublaslt().init_desc(&desc_, sizeof(desc_),
                                      is_integer ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                      is_integer ? CUDA_R_32I : CUDA_R_32F),
                 "description of a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    if (problem.dtype == DType::kF8E4M3) {
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(has_short_fp8_sums ? 1 : 0));
    }
    if (problem.scaling == LtScaling::kVector) {
      constexpr cublasLtMatmulMatrixScale_t kMode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kMode);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kMode);
    }
    if (problem.has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type_of(problem.y_dtype));
    }
  }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_cublas(cublaslt().set_desc_attribute(&desc_, attribute, &value, sizeof(value)),
                 str("attribute ", static_cast<int>(attribute), " of a product"));
  }
  void set_scales(const void* of_w, const void* of_x) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_w);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_x);
  }
  void set_bias(const void* bias) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }

  cublasLtMatmulDesc_t get() { return &desc_; }

 private:
  cublasLtMatmulDescOpaque_t desc_ = {};
};

/// A row-major matrix [rows, cols] as cuBLASLt sees it: columns of `cols` elements.
class LtLayout {
 public:
  LtLayout(DType dtype, int64_t rows, int64_t cols, int64_t stride) {
    check_cublas(
        cublaslt().init_layout(&layout_, sizeof(layout_), cuda_type_of(dtype),
                               static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), stride),
        "layout of a matrix");
  }
  cublasLtMatrixLayout_t get() { return &layout_; }

 private:
  cublasLtMatrixLayoutOpaque_t layout_ = {};
};

struct LtLayouts {
  LtLayout w, x, y;
};

/// Elements between rows that are `alignment` bytes aligned.
int64_t aligned_stride(DType dtype, int64_t cols, int alignment) {
  const int64_t element_bytes = bits_of(dtype) / 8;
  return round_up<int64_t>(cols * element_bytes, alignment) / element_bytes;
}

LtLayouts layouts_of(const LtProblem& problem, int64_t M) {
  return {.w = LtLayout(problem.dtype, problem.N, problem.K, problem.w_stride),
          .x = LtLayout(problem.dtype, M, problem.K,
                        aligned_stride(problem.dtype, problem.K, problem.x_alignment)),
          .y = LtLayout(problem.y_dtype, M, problem.N,
                        aligned_stride(problem.y_dtype, problem.N, problem.y_alignment))};
}

class LtPreference {
 public:
  LtPreference(const LtProblem& problem, size_t workspace_bytes, bool is_batch_invariant) {
    check_cublas(cublaslt().init_preference(&preference_, sizeof(preference_)), "preference");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
    // Partial sums of split-K stay f32 or s32; without any, there is no split.
    const uint32_t reductions = is_batch_invariant ? CUBLASLT_REDUCTION_SCHEME_NONE
                                                   : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(problem.w_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(problem.x_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(problem.y_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(problem.y_alignment));
  }
  cublasLtMatmulPreference_t get() { return &preference_; }

 private:
  template <typename Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check_cublas(
        cublaslt().set_preference_attribute(&preference_, attribute, &value, sizeof(value)),
        str("preference ", static_cast<int>(attribute)));
  }
  cublasLtMatmulPreferenceOpaque_t preference_ = {};
};

LtProblem problem_of(const LtOperands& operands, Matrix y) {
  return {.dtype = operands.x.dtype,
          .y_dtype = y.dtype,
          .scaling = operands.scaling,
          .has_bias = operands.bias != nullptr,
          .N = y.num_cols,
          .K = operands.x.num_cols,
          .w_stride = operands.w.row_stride,
          .x_alignment = row_alignment(operands.x),
          .w_alignment = row_alignment(operands.w),
          .y_alignment = row_alignment(y)};
}

/// The M, of those that use one algorithm, for which it is checked.
std::vector<int64_t> checked_rows(const LtChoice& choice, int64_t M) {
  const int64_t bucket = row_bucket(choice, M);
  if (choice.is_batch_invariant) return {1, 2, 17, bucket, choice.num_rows_max};
  if (bucket == kSmallestBucket) return {1, 7, bucket};
  return {bucket / 2 + 1, bucket};
}

template <typename Value>
Value config_of(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  Value value = {};
  size_t num_written = 0;
  check_cublas(cublaslt().get_algo_attribute(&algo, attribute, &value, sizeof(value), &num_written),
               str("attribute ", static_cast<int>(attribute), " of an algorithm"));
  return value;
}

}  // namespace

CublasLtGemm::CublasLtGemm(const CudaContext& context, const CublasLtOptions& options)
    : options_(options) {
  HALLEY_CHECK(options.choice.invariant_rows >= 1 && options.choice.num_rows_max >= 1,
               options.choice.invariant_rows, options.choice.num_rows_max);
  cublasLtHandle_t handle = nullptr;
  check_cublas(cublaslt().create(&handle), "start");
  handle_.reset(handle);
  workspace_ = context.workspace.take(options.workspace_bytes);
}

CublasLtGemm::Algorithm CublasLtGemm::ask_algorithm(const LtProblem& problem, int64_t M) const {
  const LtChoice& choice = options_.choice;
  const int64_t bucket = row_bucket(choice, M);
  LtDescription description(problem, choice.has_short_fp8_sums);
  // Only their alignment counts here.
  if (problem.scaling != LtScaling::kNone) description.set_scales(workspace_, workspace_);
  if (problem.has_bias) description.set_bias(workspace_);
  LtPreference preference(problem, options_.workspace_bytes, choice.is_batch_invariant);
  LtLayouts layouts = layouts_of(problem, bucket);
  constexpr int kNumAsked = 16;
  std::array<cublasLtMatmulHeuristicResult_t, kNumAsked> results = {};
  int num_results = 0;
  const cublasStatus_t status = cublaslt().get_heuristic(
      handle_.get(), description.get(), layouts.w.get(), layouts.x.get(), layouts.y.get(),
      layouts.y.get(), preference.get(), kNumAsked, results.data(), &num_results);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return {.rejection =
                str("cuBLASLt answers ", cublaslt().status_name(status), " for ", bucket, " rows")};
  }
  const std::vector<int64_t> rows_to_check = checked_rows(choice, M);
  for (const auto& result : std::span(results).first(static_cast<size_t>(num_results))) {
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    const bool runs_all =
        std::all_of(rows_to_check.begin(), rows_to_check.end(), [&](int64_t rows) {
          LtLayouts of_rows = layouts_of(problem, rows);
          cublasLtMatmulHeuristicResult_t checked = {};
          const cublasStatus_t answer = cublaslt().check_algo(
              handle_.get(), description.get(), of_rows.w.get(), of_rows.x.get(), of_rows.y.get(),
              of_rows.y.get(), &result.algo, &checked);
          return answer == CUBLAS_STATUS_SUCCESS &&
                 checked.workspaceSize <= options_.workspace_bytes;
        });
    if (runs_all) return {.is_found = true, .algo = result.algo, .rejection = {}};
  }
  return {.rejection = str("cuBLASLt has ", num_results, " algorithms for ", bucket,
                           " rows, of which none runs all of ", rows_to_check, " rows in ",
                           format_bytes(static_cast<double>(options_.workspace_bytes)))};
}

const CublasLtGemm::Algorithm& CublasLtGemm::find_algorithm(const LtProblem& problem, int64_t M) {
  const LtKey key = key_of(options_.choice, problem, M);
  const auto found = algorithms_.find(key);
  if (found != algorithms_.end()) return found->second;
  return algorithms_.emplace(key, ask_algorithm(problem, M)).first->second;
}

std::string CublasLtGemm::why_no_algorithm(const LtProblem& problem) {
  for (int64_t M = 1; M <= options_.choice.num_rows_max; M *= 2) {
    const Algorithm& algorithm = find_algorithm(problem, M);
    if (!algorithm.is_found) return algorithm.rejection;
  }
  return find_algorithm(problem, options_.choice.num_rows_max).rejection;
}

void CublasLtGemm::multiply(const CudaContext& context, const LtOperands& operands, Matrix y) {
  const ConstMatrix& x = operands.x;
  const ConstMatrix& w = operands.w;
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols == w.num_cols && w.num_rows == y.num_cols &&
                   x.dtype == w.dtype,
               x.num_rows, x.num_cols, w.num_rows, w.num_cols, y.num_rows, y.num_cols);
  const LtProblem problem = problem_of(operands, y);
  const Algorithm& algorithm = find_algorithm(problem, y.num_rows);
  if (!algorithm.is_found) {
    throw DeviceError(str("cuBLASLt: expected an algorithm for ", problem, ", ", y.num_rows,
                          " rows, got none (", algorithm.rejection,
                          "). Align the rows, or use the plain kernel."));
  }
  LtDescription description(problem, options_.choice.has_short_fp8_sums);
  if (problem.scaling != LtScaling::kNone) {
    description.set_scales(operands.w_scales, operands.x_scales);
  }
  if (problem.has_bias) description.set_bias(operands.bias);
  LtLayouts layouts = {.w = LtLayout(w.dtype, w.num_rows, w.num_cols, w.row_stride),
                       .x = LtLayout(x.dtype, x.num_rows, x.num_cols, x.row_stride),
                       .y = LtLayout(y.dtype, y.num_rows, y.num_cols, y.row_stride)};
  const float one = 1, zero = 0;
  const int32_t integer_one = 1, integer_zero = 0;
  const bool is_integer = x.dtype == DType::kI8;
  check_cublas(cublaslt().matmul(handle_.get(), description.get(),
                                 is_integer ? static_cast<const void*>(&integer_one) : &one, w.data,
                                 layouts.w.get(), x.data, layouts.x.get(),
                                 is_integer ? static_cast<const void*>(&integer_zero) : &zero,
                                 y.data, layouts.y.get(), y.data, layouts.y.get(), &algorithm.algo,
                                 workspace_, options_.workspace_bytes, context.stream.get()),
               str("product of ", y.num_rows, " rows, ", problem));
}

std::string CublasLtGemm::describe(const LtProblem& problem, int64_t M) {
  const Algorithm& algorithm = find_algorithm(problem, M);
  if (!algorithm.is_found) return algorithm.rejection;
  const cublasLtMatmulAlgo_t& algo = algorithm.algo;
  return str("algorithm ", config_of<int32_t>(algo, CUBLASLT_ALGO_CONFIG_ID), ", tile ",
             config_of<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID), ", stages ",
             config_of<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID), ", split-K ",
             config_of<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), ", cluster ",
             config_of<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

}  // namespace halley::cuda
