#include "halley/cuda/weights/gemv_linear.h"

#include <algorithm>

#include "halley/base/checked_math.h"

namespace halley::cuda {

int64_t gemv_linear_rows_max(int bits) {
  // A pass of kGemvRowsMax rows reads the codes; decoding reads them, and writes and reads numbers.
  return bits == 8 ? 32 : 16;
}

int64_t decoded_outputs(int64_t N, int64_t K) {
  constexpr int64_t kMultiple = 64;
  const int64_t at_once = std::max<int64_t>(kDecodedBytesMax / (2 * std::max<int64_t>(K, 1)), 1);
  const int64_t parts = ceil_div(N, at_once);
  return std::min(N, round_up(ceil_div(N, std::max<int64_t>(parts, 1)), kMultiple));
}

bool are_decoded_parts_aligned(int64_t N, int64_t K, int64_t first_output, DType y_dtype) {
  const int64_t part = decoded_outputs(N, K), bits = bits_of(y_dtype);
  return first_output * bits % 128 == 0 && part * bits % 128 == 0 && (N - part) * bits % 128 == 0;
}

void run_gemv_linear(const CudaContext& context, CublasLtGemm& lt, const GemvWeight& weight,
                     const CudaGemmChoice& choice, const GemvLinearOperands& operands, Matrix y) {
  const ConstMatrix& x = operands.x;
  if (x.num_rows <= gemv_linear_rows_max(weight.shape.bits)) {
    return gemv(context, weight, {.x = x, .bias = operands.bias}, y);
  }
  const int64_t N = weight.shape.N, K = weight.shape.K, part = choice.problem.N;
  const size_t mark = context.workspace.mark();
  const Matrix rows = {context.workspace.take(decoded_bytes(N, K)), x.dtype, part, K, K};
  const CudaGemmKernel& kernel = choice.kernel_for(x);
  for (int64_t done = 0; done < N; done += part) {
    // The last part repeats outputs of the one before.
    const int64_t begin = std::min(done, N - part);
    decode_gemv_rows(context, weight, begin, rows);
    kernel.launch(
        lt, context, choice.problem,
        {.x = x,
         .w = rows,
         .bias = operands.bias == nullptr ? nullptr : operands.bias + begin,
         .rounded_bias =
             operands.rounded_bias == nullptr ? nullptr : operands.rounded_bias + 2 * begin},
        y.cols(begin, begin + part));
  }
  context.workspace.release(mark);
}

size_t decoded_bytes(int64_t N, int64_t K) {
  return static_cast<size_t>(decoded_outputs(N, K) * K) * sizeof(uint16_t);
}

}  // namespace halley::cuda
