// In what form a weight lies on the GPU: codes as they are stored, codes of 8 bits that the tensor
// cores multiply, or numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/core/packed_weight.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemv/gemv_weight.h"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
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

/// The same for rows of codes, or of numbers alone; `reasons`, where there are some, replace why
/// they are numbers.
WeightForm rows_form(bool are_codes, const GemmProblem& problem, DType activation_dtype,
                     const std::string& reasons);

/// For weights that do not stay in their bits. Throws UnsupportedError where one picks its inputs
/// from those of several ranks (QuantParams::num_inputs).
void check_whole_order(const std::string& name, const PackedWeight& weight);

/// "f16, kept in f16": `stored` is the name of the layout, or of a type.
std::string describe_form(const char* stored, const WeightForm& form);

/// Elements between rows of codes or numbers: a multiple of 16 bytes.
int64_t row_stride_of(DType dtype, int64_t K);
/// Of all rows of codes or numbers, padding included.
size_t row_bytes_of(DType dtype, int64_t N, int64_t K);

/// How a layer will be multiplied.
enum class LinearUse : uint8_t {
  kAlone,
  /// Together with other experts, by kernels of numbers and of weights of 4 and 8 bits.
  kGrouped,
};

/// "u4_quad, kept in 4 bits (u4_f16): groups of 128 inputs".
std::string describe_mixed(MixedKind kind, const GemmProblem& problem);

/// "one; another"; a reason that is there already is left out.
std::string join_reasons(const std::string& one, const std::string& another);

/// For cuda/gemv; of a weight in a quad layout of 8, 3 or 2 bits.
GemvShape gemv_shape(const GemmProblem& problem);
/// "u8_quad, kept in 8 bits: groups of 128 inputs; of more than 32 rows decoded to f16".
std::string describe_gemv(const GemmProblem& problem, DType activation_dtype);
/// "gemm_w8a16_gemv", ...
const char* gemv_kernel_name(int bits);

/// Scales and zeros of all outputs and groups, [N, groups]; zeros in codes.
struct GemvScales {
  std::vector<float> scales;
  std::vector<float> zeros;  // empty where they are not as cuda/gemv takes them
};
/// `weight` holds its groups; its codes are not read.
GemvScales gemv_scales(const PackedWeight& weight);

/// "nested_f16_quad, kept in two planes: ...", "u4_quad, kept in 4 bits: blocks of ...".
std::string describe_nested(const GemmProblem& problem);
std::string describe_w4ax(const GemmProblem& problem);

inline constexpr const char* kNestedKernelName = "gemm_nestedf16_tile";
inline constexpr const char* kW4axKernelName = "gemm_w4ax_tile";
inline constexpr const char* kW4axMmaKernelName = "gemm_w4ax_mma";

/// The product of low precision of a weight in two planes: the upper one alone, for outputs of f16.
CudaGemmProblem nested_low_problem(int64_t N, int64_t K, bool has_bias);

/// Whether a weight's groups are as kW4ax takes them.
bool fits_w4ax(const PackedWeight& weight);

/// "gemm_w4a16_mixed", ..., and those of cuda/mma_gemm: "gemm_w4a16_mma", ..., "" of 8 bits.
const char* mixed_kernel_name(MixedKind kind);
const char* mma_kernel_name(MixedKind kind);

/// Scales and offsets of a weight whose codes lie on the GPU: a weight is scale * (code - shift) -
/// offset, where s8 codes are the stored ones, those of 8 bits less 128.
struct CodeScales {
  std::vector<float> scales;   // [N]
  std::vector<float> offsets;  // [N]; empty where all are zero
  bool has_one_scale = false;  // all equal
};

/// What stored codes are less on the GPU: 128 of 8 bits, otherwise nothing.
int code_shift(PackedLayout layout);

/// Of a weight with one group. `weight` holds its groups; its codes are not read.
CodeScales code_scales(const PackedWeight& weight, int shift);

}  // namespace halley::cuda
