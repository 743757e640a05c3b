// What an algorithm of cuBLASLt is chosen for, and how choices are shared between shapes.
#pragma once

#include <cstdint>
#include <ostream>
#include <tuple>

#include "halley/core/dtype.h"
#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"

namespace halley::cuda {

/// All that a choice depends on beside M. Alignments are the largest power of two, at most 16, that
/// divides the address of every row, in bytes.
struct LtProblem {
  DType dtype = DType::kF16;    // of x and w
  DType y_dtype = DType::kF16;  // i32 of i8
  LtScaling scaling = LtScaling::kNone;
  bool has_bias = false;
  int64_t N = 0;
  int64_t K = 0;
  int64_t w_stride = 0;
  int x_alignment = 16;
  int w_alignment = 16;
  int y_alignment = 16;
};

std::ostream& operator<<(std::ostream& out, const LtProblem& problem);

/// How algorithms are chosen.
struct LtChoice {
  /// One algorithm without split-K for all M (cublaslt_gemm.h).
  bool is_batch_invariant = false;
  /// With it: the M that the heuristics are asked for.
  int64_t invariant_rows = 128;
  /// Lets FP8 products keep their sums in the tensor cores' own, shorter accumulators: faster, and
  /// less exact with K.
  bool has_short_fp8_sums = false;
  /// Larger M use the algorithm of this one.
  int64_t num_rows_max = 8192;
};

inline constexpr int64_t kSmallestBucket = 16;

/// The M that stands for M: a power of two, at least kSmallestBucket, at most
/// choice.num_rows_max; choice.invariant_rows where one algorithm is for all.
int64_t row_bucket(const LtChoice& choice, int64_t M);

/// Largest power of two, at most 16, that divides the address of every row of a matrix.
int row_alignment(ConstMatrix matrix);
int alignment_of(uint64_t bytes);

using LtKey =
    std::tuple<DType, DType, LtScaling, bool, int64_t, int64_t, int64_t, int, int, int, int64_t>;

/// The same for all shapes that share an algorithm.
LtKey key_of(const LtChoice& choice, const LtProblem& problem, int64_t M);

}  // namespace halley::cuda
