// Activations rounded on the GPU as a checkpoint asks (ActivationQuant, core/packed_weight.h): bit
// for bit what kernels/gemm/activation_quant.h says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// QuantParams of activations, for the device.
struct CudaActivationQuant {
  ActivationQuant kind = ActivationQuant::kNone;
  float scale = 0;            // of the static kinds
  int64_t num_s8_inputs = 0;  // of kS4S8Block128
  float s4_clip = 1;
  /// Of kS4S8Block128, in device memory: K numbers, or null (QuantParams::input_perm).
  const int32_t* input_perm = nullptr;
  /// Of kE4m3Token: codes of each kLaneInputs inputs, of which K is a multiple, are in the order of
  /// cuda/gemm/lane_order.h.
  bool has_lane_order = false;
};

/// Inputs that share a scale: all K, or 128 of kE4m3Group128 and kS4S8Block128.
int64_t activation_group_inputs(ActivationQuant kind, int64_t K);
/// i8 or f8_e4m3.
DType activation_code_dtype(ActivationQuant kind);

/// Where codes go; device memory.
struct QuantizedRows {
  /// [M, K] of activation_code_dtype(); in packed order for kS4S8Block128. s8 codes of a row or
  /// block that is not finite are zero, e4m3 codes then NaN (0x7F).
  Matrix codes = {};
  /// Columns K to padded_cols of codes become zero: at most row_stride, and within the last group.
  int64_t padded_cols = 0;
  /// [M, number of groups]: the scale of each, NaN where it is not finite.
  float* scales = nullptr;
  /// Above 0: scales are [number of groups, scales_pitch] instead.
  int64_t scales_pitch = 0;
  /// [M], or null: the sum of a row's codes. For kinds with one scale a row and s8 codes.
  int32_t* sums = nullptr;
};

/// Rows of codes, with one scale a row, as products of codes take them (CudaGemmOperands): from the
/// workspace, until the caller releases it.
QuantizedRows take_quantized_rows(const CudaContext& context, ActivationQuant kind, int64_t M,
                                  int64_t K, bool has_sums);
/// The most that it takes.
size_t quantized_rows_bytes(int64_t M, int64_t K);

/// Shapes: x [M, K], f16, bf16 or f32. For all kinds but kNone.
void quantize_rows(const CudaContext& context, const CudaActivationQuant& quant, ConstMatrix x,
                   const QuantizedRows& out);

/// The rounded values scale * code (one rounding to f32), rounded again to the type of `rounded`,
/// in natural order; kNone only changes the type.
/// Shapes: x and rounded [M, K], f16, bf16 or f32; may not overlap.
void round_rows(const CudaContext& context, const CudaActivationQuant& quant, ConstMatrix x,
                Matrix rounded);

}  // namespace halley::cuda
