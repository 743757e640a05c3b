#include <algorithm>
#include <array>

#include "halley/base/check.h"
#include "halley/cuda/ops/join_columns.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;

struct Begins {
  std::array<int64_t, ColumnShares::kNumPartsMax + 1> of_part = {};
};

/// CTA (m, r) copies row m of part r, parts: [R, M, part_stride], all: [M, all_stride], both
/// row-major.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    join_columns_kernel(const __grid_constant__ Begins begins, const Word* parts,
                        int64_t part_stride, Word* all, int64_t all_stride) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x, part = blockIdx.y;
  const int64_t begin = begins.of_part[part];
  const int64_t width = begins.of_part[part + 1] - begin;
  const Word* from = parts + (part * gridDim.x + m) * part_stride;
  Word* to = all + m * all_stride + begin;
  for (int64_t c = threadIdx.x; c < width; c += kThreads) to[c] = from[c];
}

template <typename Word>
void join(const CudaContext& context, const ColumnShares& shares, const std::byte* parts,
          int64_t row_stride, Matrix all) {
  Begins begins;
  std::copy(shares.begins.begin(), shares.begins.end(), begins.of_part.begin());
  launch_kernel(
      context, "join columns",
      {.grid = dim3(static_cast<unsigned>(all.num_rows), static_cast<unsigned>(shares.num_parts())),
       .block = dim3(kThreads)},
      join_columns_kernel<Word>, begins, reinterpret_cast<const Word*>(parts), row_stride,
      reinterpret_cast<Word*>(all.data), all.row_stride);
}

}  // namespace

int64_t ColumnShares::width_max() const {
  int64_t most = 0;
  for (size_t i = 1; i < begins.size(); ++i) most = std::max(most, begins[i] - begins[i - 1]);
  return most;
}

void join_columns(const CudaContext& context, const ColumnShares& shares, const std::byte* parts,
                  int64_t row_stride, Matrix all) {
  HALLEY_CHECK(shares.num_parts() >= 1 && shares.num_parts() <= ColumnShares::kNumPartsMax,
               shares.num_parts());
  HALLEY_CHECK(all.num_cols == shares.num_columns() && row_stride >= shares.width_max(),
               all.num_cols, shares.num_columns(), row_stride);
  HALLEY_CHECK(bits_of(all.dtype) == 16 || bits_of(all.dtype) == 32, name_of(all.dtype));
  if (all.num_rows == 0) return;
  if (bits_of(all.dtype) == 16) {
    join<uint16_t>(context, shares, parts, row_stride, all);
  } else {
    join<uint32_t>(context, shares, parts, row_stride, all);
  }
}

}  // namespace halley::cuda
