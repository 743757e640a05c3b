// What will run for the linear layers of a checkpoint, from headers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/cuda/weights/weight_form.h"
#include "halley/quant/base/format.h"
#include "halley/quant/base/linear_spec.h"

namespace halley::cuda {

/// What will run for some consecutive outputs of a layer, from headers alone.
struct CudaLinearPlan {
  std::string name;
  int64_t out_features = 0, in_features = 0;
  std::string form;  // as CudaLinear::Section
  /// As CudaLinear::Section::device_bytes(): codes or numbers with their padding, scales, zeros,
  /// biases and orders.
  size_t device_bytes = 0;
  std::string kernel;      // for outputs of the activations' type; by the rules alone
  std::string low_kernel;  // the same in low precision (core/precision.h); "": there is none
  std::string mma_kernel;  // of compute capability 8.0 to 8.9, in the C library alone; or ""
  std::vector<std::string> rejections;  // of better-placed kernels
  // What CudaExperts groups by. Of packed tiles:
  std::optional<MixedKind> packed_kind = {};
  int group_size = 0;
  // Of rows of codes or numbers:
  DType row_dtype = DType::kF16;
  int64_t row_stride = 0;
  ActivationQuant activation = ActivationQuant::kNone;
  float activation_scale = 0;
  int64_t num_s8_inputs = 0;
  float s4_clip = 1;
  bool has_input_perm = false;
};

/// One plan for each section, for a GPU of compute capability 9.0. A weight in e4m3 is planned as
/// one with a scale for each output, since only its data say that all are equal, and one of 4 bits
/// as if its scales and zeros fitted. Throws as QuantScheme::open().
std::vector<CudaLinearPlan> plan_cuda_linear(const QuantScheme& scheme, const TensorSource& source,
                                             const LinearSpec& spec, DType activation_dtype,
                                             LinearUse use = LinearUse::kAlone);

}  // namespace halley::cuda
