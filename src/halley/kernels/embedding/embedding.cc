#include "halley/kernels/embedding/embedding.h"

#include "halley/base/check.h"
#include "halley/kernels/gemm/pack_dense.h"

namespace halley {

void embedding(ExecContext& context, const PackedWeight& table, std::span<const int32_t> ids,
               float scale, Matrix y) {
  const auto M = static_cast<int64_t>(ids.size());
  HALLEY_CHECK(y.dtype == DType::kF32 && y.num_rows == M && y.num_cols == table.K, y.dtype,
               y.num_rows, M, y.num_cols, table.K);
  context.pool.run(M, [&](int64_t m, int) {
    float* out = y.row<float>(m);
    unpack_row(table, ids[static_cast<size_t>(m)], out);
    if (scale == 1.0f) return;
    for (int64_t k = 0; k < table.K; ++k) out[k] *= scale;
  });
}

}  // namespace halley
