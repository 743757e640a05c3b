#include "halley/cuda/weights/gemv_linear.h"

#include <algorithm>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"

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

size_t decoded_bytes(int64_t N, int64_t K) {
  return static_cast<size_t>(decoded_outputs(N, K) * K) * sizeof(uint16_t);
}

std::string GemvLinear::describe_kernels() const {
  return str("outputs by ", kernel_name(), "; of decoded numbers ", gemms_.describe());
}

WeightInput GemvLinear::input(Precision) const {
  return {.dtype = gemms_.for_activations.problem.dtype, .is_ordered = true};
}

void GemvLinear::multiply(const CudaContext& context, const WeightOperands& operands,
                          Matrix y) const {
  const ConstMatrix& x = operands.x;
  if (x.num_rows <= gemv_linear_rows_max(weight_.shape.bits)) {
    return gemv(context, weight_, {.x = x, .bias = operands.bias}, y);
  }
  const CudaGemmChoice& choice = gemms_.for_dtype(y.dtype).choice;
  const int64_t N = weight_.shape.N, K = weight_.shape.K, part = choice.problem.N;
  const size_t mark = context.workspace.mark();
  const Matrix rows = {context.workspace.take(decoded_bytes(N, K)), x.dtype, part, K, K};
  const CudaGemmKernel& kernel = choice.kernel_for(x);
  for (int64_t done = 0; done < N; done += part) {
    // The last part repeats outputs of the one before.
    const int64_t begin = std::min(done, N - part);
    decode_gemv_rows(context, weight_, begin, rows);
    kernel.launch(
        lt_, context, choice.problem,
        {.x = x,
         .w = rows,
         .bias = operands.bias == nullptr ? nullptr : operands.bias + begin,
         .rounded_bias =
             operands.rounded_bias == nullptr ? nullptr : operands.rounded_bias + 2 * begin},
        y.cols(begin, begin + part));
  }
  context.workspace.release(mark);
}

size_t GemvLinear::workspace_bytes(int64_t M, Precision) const {
  return round_up(decoded_bytes(weight_.shape.N, weight_.shape.K), DeviceArena::kAlignment) +
         gemms_.workspace_bytes(M);
}

}  // namespace halley::cuda
