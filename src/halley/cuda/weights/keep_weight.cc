// Quantized weights into the device layouts of device_gemm.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/cuda/weights/decode_quads.h"
#include "halley/cuda/weights/device_arrays.h"
#include "halley/cuda/weights/gemv_linear.h"
#include "halley/cuda/weights/mixed_linear.h"
#include "halley/cuda/weights/pack_mixed_weight.h"
#include "halley/cuda/weights/pack_w4ax_weight.h"
#include "halley/cuda/weights/rows_weight.h"
#include "halley/cuda/weights/tile_linear.h"
#include "halley/cuda/weights/weight_form.h"

namespace halley::cuda {
namespace {

uint16_t round_to(DType dtype, float value) {
  return dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
}

void add_input_perm(const PackedWeight& weight, DeviceArrays* arrays,
                    CudaLinear::Section* section) {
  const std::vector<int32_t>& order = weight.quant.input_perm;
  if (order.empty()) return;
  arrays->add(std::span<const int32_t>(order), &section->activation.input_perm);
}

}  // namespace

Matrix CudaWeightLoader::allocate_rows(DType dtype, int64_t N, int64_t K, DeviceBuffer* memory) {
  *memory = DeviceBuffer(std::max<size_t>(row_bytes_of(dtype, N, K), 1), "weights");
  return {memory->data(), dtype, N, K, row_stride_of(dtype, K)};
}

/// Calls visit(panels in staging, their first output, the one behind their last), with multiples of
/// panels_multiple panels but for the last ones. What is staged is there in the order of the
/// stream.
template <typename Visit>
void CudaWeightLoader::visit_panels(const PackedWeight& weight, int64_t panels_multiple,
                                    const Visit& visit) {
  const size_t panel_bytes = packed_bytes(weight.layout, kPanelRows, weight.K);
  const size_t panel_group_bytes =
      is_quantized(weight.layout)
          ? halley::group_bytes(kPanelRows, weight.K, weight.quant.group_size)
          : 0;
  // Both begin at multiples of 256 bytes.
  const size_t one_panel = panel_bytes + panel_group_bytes;
  ensure_staging(static_cast<size_t>(panels_multiple) * one_panel + DeviceArena::kAlignment);
  const auto panels_max = static_cast<int64_t>((staging_.num_bytes() - DeviceArena::kAlignment) /
                                               std::max<size_t>(one_panel, 1));
  const int64_t panels_at_once = panels_max / panels_multiple * panels_multiple;
  const int64_t num_panels = ceil_div(weight.N, kPanelRows);
  for (int64_t panel = 0; panel < num_panels; panel += panels_at_once) {
    const int64_t count = std::min(panels_at_once, num_panels - panel);
    const auto first = static_cast<size_t>(panel), many = static_cast<size_t>(count);
    std::byte* groups = staging_.data() + round_up(many * panel_bytes, DeviceArena::kAlignment);
    staged_.copy(staging_.data(), weight.data.data() + first * panel_bytes, many * panel_bytes);
    staged_.copy(groups, weight.quant.groups.data() + first * panel_group_bytes,
                 many * panel_group_bytes);
    const QuadPanels panels = {.layout = weight.layout,
                               .data = reinterpret_cast<const uint8_t*>(staging_.data()),
                               .groups = reinterpret_cast<const float*>(groups),
                               .group_size = std::max<int64_t>(weight.quant.group_size, 1),
                               .zero_kind = weight.quant.zero_kind};
    visit(panels, panel * kPanelRows, std::min(weight.N, (panel + count) * kPanelRows));
  }
}

void CudaWeightLoader::decode_panels(const PackedWeight& weight, const int32_t* input_perm,
                                     Matrix rows) {
  visit_panels(weight, 1, [&](QuadPanels panels, int64_t begin, int64_t end) {
    panels.input_perm = input_perm;
    if (rows.dtype == DType::kI8 || rows.dtype == DType::kF8E4M3) {
      decode_codes(device_, panels, rows.rows(begin, end));
    } else {
      decode_quads(device_, panels, rows.rows(begin, end),
                   reinterpret_cast<uint32_t*>(lost_.data()));
    }
  });
}

/// In f32, and rounded to the activations' type.
void CudaWeightLoader::add_bias(std::span<const float> bias, DeviceArrays* arrays,
                                CudaLinear::Section* section) {
  if (bias.empty()) return;
  std::vector<uint16_t> rounded;
  for (const float value : bias) rounded.push_back(round_to(dtype_, value));
  arrays->add(bias, &section->bias);
  arrays->add(std::as_bytes(std::span<const uint16_t>(rounded)), &section->rounded_bias);
}

/// The kernels of rows in a layer.
void CudaWeightLoader::bind(RowsWeight* rows, CudaGemmProblem problem, int64_t first_output) {
  const auto is_aligned = [&](DType y_dtype) { return first_output * bits_of(y_dtype) % 128 == 0; };
  rows->bind({problem, dtype_, is_aligned(dtype_), is_aligned(DType::kF32), lt_}, lt_);
}

/// The weight as rows of codes, or of floats for `reasons`. Returns why the data are no such codes,
/// or nothing; then the section is complete.
std::string CudaWeightLoader::keep_rows(const PackedWeight& weight, DeviceLayout layout,
                                        const std::string& reasons, std::span<const float> bias,
                                        int64_t first_output, CudaLinear::Section* section) {
  const QuantParams& quant = weight.quant;
  const WeightForm form =
      rows_form(layout == DeviceLayout::kCodes, halley::problem_of(weight), dtype_, reasons);
  CodeScales codes;
  if (form.is_codes()) codes = code_scales(weight, code_shift(weight.layout));
  if (form.dtype == DType::kF8E4M3 && !codes.offsets.empty()) return "its e4m3 codes have zeros";
  section->form = describe_form(name_of(weight.layout), form);
  const bool has_static_scale = form.dtype == DType::kF8E4M3 &&
                                quant.activation == ActivationQuant::kE4m3Static &&
                                codes.has_one_scale;
  DeviceBuffer memory;
  const Matrix matrix = allocate_rows(form.dtype, weight.N, weight.K, &memory);
  auto rows = std::make_unique<RowsWeight>(std::move(memory), matrix);
  DeviceArrays arrays;
  add_input_perm(weight, &arrays, section);
  if (form.is_codes()) {
    RowScales& scales = rows->mutable_scales();
    arrays.add(std::span<const float>(codes.scales), &scales.w_scales);
    scales.is_w_tensor = has_static_scale;
    if (!codes.offsets.empty()) {
      arrays.add(std::span<const float>(codes.offsets), &scales.w_offsets);
    }
  }
  if (has_static_scale) {
    arrays.add(std::span<const float>(&quant.activation_scale, 1), &rows->static_x_scale());
  }
  add_bias(bias, &arrays, section);
  section->array_memory = arrays.copy(device_.stream);
  decode_panels(weight, section->activation.input_perm, matrix);
  const ScaleSpan span = !form.is_codes()   ? ScaleSpan::kNone
                         : has_static_scale ? ScaleSpan::kTensor
                                            : ScaleSpan::kRow;
  bind(rows.get(),
       {.dtype = form.dtype,
        .N = weight.N,
        .K = weight.K,
        .x_scale = span,
        .w_scale = span,
        .has_offsets = rows->scales().w_offsets != nullptr,
        .has_bias = !bias.empty()},
       first_output);
  section->weight = std::move(rows);
  return {};
}

/// The weight's codes stay. Returns why they cannot, or nothing; then the section is complete.
std::string CudaWeightLoader::keep_mixed(const PackedWeight& weight, MixedKind kind,
                                         std::span<const float> bias,
                                         CudaLinear::Section* section) {
  CodeScales codes;
  constexpr int kMiddle = 8;  // kU4S8 multiplies codes less this
  if (kind == MixedKind::kU4S8) codes = code_scales(weight, kMiddle);
  MixedWeight mixed({.kind = kind,
                     .N = weight.N,
                     .K = weight.K,
                     .group_size = stored_group_size(weight.K, weight.quant.group_size)},
                    !codes.offsets.empty());
  auto* rejections = reinterpret_cast<uint32_t*>(lost_.data());
  auto* scales = reinterpret_cast<float*>(mixed.scales.data());
  const size_t panel_bytes =
      mixed.chunks.num_bytes() / static_cast<size_t>(ceil_div<int64_t>(weight.N, kChunkOutputs));
  visit_panels(weight, kChunkOutputs / kPanelRows,
               [&](const QuadPanels& quads, int64_t begin, int64_t end) {
                 MixedPanels panels = {
                     .quads = quads, .num_outputs = end - begin, .K = weight.K, .kind = kind};
                 if (kind == MixedKind::kU4GroupS8) {
                   find_units(device_, panels, scales + begin, rejections);
                   panels.units = scales + begin;
                 }
                 std::byte* chunks =
                     mixed.chunks.data() + static_cast<size_t>(begin / kChunkOutputs) * panel_bytes;
                 pack_mixed_panels(device_, panels, reinterpret_cast<uint8_t*>(chunks), rejections);
               });
  const uint32_t rejected = take_lost();
  if (rejected != 0) return str(mixed_kernel_name(kind), ": ", why_rejected(kind, rejected));
  codes.scales.insert(codes.scales.end(), codes.offsets.begin(), codes.offsets.end());
  if (!codes.scales.empty()) {
    check_cuda(cudaMemcpyAsync(scales, codes.scales.data(), mixed.scales.num_bytes(),
                               cudaMemcpyHostToDevice, device_.stream.get()),
               "copy of scales");
  }
  DeviceArrays arrays;
  add_input_perm(weight, &arrays, section);
  if (!bias.empty()) arrays.add(bias, &section->bias);
  section->array_memory = arrays.copy(device_.stream);
  device_.stream.synchronize();
  section->form = describe_mixed(kind, halley::problem_of(weight));
  section->weight = std::make_unique<MixedLinear>(device_, std::move(mixed), w4_->kernels, dtype_,
                                                  lt_.choice().is_batch_invariant);
  return {};
}

/// As keep_mixed(), of codes of 8, 3 or 2 bits.
std::string CudaWeightLoader::keep_gemv(const PackedWeight& weight, std::span<const float> bias,
                                        int64_t first_output, CudaLinear::Section* section) {
  const GemmProblem stored = halley::problem_of(weight);
  const GemvShape shape = gemv_shape(stored);
  const GemvScales params = gemv_scales(weight);
  if (params.zeros.empty()) {
    return str(gemv_kernel_name(shape.bits),
               ": zeros are no multiples of 1/2 from 0 to 256, or scales are not finite");
  }
  GemvWeight packed(device_, shape, {.scales = params.scales, .zeros = params.zeros});
  visit_panels(weight, 1, [&](const QuadPanels& panels, int64_t begin, int64_t end) {
    const int64_t stride = row_stride_of(DType::kI8, weight.K);
    const DeviceBuffer memory(static_cast<size_t>((end - begin) * stride), "codes in rows");
    const Matrix codes = {memory.data(), DType::kI8, end - begin, weight.K, stride};
    decode_codes(device_, panels, codes);
    pack_gemv_rows(device_, codes, begin, packed);
    device_.stream.synchronize();
  });
  DeviceArrays arrays;
  add_input_perm(weight, &arrays, section);
  add_bias(bias, &arrays, section);
  section->array_memory = arrays.copy(device_.stream);
  section->form = describe_gemv(stored, dtype_);
  const auto is_aligned = [&](DType y_dtype) {
    return are_decoded_parts_aligned(weight.N, weight.K, first_output, y_dtype);
  };
  BoundGemms gemms({.dtype = dtype_,
                    .N = decoded_outputs(weight.N, weight.K),
                    .K = weight.K,
                    .has_bias = !bias.empty()},
                   dtype_, is_aligned(dtype_), is_aligned(DType::kF32), lt_);
  section->weight = std::make_unique<GemvLinear>(std::move(packed), std::move(gemms), lt_);
  return {};
}

/// Both planes stay: the upper one as rows, which low precision multiplies alone.
void CudaWeightLoader::keep_nested(const PackedWeight& weight, std::span<const float> bias,
                                   int64_t first_output, CudaLinear::Section* section) {
  DeviceBuffer upper_memory;
  const Matrix upper = allocate_rows(DType::kF8E4M3, weight.N, weight.K, &upper_memory);
  auto rows = std::make_unique<RowsWeight>(std::move(upper_memory), upper);
  NestedWeight nested(device_, upper);
  visit_panels(weight, 1, [&](const QuadPanels& panels, int64_t begin, int64_t end) {
    decode_codes(device_, panels, upper.rows(begin, end));
    const DeviceBuffer memory(static_cast<size_t>((end - begin) * weight.K), "a lower plane");
    const Matrix lower = {memory.data(), DType::kU8, end - begin, weight.K, weight.K};
    decode_codes(device_, panels, lower);
    pack_lower_rows(device_, lower, begin, nested);
    order_upper_rows(device_, upper.rows(begin, end));
    device_.stream.synchronize();
  });
  const std::vector<float> scales(static_cast<size_t>(weight.N), kNestedUpperScale);
  DeviceArrays arrays;
  arrays.add(std::span<const float>(scales), &rows->mutable_scales().w_scales);
  add_bias(bias, &arrays, section);
  section->array_memory = arrays.copy(device_.stream);
  section->form = describe_nested(halley::problem_of(weight));
  bind(rows.get(), nested_low_problem(weight.N, weight.K, !bias.empty()), first_output);
  section->weight = std::make_unique<NestedLinear>(device_, std::move(nested), std::move(rows),
                                                   lt_.choice().is_batch_invariant);
}

/// As keep_mixed(), for products with blocks of codes of x.
std::string CudaWeightLoader::keep_w4ax(const PackedWeight& weight, std::span<const float> bias,
                                        CudaLinear::Section* section) {
  if (!fits_w4ax(weight)) {
    return str(kW4axKernelName, ": zeros are not all 8, or scales have more than 22 bits");
  }
  W4axWeight packed(device_, weight.N, weight.K);
  const int64_t pitch = packed.scales_pitch();
  const size_t panel_bytes = packed.codes.num_bytes() / static_cast<size_t>(pitch / kTileOutputs);
  visit_panels(
      weight, kTileOutputs / kPanelRows, [&](const QuadPanels& quads, int64_t begin, int64_t end) {
        std::byte* chunks =
            packed.codes.data() + static_cast<size_t>(begin / kTileOutputs) * panel_bytes;
        pack_w4ax_panels(device_, {.quads = quads, .num_outputs = end - begin, .K = weight.K},
                         reinterpret_cast<uint8_t*>(chunks));
      });
  std::vector<float> scales(packed.scales.num_bytes() / sizeof(float));
  for (int64_t group = 0; group < weight.num_groups(); ++group) {
    for (int64_t n = 0; n < weight.N; ++n) {
      scales[static_cast<size_t>(group * pitch + n)] =
          weight.group(n / kPanelRows, group)[n % kPanelRows];
    }
  }
  check_cuda(cudaMemcpyAsync(packed.scales.data(), scales.data(), packed.scales.num_bytes(),
                             cudaMemcpyHostToDevice, device_.stream.get()),
             "copy of scales");
  DeviceArrays arrays;
  add_input_perm(weight, &arrays, section);
  if (!bias.empty()) arrays.add(bias, &section->bias);
  section->array_memory = arrays.copy(device_.stream);
  device_.stream.synchronize();
  section->form = describe_w4ax(halley::problem_of(weight));
  section->weight = std::make_unique<W4axLinear>(device_, std::move(packed), w4_->kernels,
                                                 lt_.choice().is_batch_invariant);
  return {};
}

/// Brings the weight into a layout. Returns why its data reject that, or nothing; then the section
/// is complete.
std::string CudaWeightLoader::keep(const DeviceGemm& gemm, const PackedWeight& weight,
                                   const std::string& reasons, std::span<const float> bias,
                                   int64_t first_output, CudaLinear::Section* section) {
  switch (gemm.layout) {
    case DeviceLayout::kNested:
      keep_nested(weight, bias, first_output, section);
      return {};
    case DeviceLayout::kW4ax:
      return keep_w4ax(weight, bias, section);
    case DeviceLayout::kMixed:
      return keep_mixed(weight, gemm.kind(dtype_), bias, section);
    case DeviceLayout::kGemv:
      return keep_gemv(weight, bias, first_output, section);
    case DeviceLayout::kCodes:
    case DeviceLayout::kFloats:
      return keep_rows(weight, gemm.layout, reasons, bias, first_output, section);
  }
  HALLEY_CHECK(false, static_cast<int>(gemm.layout));
}

}  // namespace halley::cuda
