#include "halley/cuda/runtime/cuda_check.h"
#include "halley/models/cuda/resolve_tokens.h"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void resolve_kernel(const int32_t* last_tokens, int num_rows, int32_t* ids) {
  const int m = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (m >= num_rows) return;
  const int32_t id = ids[m];
  if (id < 0) ids[m] = last_tokens[-1 - id];  // as slot_of_token() says
}

}  // namespace

void resolve_tokens(const CudaContext& context, const int32_t* last_tokens, int64_t num_rows,
                    int32_t* ids) {
  if (num_rows == 0) return;
  const auto num_blocks = static_cast<unsigned>((num_rows + kThreads - 1) / kThreads);
  resolve_kernel<<<num_blocks, kThreads, 0, context.stream.get()>>>(
      last_tokens, static_cast<int>(num_rows), ids);
  check_launch("resolve tokens");
}

}  // namespace halley::cuda
