// A weight in device memory, in the layout of the kernels that multiply it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/core/precision.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {

struct MixedWeight;
struct W4axWeight;
class RowsWeight;

/// How a weight takes its inputs x [M, K].
struct WeightInput {
  /// i8 or f8_e4m3: x is quantized. Otherwise floats of this type.
  DType dtype = DType::kF16;
  /// Of quantized x: what replaces the section's activation quantization, or null.
  const CudaActivationQuant* activation = nullptr;
  bool has_sums = false;  // of quantized x: sums of its values are wanted
  /// Of floats: multiply() takes any type and alignment.
  bool takes_any = false;
  /// Of floats: rows begin at multiples of 16 bytes, and their inputs are in the weight's order.
  bool is_ordered = false;

  bool is_quantized() const { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }
};

struct WeightOperands {
  ConstMatrix x;                            // as WeightInput says
  RowScales x_scales = {};                  // of quantized x
  int64_t num_s8_inputs = 0;                // of blocks of 4 and 8 bits
  const float* bias = nullptr;              // [N]
  const std::byte* rounded_bias = nullptr;  // [N] of the activations' type
};

class DeviceWeight {
 public:
  DeviceWeight() = default;
  DeviceWeight(const DeviceWeight&) = delete;
  DeviceWeight& operator=(const DeviceWeight&) = delete;
  virtual ~DeviceWeight() = default;

  /// The kernel for outputs in the activations' type.
  virtual const char* kernel_name() const = 0;
  /// The same in low precision; "": there is none.
  virtual const char* low_kernel_name() const { return ""; }
  /// The kernels in words: "outputs by ...".
  virtual std::string describe_kernels() const = 0;
  /// Why better-placed kernels do not multiply the layout.
  virtual std::vector<std::string> rejections() const { return {}; }

  virtual WeightInput input(Precision precision) const = 0;
  /// y [M, N] = x W^T + bias, of the activations' type or f32.
  virtual void multiply(const CudaContext& context, const WeightOperands& operands,
                        Matrix y) const = 0;
  /// The most that multiply() takes from the workspace for M rows.
  virtual size_t workspace_bytes(int64_t M, Precision precision) const = 0;
  /// What a GEMM reads.
  virtual std::vector<const DeviceBuffer*> buffers(Precision precision) const = 0;

  /// Whether row_gemm() (cuda/row_gemm) may multiply it by one row.
  virtual bool has_row_kernel() const { return false; }

  /// The layout, for kernels that are not multiply(): grouped GEMMs, lookups, fused rows. Null
  /// where it is another one.
  virtual const RowsWeight* rows() const { return nullptr; }
  virtual const MixedWeight* mixed() const { return nullptr; }
  virtual const W4axWeight* w4ax() const { return nullptr; }
};

}  // namespace halley::cuda
