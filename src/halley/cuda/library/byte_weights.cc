#include "halley/cuda/library/byte_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/library/checked_arguments.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {
namespace {

constexpr int64_t kNestedMultiple = 128;

/// The rows' memory, padded as CudaGemmOperands says.
DeviceBuffer padded_rows(const CudaContext& context, int64_t N, int64_t K) {
  const auto num_bytes = static_cast<size_t>(round_up(N, kGemmPadding) * K);
  DeviceBuffer memory(num_bytes, "weight");
  check_cuda(cudaMemsetAsync(memory.data(), 0, num_bytes, context.stream.get()),
             "padding of a weight");
  return memory;
}

template <typename T>
void copy_to_device(const CudaContext& context, std::byte* to, std::span<const T> values) {
  check_cuda(cudaMemcpyAsync(to, values.data(), values.size_bytes(), cudaMemcpyHostToDevice,
                             context.stream.get()),
             "copy of a weight");
}

template <typename T>
DeviceBuffer device_array(const CudaContext& context, std::span<const T> values, const char* what) {
  DeviceBuffer memory(values.size_bytes(), what);
  copy_to_device(context, memory.data(), values);
  return memory;
}

void require_form(const CudaContext& context, const halley_kernels_source& source,
                  int64_t multiple) {
  require(source.N >= 1 && source.N <= kSizeMax && source.K >= 1 && source.K <= kSizeMax,
          str("weight: expected N and K from 1 to ", kSizeMax, ", got ", source.N, ", ", source.K,
              "."));
  require(source.group_size == source.K,
          str("group_size: expected K, ", source.K, ", for this kind of weight, got ",
              source.group_size, "."));
  require_pointer(source.codes, "codes");
  require(source.group_scales == nullptr, "group_scales: expected null for this kind of weight.");
  const CudaDeviceInfo& device = context.device;
  if (device.compute_major != 9 || device.compute_minor != 0) {
    throw UnsupportedError(str("weight: of bytes, expected compute capability 9.0, got ",
                               device.compute_major, ".", device.compute_minor,
                               ". Use 4 bits, or choose another GPU."));
  }
  if (source.K % multiple != 0) {
    throw UnsupportedError(str("weight: expected K to be a multiple of ", multiple, ", got ",
                               source.K, ". Pad weight and x by zeros."));
  }
}

std::span<const float> scales_of(const halley_kernels_source& source) {
  require_pointer(source.scales, "scales");
  const std::span<const float> scales(source.scales, static_cast<size_t>(source.N));
  require(std::all_of(scales.begin(), scales.end(), [](float x) { return std::isfinite(x); }),
          "scales: expected finite numbers.");
  return scales;
}

/// [N] each; offsets empty: none.
struct OutputScales {
  std::span<const float> scales, offsets;
};

class RowsLibraryWeight final : public LibraryWeight {
 public:
  /// `rows` are those of `memory`, whose contents are there, or queued on the context's stream.
  RowsLibraryWeight(const CudaContext& context, DeviceBuffer memory, ConstMatrix rows,
                    const OutputScales& of_outputs)
      : LibraryWeight(rows.num_rows, rows.num_cols, {rows.dtype}),
        memory_(std::move(memory)),
        w_(rows),
        scales_(device_array(context, of_outputs.scales, "scales of a weight")) {
    if (!of_outputs.offsets.empty()) {
      offsets_ = device_array(context, of_outputs.offsets, "offsets of a weight");
    }
    context.stream.synchronize();
  }

  size_t num_bytes() const override {
    return memory_.num_bytes() + scales_.num_bytes() + offsets_.num_bytes();
  }
  bool needs_sums() const override { return offsets() != nullptr; }
  std::optional<CudaActivationQuant> quantization() const override {
    return CudaActivationQuant{.kind = w_.dtype == DType::kI8 ? ActivationQuant::kS8Token
                                                              : ActivationQuant::kE4m3Token};
  }
  std::optional<GroupedSource> grouped() const override {
    return GroupedSource{
        .kind = w_.dtype == DType::kI8 ? GroupedKind::kS8 : GroupedKind::kE4m3,
        .weight = {.data = memory_.data(), .scales = scales(), .offsets = offsets()},
        .weight_stride = w_.row_stride};
  }

