#include "halley/cuda/library/library_weight.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemv/gemv.h"
#include "halley/cuda/library/byte_weights.h"
#include "halley/cuda/library/weight_source.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"

namespace halley::cuda {
namespace {

class MixedLibraryWeight final : public LibraryWeight {
 public:
  explicit MixedLibraryWeight(const MixedPacked& packed)
      : LibraryWeight(packed.N, packed.K, {input_dtype(packed.kind)}), weight_(packed) {}

  size_t num_bytes() const override { return weight_.num_bytes(); }
  bool needs_sums() const override { return weight_.needs_sums(); }
  std::optional<CudaActivationQuant> quantization() const override {
    if (!is_s8(weight_.kind)) return {};
    return CudaActivationQuant{.kind = ActivationQuant::kS8Token};
  }
  std::optional<GroupedSource> grouped() const override {
    return GroupedSource{.kind = grouped_kind(weight_.kind),
                         .weight = {.data = weight_.chunks.data(),
                                    .scales = weight_.w_scales(),
                                    .offsets = weight_.w_offsets()},
                         .group_size = weight_.group_size};
  }

  void multiply(const CudaContext& context, const LibrarySettings& settings,
                const LibraryOperands& operands, Matrix y) const override {
    const MixedOperands mixed = {.x = operands.x,
                                 .x_scales = {.x_scales = operands.scales, .x_sums = operands.sums},
                                 .bias = operands.bias,
                                 .starts_early = settings.starts_early};
    (is_mma(settings) ? mma_gemm : mixed_gemm)(context, weight_, mixed, y);
  }

  std::string describe(const CudaContext& context, const LibrarySettings& settings,
                       int64_t M) const override {
    const MixedDevice device = mixed_device(context);
    if (is_mma(settings)) return str("mma: ", plan_mma_gemm(mma_shape(weight_, M), device));
    return str("hopper: ", plan_mixed_gemm(mixed_shape(weight_, M), device));
  }

 private:
  /// Whether the mma.sync kernels multiply it.
  bool is_mma(const LibrarySettings& settings) const {
    if (settings.kernels->kernels == W4Kernels::kHopper) return false;
    if (!is_u8(weight_.kind)) return true;
    throw UnsupportedError(str("weight: of 8 bits, expected the kernels \"hopper\", got ",
                               quote(settings.kernels->name), ". Choose these, or another GPU."));
  }

  MixedWeight weight_;
};

class GemvLibraryWeight final : public LibraryWeight {
 public:
  explicit GemvLibraryWeight(GemvWeight weight)
      : LibraryWeight(weight.shape.N, weight.shape.K, types_of(weight.shape)),
        weight_(std::move(weight)) {}

  size_t num_bytes() const override { return weight_.num_bytes(); }
  std::optional<CudaActivationQuant> quantization() const override {
    if (weight_.shape.inputs != GemvInputs::kS8) return {};
    return CudaActivationQuant{.kind = ActivationQuant::kS8Token};
  }

  void multiply(const CudaContext& context, const LibrarySettings&, const LibraryOperands& operands,
                Matrix y) const override {
    const bool is_s8 = operands.x.dtype == DType::kI8;
    gemv(context, weight_,
         {.x = operands.x, .x_scales = is_s8 ? operands.scales : nullptr, .bias = operands.bias},
         y);
  }

  std::string describe(const CudaContext& context, const LibrarySettings&, int64_t) const override {
    return str(plan_gemv(weight_.shape, context.device.num_sms));
  }

 private:
  static std::vector<DType> types_of(const GemvShape& shape) {
    if (shape.inputs == GemvInputs::kS8) return {DType::kI8};
    return {DType::kF16, DType::kBf16};
  }

  GemvWeight weight_;
};

}  // namespace

bool needs_cublaslt(halley_kernels_kind kind) {
  return kind == HALLEY_KERNELS_W8A8 || kind == HALLEY_KERNELS_FP8 || kind == HALLEY_KERNELS_NESTED;
}

std::unique_ptr<LibraryWeight> pack_library_weight(const CudaContext& context,
                                                   const halley_kernels_source& source) {
  if (source.kind == HALLEY_KERNELS_NESTED) return pack_nested_weight(context, source);
  if (needs_cublaslt(source.kind)) return pack_rows_weight(context, source);
  const GemvShape shape = gemv_shape_of(source);
  if (shape.bits != 0) {
    return std::make_unique<GemvLibraryWeight>(pack_gemv(context, source, shape));
  }
  return std::make_unique<MixedLibraryWeight>(pack_mixed(mixed_source_of(source)));
}

}  // namespace halley::cuda
