#include "halley/kernels/linalg/gemm_pieces.h"

#include <span>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/core/tensor.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/kernels/gemm/pack_dense.h"

namespace halley::linalg {

PackedWeight pack_rows(ExecContext& context, ConstMatrix b) {
  // Rows may lie apart: each is a part of its own.
  std::vector<TensorView> rows(static_cast<size_t>(b.num_rows));
  for (int64_t n = 0; n < b.num_rows; ++n) {
    rows[static_cast<size_t>(n)] = {
        reinterpret_cast<const std::byte*>(b.row<float>(n)), DType::kF32, {1, b.num_cols}};
  }
  return pack_dense(context, rows);
}

PackedWeight pack_columns(ExecContext& context, ConstMatrix b) {
  PackedWeight packed;
  packed.layout = PackedLayout::kF32Panel;
  packed.N = b.num_cols;
  packed.K = b.num_rows;
  packed.data = HostBuffer(packed_bytes(packed.layout, packed.N, packed.K));
  const std::span<float> out = packed.data.as<float>();
  const int64_t num_panels = ceil_div(packed.N, kPanelRows);
  for_rows(context, packed.K, [&](int64_t k) {
    const float* row = b.row<float>(k);
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      float* to = out.data() + (panel * packed.K + k) * kPanelRows;
      const int64_t num_cols = std::min(kPanelRows, packed.N - panel * kPanelRows);
      std::copy_n(row + panel * kPanelRows, num_cols, to);
      std::fill(to + num_cols, to + kPanelRows, 0.0f);
    }
  });
  return packed;
}

void multiply(ExecContext& context, ConstMatrix a, const PackedWeight& packed, Matrix c) {
  find_gemm_kernel(problem_of(packed)).launch(context, packed, /*bias=*/nullptr, a, c);
}

Matrix PieceBuffer::take(int64_t num_rows, int64_t num_cols) {
  HALLEY_CHECK(num_rows <= kPieceRows && num_cols <= kPieceRows, num_rows, num_cols);
  if (buffer_.num_bytes() == 0) buffer_ = HostBuffer(kPieceRows * kPieceRows * sizeof(float));
  return f32_matrix(buffer_.as<float>().data(), num_rows, num_cols);
}

}  // namespace halley::linalg