  void multiply(const CudaContext& context, const LibrarySettings& settings,
                const LibraryOperands& operands, Matrix y) const override;
  std::string describe(const CudaContext&, const LibrarySettings& settings,
                       int64_t M) const override {
    const bool is_aligned = N() % kGemmPadding == 0;
    const CudaGemmChoice& choice =
        choice_of({.y_dtype = DType::kF16, .is_aligned = is_aligned}, settings);
    return choice.kernel_for({memory_.data(), w_.dtype, M, K(), K()}).name;
  }

  ConstMatrix w() const { return w_; }

 private:
  struct Outputs {
    DType y_dtype = DType::kF16;
    bool has_bias = false, is_aligned = false;
    auto operator<=>(const Outputs&) const = default;
  };

  const float* scales() const { return reinterpret_cast<const float*>(scales_.data()); }
  const float* offsets() const { return reinterpret_cast<const float*>(offsets_.data()); }
  /// Asked once for each form of outputs: cuBLASLt takes a millisecond to answer.
  const CudaGemmChoice& choice_of(const Outputs& outputs, const LibrarySettings& settings) const;

  DeviceBuffer memory_;
  ConstMatrix w_;
  DeviceBuffer scales_, offsets_;
  mutable std::map<Outputs, CudaGemmChoice> choices_;
};

const CudaGemmChoice& RowsLibraryWeight::choice_of(const Outputs& outputs,
                                                   const LibrarySettings& settings) const {
  const auto found = choices_.find(outputs);
  if (found != choices_.end()) return found->second;
  const CudaGemmProblem problem = {.dtype = w_.dtype,
                                   .y_dtype = outputs.y_dtype,
                                   .N = N(),
                                   .K = K(),
                                   .x_scale = ScaleSpan::kRow,
                                   .w_scale = ScaleSpan::kRow,
                                   .has_offsets = needs_sums(),
                                   .has_bias = outputs.has_bias,
                                   .is_y_aligned = outputs.is_aligned};
  return choices_.emplace(outputs, choose_cuda_gemm_kernel(problem, settings.lt)).first->second;
}

/// The bias in y's type, from the workspace.
const std::byte* rounded_bias(const CudaContext& context, const float* bias, DType dtype,
                              int64_t N) {
  const Matrix rounded = {context.workspace.take(static_cast<size_t>(N) * sizeof(uint16_t)), dtype,
                          1, N, N};
  round_rows(context, {}, f32_matrix(bias, 1, N), rounded);
  return rounded.data;
}

/// The rows, copied to where there is memory for a multiple of 16 of them.
ConstMatrix with_padding(const CudaContext& context, ConstMatrix x) {
  const auto width = static_cast<size_t>(x.num_cols);
  std::byte* copy =
      context.workspace.take(static_cast<size_t>(round_up(x.num_rows, kGemmPadding)) * width);
  check_cuda(cudaMemcpy2DAsync(copy, width, x.data, static_cast<size_t>(x.row_stride), width,
                               static_cast<size_t>(x.num_rows), cudaMemcpyDeviceToDevice,
                               context.stream.get()),
             "copy of activations");
  return {copy, x.dtype, x.num_rows, x.num_cols, x.num_cols};
}

void RowsLibraryWeight::multiply(const CudaContext& context, const LibrarySettings& settings,
                                 const LibraryOperands& operands, Matrix y) const {
  const CudaGemmChoice& choice = choice_of({.y_dtype = y.dtype,
                                            .has_bias = operands.bias != nullptr,
                                            .is_aligned = row_alignment(y) == kGemmPadding},
                                           settings);
  const CudaGemmKernel& kernel = choice.kernel_for(operands.x);
  const size_t mark = context.workspace.mark();
  CudaGemmOperands gemm = {.x = operands.x, .w = w_, .bias = operands.bias};
  if (kernel.scaling != LtScaling::kNone && operands.bias != nullptr && y.dtype != DType::kF32) {
    gemm.rounded_bias = rounded_bias(context, operands.bias, y.dtype, N());
  }
  int64_t rows_at_once = y.num_rows;
  if (kernel.is_padded && kernel.writes_accumulators) {
    const size_t free_bytes = context.workspace.num_bytes() - context.workspace.mark();
    rows_at_once = library_rows_at_once(free_bytes, N(), K());
    if (rows_at_once == 0) {
      throw DeviceError(str("workspace: expected room for the sums of ", kGemmPadding, " rows of ",
                            N(), " outputs, got ", free_bytes,
                            " bytes. Open the context with more."));
    }
  }
  for (int64_t begin = 0; begin < y.num_rows; begin += rows_at_once) {
    const int64_t end = std::min(begin + rows_at_once, y.num_rows);
    const size_t piece_mark = context.workspace.mark();
    gemm.x = operands.x.rows(begin, end);
    if (kernel.writes_accumulators && (end - begin) % kGemmPadding != 0) {
      gemm.x = with_padding(context, gemm.x);
    }
    gemm.scales = {.x_scales = operands.scales + begin,
                   .w_scales = scales(),
                   .w_offsets = offsets(),
                   .x_sums = operands.sums == nullptr ? nullptr : operands.sums + begin};
    kernel.launch(*settings.lt, context, choice.problem, gemm, y.rows(begin, end));
    context.workspace.release(piece_mark);
  }
  context.workspace.release(mark);
}

class NestedLibraryWeight final : public LibraryWeight {
 public:
  /// `upper`: its rows are in lane order; `weight` has it as its upper plane.
  NestedLibraryWeight(std::unique_ptr<RowsLibraryWeight> upper, NestedWeight weight)
      : LibraryWeight(upper->N(), upper->K(), {DType::kF16, DType::kF8E4M3}),
        upper_(std::move(upper)),
        weight_(std::move(weight)) {}

