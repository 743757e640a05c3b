#include "halley/cuda/library/library_experts.h"

#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/grouped_gemm/quantized_grouped_gemm.h"
#include "halley/cuda/library/checked_arguments.h"
#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {
namespace {

/// The kernel counts rows, inputs and outputs in 32 bits.
constexpr int64_t kGroupedSizeMax = int64_t{1} << 28;

const LibraryWeight& first_of(std::span<const LibraryWeight* const> weights) {
  require(!weights.empty() && static_cast<int64_t>(weights.size()) <= kExpertsMax,
          str("num_experts: expected 1 to ", kExpertsMax, ", got ", weights.size(), "."));
  return *weights[0];
}

GroupedSource source_of(const LibraryWeight& weight) {
  const std::optional<GroupedSource> source = weight.grouped();
  if (source) return *source;
  throw UnsupportedError(
      "weight: expected a kind of 4 bits, W8A16_F16, W8A16_BF16, W8A8 or FP8 for experts that are "
      "multiplied together, got another. Multiply them one after the other.");
}

Activation activation_of(halley_kernels_activation activation) {
  switch (activation) {
    case HALLEY_KERNELS_NO_ACTIVATION:
    case HALLEY_KERNELS_SILU:
      return Activation::kSilu;
    case HALLEY_KERNELS_GELU_TANH:
      return Activation::kGeluTanh;
    case HALLEY_KERNELS_GELU_ERF:
      return Activation::kGeluErf;
    case HALLEY_KERNELS_RELU:
      return Activation::kRelu;
  }
  throw InputError(str("activation: expected a halley_kernels_activation, got ",
                       static_cast<int>(activation), ". Use a value of the header."));
}

}  // namespace

LibraryExperts::LibraryExperts(const CudaContext& context,
                               std::span<const LibraryWeight* const> weights,
                               std::span<const float* const> biases, bool is_gated)
    : first_(first_of(weights)),
      form_(source_of(first_)),
      num_experts_(static_cast<int64_t>(weights.size())),
      is_gated_(is_gated) {
  const CudaDeviceInfo& device = context.device;
  if (device.compute_major != 9 || device.compute_minor != 0) {
    throw UnsupportedError(str("experts: expected compute capability 9.0, got ",
                               device.compute_major, ".", device.compute_minor,
                               ". Multiply them one after the other."));
  }
  require(first_.N() < kGroupedSizeMax && first_.K() < kGroupedSizeMax,
          str("experts: expected N and K below ", kGroupedSizeMax, ", got ", first_.N(), ", ",
              first_.K(), "."));
  const int64_t half = first_.N() / 2;
  require(!is_gated || (first_.N() % 2 == 0 && half % kHalfOutputsMin == 0),
          str("experts: gated, expected half of N to be a multiple of ", kHalfOutputsMin, ", got ",
              first_.N(), " outputs."));
  std::vector<GroupedWeight> table;
  for (size_t e = 0; e < weights.size(); ++e) {
    const GroupedSource source = source_of(*weights[e]);
    const bool is_alike = source.kind == form_.kind && source.group_size == form_.group_size &&
                          weights[e]->N() == first_.N() && weights[e]->K() == first_.K() &&
                          (source.weight.offsets == nullptr) == (form_.weight.offsets == nullptr);
    require(is_alike, str("weights: expected all as the first, ", form_.kind, " of ", first_.N(),
                          " x ", first_.K(), ", got another form for expert ", e, "."));
    GroupedWeight weight = source.weight;
    if (!biases.empty()) weight.bias = biases[e];
    table.push_back(weight);
    if (is_gated) table.push_back(from_output(weight, half, form_.weight_stride));
  }
  table_ = DeviceBuffer(table.size() * sizeof(table[0]), "addresses of experts");
  check_cuda(cudaMemcpyAsync(table_.data(), table.data(), table_.num_bytes(),
                             cudaMemcpyHostToDevice, context.stream.get()),
             "copy of addresses of experts");
  context.stream.synchronize();
}

void LibraryExperts::multiply(const CudaContext& context, const LibraryOperands& operands,
                              const halley_kernels_grouping& grouping, Matrix y) const {
  const bool has_activation = grouping.activation != HALLEY_KERNELS_NO_ACTIVATION;
  require(has_activation || !is_gated_, "activation: expected one for gated experts, got none.");
  require(y.dtype == DType::kF16 || y.dtype == DType::kBf16,
          str("y: expected f16 or bf16, got ", y.dtype, "."));
  require(has_scales(form_.kind) || y.dtype == operands.x.dtype,
          str("y: expected the type of x, ", operands.x.dtype, ", got ", y.dtype, "."));
  require(y.num_rows < kGroupedSizeMax,
          str("y: expected below ", kGroupedSizeMax, " rows, got ", y.num_rows, "."));
  require_pointer(grouping.expert_begin, "expert_begin");
  require(grouping.slot_rows != nullptr || operands.x.num_rows == y.num_rows,
          str("x: expected a row for each of ", y.num_rows, " slots, got ", operands.x.num_rows,
              " rows."));
  const bool is_packed = !is_rows(form_.kind);
  quantized_grouped_gemm(context,
                         {.kind = form_.kind,
                          .x = operands.x,
                          .x_scales = {.x_scales = operands.scales, .x_sums = operands.sums},
                          .slot_row = grouping.slot_rows,
                          .expert_begin = grouping.expert_begin,
                          .num_experts = num_experts_,
                          .weights = reinterpret_cast<const GroupedWeight*>(table_.data()),
                          .second_half_begin = is_gated_ && is_packed ? num_outputs() : 0,
                          .group_size = form_.group_size,
                          .weight_stride = form_.weight_stride,
                          .epilogue = is_gated_        ? GroupedEpilogue::kGated
                                      : has_activation ? GroupedEpilogue::kActivation
                                                       : GroupedEpilogue::kNone,
                          .activation = activation_of(grouping.activation)},
                         y);
}

}  // namespace halley::cuda
