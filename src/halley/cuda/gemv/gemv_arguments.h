// What a launch of a product of a few rows passes to the GPU, and the launches of its types.
#pragma once

#include <cstdint>

#include "halley/core/dtype.h"
#include "halley/cuda/gemv/gemv_digits.h"
#include "halley/cuda/gemv/gemv_plan.h"
#include "halley/cuda/gemv/gemv_planes.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Of a weight, for products and decoding.
struct GemvWeightArguments {
  const uint8_t* codes;
  const void* scales;  // of `scale_dtype`: f32 for outputs, f16 or bf16 for groups
  const void* zeros;   // null: all are `zero`
  DType scale_dtype;
  float zero;
  int num_pieces, num_whole_pieces;  // the latter full of inputs
  int num_entries;                   // of scales (GemvShape)
  int groups_of_entry, entry_shift;  // an entry is for 2^shift pieces; one of them is 1
  int64_t num_tiles;
};

GemvWeightArguments gemv_weight_arguments(const GemvWeight& weight);

struct GemvArguments {
  GemvWeightArguments weight;
  const uint8_t* x;
  void* y;
  int M;
  int x_row_used_bytes;  // of K inputs
  int64_t N;
  int64_t x_row_bytes;  // from a row to the next
  int64_t y_stride;     // elements
  DType y_dtype;
  const float* x_scales;
  const float* bias;
};

struct GemvF16;
struct GemvBf16;
struct GemvS8;
struct F16Digits;
struct Bf16Digits;
struct F16Planes;
struct Bf16Planes;
struct S8Planes;

/// The instances are listed in CMakeLists.txt.
template <class Numbers, int kBits>
void launch_gemv(const CudaContext& context, const GemvPlan& plan, const GemvArguments& args);
/// Of one or two rows.
template <class Type, int kBits>
void launch_gemv_digits(const CudaContext& context, const GemvDigitPlan& plan,
                        const GemvArguments& args);
/// Of one or two rows, and codes of 1 or 2 bits.
template <class Type, int kBits>
void launch_gemv_planes(const CudaContext& context, const GemvPlanePlan& plan,
                        const GemvArguments& args);

}  // namespace halley::cuda