  size_t num_bytes() const override { return upper_->num_bytes() + weight_.num_bytes(); }
  std::optional<CudaActivationQuant> quantization() const override {
    return CudaActivationQuant{.kind = ActivationQuant::kE4m3Token, .has_lane_order = true};
  }

  void multiply(const CudaContext& context, const LibrarySettings& settings,
                const LibraryOperands& operands, Matrix y) const override {
    if (operands.x.dtype == DType::kF8E4M3) {
      return upper_->multiply(context, settings, operands, y);
    }
    nested_gemm_planned(
        context, weight_,
        {.x = operands.x, .bias = operands.bias, .starts_early = settings.starts_early},
        plan(context, y.num_rows), y);
  }
  std::string describe(const CudaContext& context, const LibrarySettings& settings,
                       int64_t M) const override {
    return str(plan(context, M), "; of e4m3 ", upper_->describe(context, settings, M));
  }

 private:
  TilePlan plan(const CudaContext& context, int64_t M) const {
    return plan_tiles(nested_family(), {M, N(), K()}, context.device);
  }

  std::unique_ptr<RowsLibraryWeight> upper_;
  NestedWeight weight_;
};

/// s8: a code less 128.
std::vector<uint8_t> signed_codes(std::span<const uint8_t> codes) {
  std::vector<uint8_t> values(codes.begin(), codes.end());
  for (uint8_t& value : values) value ^= 0x80;
  return values;
}

/// A weight is scale * s8 - offset; empty where all zeros are 128.
std::vector<float> offsets_of(const halley_kernels_source& source) {
  constexpr float kMiddle = 128;
  if (source.zeros == nullptr) return {};
  std::vector<float> offsets;
  bool has_some = false;
  for (int64_t n = 0; n < source.N; ++n) {
    const float zero = source.zeros[n];
    require(zero >= 0 && zero <= 2 * kMiddle,
            str("zeros: expected 0 to 256, got ", zero, " of output ", n, "."));
    offsets.push_back(source.scales[n] * (zero - kMiddle));
    has_some = has_some || zero != kMiddle;
  }
  if (!has_some) offsets.clear();
  return offsets;
}

}  // namespace

