// The launches of products of a few rows, a file for each type.
#pragma once

#include <cstdint>

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct FewRowsArguments {
  const uint8_t* x;
  const uint8_t* w;
  void* y;
  int M;
  int row_bytes;  // of K inputs
  int64_t N;
  int64_t x_row_bytes, w_row_bytes;  // from a row to the next
  int64_t y_stride;                  // elements
  DType y_dtype;
  RowScales scales;
  const float* bias;
};

void launch_few_rows_f16(const CudaContext& context, const FewRowsArguments& args);
void launch_few_rows_bf16(const CudaContext& context, const FewRowsArguments& args);
void launch_few_rows_e4m3(const CudaContext& context, const FewRowsArguments& args);
void launch_few_rows_s8(const CudaContext& context, const FewRowsArguments& args);

}  // namespace halley::cuda
