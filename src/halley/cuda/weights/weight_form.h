// In what form a weight lies on the GPU: codes that the tensor cores multiply, or numbers.
#pragma once

#include <string>
#include <vector>

#include "halley/core/packed_weight.h"
#include "halley/kernels/gemm/gemm.h"

namespace halley::cuda {

struct WeightForm {
  /// Of the rows in device memory: i8, f8_e4m3, or the activations' type.
  DType dtype = DType::kF16;
  /// Why a quantized weight is decoded to numbers; empty for codes and for full precision.
  std::string why_numbers = {};

  bool is_codes() const { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }
};

/// `activation_dtype` is f16, bf16 or f32. Codes of 2 to 8 bits become s8 [N, K] where every output
/// has one scale and x is rounded to s8; e4m3 stays where every output has one scale and x is
/// rounded to e4m3 with one scale a row or one for all. All else is decoded to numbers, and x is
/// rounded as the checkpoint says and multiplied as numbers.
WeightForm weight_form(const GemmProblem& problem, DType activation_dtype);

/// Scales and offsets of a weight whose codes lie on the GPU: a weight is scale * code - offset,
/// where s8 codes are the stored ones, those of 8 bits less 128.
struct CodeScales {
  std::vector<float> scales;   // [N]
  std::vector<float> offsets;  // [N]; empty where all are zero
  bool has_one_scale = false;  // all equal
};

/// Of a weight with one group. `weight` holds its groups; its codes are not read.
CodeScales code_scales(const PackedWeight& weight);

}  // namespace halley::cuda