int64_t library_rows_at_once(size_t num_bytes, int64_t N, int64_t K) {
  constexpr size_t kTwoArrays = 2 * DeviceArena::kAlignment;
  const auto row_bytes =
      static_cast<size_t>(round_up(N, kGemmPadding)) * sizeof(int32_t) + static_cast<size_t>(K);
  if (num_bytes < kTwoArrays) return 0;
  const auto rows = static_cast<int64_t>((num_bytes - kTwoArrays) / row_bytes);
  return rows / kGemmPadding * kGemmPadding;
}

std::unique_ptr<LibraryWeight> pack_rows_weight(const CudaContext& context,
                                                const halley_kernels_source& source) {
  require_form(context, source, kGemmPadding);
  const std::span<const float> scales = scales_of(source);
  const std::span<const uint8_t> codes(source.codes, static_cast<size_t>(source.N * source.K));
  DeviceBuffer memory = padded_rows(context, source.N, source.K);
  Matrix rows = {memory.data(), DType::kI8, source.N, source.K, source.K};
  if (source.kind == HALLEY_KERNELS_W8A8) {
    const std::vector<uint8_t> values = signed_codes(codes);
    const std::vector<float> offsets = offsets_of(source);
    copy_to_device(context, rows.data, std::span<const uint8_t>(values));
    return std::make_unique<RowsLibraryWeight>(context, std::move(memory), rows,
                                               OutputScales{scales, offsets});
  }
  constexpr uint8_t kNan = 0x7F;
  require(source.zeros == nullptr, "zeros: expected null for this kind of weight.");
  require(std::none_of(codes.begin(), codes.end(), [](uint8_t c) { return (c & kNan) == kNan; }),
          "codes: expected e4m3 values, got NaN (0x7F or 0xFF).");
  rows.dtype = DType::kF8E4M3;
  copy_to_device(context, rows.data, codes);
  return std::make_unique<RowsLibraryWeight>(context, std::move(memory), rows,
                                             OutputScales{scales, {}});
}

std::unique_ptr<LibraryWeight> pack_nested_weight(const CudaContext& context,
                                                  const halley_kernels_source& source) {
  require_form(context, source, kNestedMultiple);
  require(source.scales == nullptr && source.zeros == nullptr,
          "scales, zeros: expected null for this kind of weight.");
  const auto num_values = static_cast<size_t>(source.N * source.K);
  std::vector<uint8_t> upper(num_values), lower(num_values);
  for (size_t i = 0; i < num_values; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, source.codes + i * sizeof(bits), sizeof(bits));
    if (!can_split_f16(bits)) {
      throw UnsupportedError(str("weight: expected magnitudes up to 1.75, got another of output ",
                                 i / static_cast<size_t>(source.K), ", input ",
                                 i % static_cast<size_t>(source.K),
                                 ". Scale the output down, or keep the weight in f16."));
    }
    const NestedFloat nested = split_f16(bits);
    upper[i] = nested.upper;
    lower[i] = nested.lower;
  }
  const int64_t N = source.N, K = source.K;
  DeviceBuffer memory = padded_rows(context, N, K);
  copy_to_device(context, memory.data(), std::span<const uint8_t>(upper));
  const Matrix rows = {memory.data(), DType::kF8E4M3, N, K, K};
  order_upper_rows(context, rows);
  const DeviceBuffer plane = device_array(context, std::span<const uint8_t>(lower), "lower plane");
  NestedWeight weight(context, rows);
  pack_lower_rows(context, {plane.data(), DType::kU8, N, K, K}, 0, weight);
  const std::vector<float> scales(static_cast<size_t>(N), kNestedUpperScale);
  auto upper_rows = std::make_unique<RowsLibraryWeight>(context, std::move(memory), rows,
                                                        OutputScales{scales, {}});  // waits
  return std::make_unique<NestedLibraryWeight>(std::move(upper_rows), std::move(weight));
}

}  // namespace halley::cuda
