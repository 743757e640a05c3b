#include "halley/cuda/gemm/lt_problem.h"

#include <algorithm>
#include <bit>

namespace halley::cuda {

std::ostream& operator<<(std::ostream& out, const LtProblem& problem) {
  out << problem.dtype << " to " << problem.y_dtype << ", N = " << problem.N
      << ", K = " << problem.K << ", rows of x, w and y at multiples of " << problem.x_alignment
      << ", " << problem.w_alignment << " and " << problem.y_alignment << " bytes";
  if (problem.scaling == LtScaling::kTensor) out << ", a scale for each tensor";
  if (problem.scaling == LtScaling::kVector) out << ", scales for rows";
  if (problem.has_bias) out << ", with a bias";
  return out;
}

int64_t row_bucket(const LtChoice& choice, int64_t M) {
  if (choice.is_batch_invariant) return choice.invariant_rows;
  const int64_t at_most = std::max(choice.num_rows_max, kSmallestBucket);
  const int64_t rows = std::clamp(M, kSmallestBucket, at_most);
  return std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))), at_most);
}

int alignment_of(uint64_t bytes) {
  constexpr uint64_t kWidest = 16;
  return static_cast<int>(uint64_t{1} << std::countr_zero(bytes | kWidest));
}

int row_alignment(ConstMatrix matrix) {
  const auto address = reinterpret_cast<uintptr_t>(matrix.data);
  const auto stride_bytes =
      static_cast<uint64_t>(matrix.row_stride) * static_cast<uint64_t>(bits_of(matrix.dtype) / 8);
  return alignment_of(address | stride_bytes);
}

LtKey key_of(const LtChoice& choice, const LtProblem& problem, int64_t M) {
  return {problem.dtype,       problem.y_dtype,     problem.scaling,      problem.has_bias,
          problem.N,           problem.K,           problem.w_stride,     problem.x_alignment,
          problem.w_alignment, problem.y_alignment, row_bucket(choice, M)};
}

}  // namespace halley::cuda
