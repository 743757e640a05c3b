#include "halley/cuda/library/weight_source.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/library/checked_arguments.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {
namespace {

MixedKind kind_of(halley_kernels_kind kind) {
  switch (kind) {
    case HALLEY_KERNELS_W4A8:
      return MixedKind::kU4S8;
    case HALLEY_KERNELS_W4A8_GROUP:
      return MixedKind::kU4GroupS8;
    case HALLEY_KERNELS_W4A16_F16:
      return MixedKind::kU4F16;
    case HALLEY_KERNELS_W4A16_BF16:
      return MixedKind::kU4Bf16;
    case HALLEY_KERNELS_W8A16_F16:
      return MixedKind::kU8F16;
    case HALLEY_KERNELS_W8A16_BF16:
      return MixedKind::kU8Bf16;
    default:
      break;
  }
  throw InputError(str("kind: expected a halley_kernels_kind, got ", static_cast<int>(kind),
                       ". Use a value of the header."));
}

void require_sizes(const halley_kernels_source& source) {
  require(source.N >= 1 && source.N <= kSizeMax && source.K >= 1 && source.K <= kSizeMax &&
              source.group_size >= 1 && source.group_size <= kSizeMax,
          str("weight: expected N, K and group_size from 1 to ", kSizeMax, ", got ", source.N, ", ",
              source.K, ", ", source.group_size, "."));
  require_pointer(source.codes, "codes");
  require_pointer(source.scales, "scales");
}

}  // namespace

DType input_dtype(MixedKind kind) {
  if (is_s8(kind)) return DType::kI8;
  return is_f16(kind) ? DType::kF16 : DType::kBf16;
}

MixedSource mixed_source_of(const halley_kernels_source& source) {
  const MixedKind kind = kind_of(source.kind);
  require_sizes(source);
  const bool has_group_scales = kind == MixedKind::kU4GroupS8;
  require((source.group_scales != nullptr) == has_group_scales,
          str("group_scales: expected ", has_group_scales ? "a pointer" : "null",
              " for this kind of weight."));
  const auto outputs = static_cast<size_t>(source.N);
  const size_t groups = outputs * static_cast<size_t>((source.K - 1) / source.group_size + 1);
  MixedSource plain = {.kind = kind,
                       .N = source.N,
                       .K = source.K,
                       .group_size = source.group_size,
                       .codes = {source.codes, outputs * static_cast<size_t>(source.K)},
                       .scales = {source.scales, is_s8(kind) ? outputs : groups}};
  if (source.zeros != nullptr) plain.zeros = {source.zeros, groups};
  if (has_group_scales) plain.group_scales = {source.group_scales, groups};
  return plain;
}

GemvShape gemv_shape_of(const halley_kernels_source& source) {
  GemvShape shape = {.bits = 0, .N = source.N, .K = source.K, .group_size = source.group_size};
  switch (source.kind) {
    case HALLEY_KERNELS_W8A16:
      shape.bits = 8;
      break;
    case HALLEY_KERNELS_W3A16:
      shape.bits = 3;
      break;
    case HALLEY_KERNELS_W2A8:
      shape.inputs = GemvInputs::kS8;
      [[fallthrough]];
    case HALLEY_KERNELS_W2A16:
      shape.bits = 2;
      break;
    case HALLEY_KERNELS_W1A8:
      shape.inputs = GemvInputs::kS8;
      [[fallthrough]];
    case HALLEY_KERNELS_W1A16:
      shape.bits = 1;
      break;
    default:
      break;
  }
  return shape;
}

GemvWeight pack_gemv(const CudaContext& context, const halley_kernels_source& source,
                     const GemvShape& shape) {
  require_sizes(source);
  require(source.group_scales == nullptr, "group_scales: expected null for this kind of weight.");
  const CudaDeviceInfo& device = context.device;
  if (device.compute_major != 9 || device.compute_minor != 0) {
    throw UnsupportedError(str("weight: of ", shape.bits,
                               " bits, expected compute capability 9.0, got ", device.compute_major,
                               ".", device.compute_minor, ". Use 4 bits, or choose another GPU."));
  }
  const std::string why_not = why_not_gemv(shape);
  if (!why_not.empty()) throw UnsupportedError(str("weight: ", why_not, "."));
  const auto count = static_cast<size_t>(shape.N) * static_cast<size_t>(shape.num_groups());
  const std::vector<float> middle(source.zeros == nullptr ? count : 0,
                                  static_cast<float>(1 << shape.bits) / 2);
  const GemvParams params = {
      .scales = {source.scales, count},
      .zeros = {source.zeros == nullptr ? middle.data() : source.zeros, count}};
  require(std::all_of(params.scales.begin(), params.scales.end(),
                      [](float scale) { return std::isfinite(scale); }),
          "scales: expected finite numbers.");
  require(has_gemv_zeros(params.zeros), "zeros: expected multiples of 1/2 from 0 to 256.");
  std::vector<uint8_t> quantized(source.codes, source.codes + shape.N * shape.K);
  const int code_max = (1 << shape.bits) - 1;
  for (uint8_t& code : quantized) {
    require(code <= code_max,
            str("codes: expected quantized values from 0 to ", code_max, ", got ", int{code}, "."));
    if (shape.bits == 8) code ^= 0x80;  // minus 128: the GEMV kernels read 8-bit weights as s8
  }
  GemvWeight weight(context, shape, params);
  const DeviceBuffer rows(quantized.size(), "row-major weight");
  check_cuda(cudaMemcpyAsync(rows.data(), quantized.data(), quantized.size(),
                             cudaMemcpyHostToDevice, context.stream.get()),
             "copy of the quantized weight");
  pack_gemv_rows(context, {rows.data(), DType::kI8, shape.N, shape.K, shape.K}, 0, weight);
  context.stream.synchronize();
  return weight;
}

}  // namespace halley::cuda
