#include "halley/cuda/weights/cuda_weight_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/weights/decode_quads.h"
#include "halley/cuda/weights/device_arrays.h"
#include "halley/cuda/weights/gemv_linear.h"
#include "halley/cuda/weights/pack_mixed_weight.h"
#include "halley/cuda/weights/pack_w4ax_weight.h"
#include "halley/cuda/weights/weight_form.h"
#include "halley/quant/base/open_section.h"

namespace halley::cuda {
namespace {

/// Packed pieces pass through this much device memory.
constexpr size_t kStagingBytes = size_t{64} << 20;

/// Rows of a weight in its form, uninitialised.
Matrix allocate_rows(DType dtype, int64_t N, int64_t K, DeviceBuffer* memory) {
  *memory = DeviceBuffer(std::max<size_t>(row_bytes_of(dtype, N, K), 1), "weights");
  return {memory->data(), dtype, N, K, row_stride_of(dtype, K)};
}

uint16_t round_to(DType dtype, float value) {
  return dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
}

void add_input_perm(const PackedWeight& weight, DeviceArrays* arrays,
                    CudaLinear::Section* section) {
  const std::vector<int32_t>& order = weight.quant.input_perm;
  if (order.empty()) return;
  arrays->add(std::span<const int32_t>(order), &section->activation.input_perm);
}

/// A static scale that rounds everything to NaN must not be loaded.
void check_activation(const std::string& name, const QuantParams& quant) {
  const bool is_static = quant.activation == ActivationQuant::kS8Static ||
                         quant.activation == ActivationQuant::kE4m3Static;
  constexpr float kScaleMin = 0x1p-100f;
  if (!is_static || (std::isfinite(quant.activation_scale) && quant.activation_scale >= kScaleMin))
    return;
  throw CheckpointError(str("layer ", quote(name),
                            ": expected a scale of activations that is finite and at least 2^-100,"
                            " got ",
                            quant.activation_scale, ". Quantize the model again."));
}

}  // namespace

CudaWeightLoader::CudaWeightLoader(ExecContext& host, const CudaContext& device, CublasLtGemm& lt,
                                   DType activation_dtype)
    : host_(host),
      device_(device),
      lt_(lt),
      dtype_(activation_dtype),
      w4_(find_w4_kernels(device.device)),
      staged_(host.pool, device.stream),
      lost_(sizeof(uint32_t), "a counter") {
  HALLEY_CHECK(activation_dtype == DType::kF16 || activation_dtype == DType::kBf16 ||
                   activation_dtype == DType::kF32,
               name_of(activation_dtype));
  check_cuda(cudaMemsetAsync(lost_.data(), 0, sizeof(uint32_t), device.stream.get()),
             "zeroing of a counter");
}

void CudaWeightLoader::ensure_staging(size_t num_bytes) {
  if (staging_.num_bytes() >= num_bytes) return;
  device_.stream.synchronize();  // what reads the old one
  staging_ = {};
  staging_ = DeviceBuffer(std::max(num_bytes, kStagingBytes), "pieces of weights");
}

uint32_t CudaWeightLoader::take_lost() {
  uint32_t num_lost = 0;
  check_cuda(cudaMemcpyAsync(&num_lost, lost_.data(), sizeof(num_lost), cudaMemcpyDeviceToHost,
                             device_.stream.get()),
             "copy of a counter");
  device_.stream.synchronize();
  if (num_lost == 0) return 0;
  check_cuda(cudaMemsetAsync(lost_.data(), 0, sizeof(num_lost), device_.stream.get()),
             "zeroing of a counter");
  return num_lost;
}

void CudaWeightLoader::check_lost(const std::string& name) {
  const uint32_t num_lost = take_lost();
  if (num_lost == 0) return;
  throw CheckpointError(str("layer ", quote(name), ": expected weights that are finite in ", dtype_,
                            ", got ", num_lost, " others. Run the model in bf16 or f32."));
}

void CudaWeightLoader::copy_dense_part(const TensorView& part, Matrix rows) {
  if (rows.num_rows == 0 || rows.num_cols == 0) return;
  const bool is_same = part.dtype == rows.dtype;
  if (is_same && rows.row_stride == rows.num_cols) {
    return staged_.copy(rows.data, part.data, part.num_bytes());
  }
  const size_t row_bytes = part.num_bytes() / static_cast<size_t>(rows.num_rows);
  ensure_staging(std::max(row_bytes, kStagingBytes));
  const auto rows_at_once = static_cast<int64_t>(staging_.num_bytes() / row_bytes);
  for (int64_t begin = 0; begin < rows.num_rows; begin += rows_at_once) {
    const int64_t end = std::min(begin + rows_at_once, rows.num_rows);
    const Matrix to = rows.rows(begin, end);
    staged_.copy(staging_.data(), part.data + static_cast<size_t>(begin) * row_bytes,
                 static_cast<size_t>(end - begin) * row_bytes);
    if (is_same) {
      const auto to_bytes = static_cast<size_t>(to.row_stride * bits_of(to.dtype) / 8);
      check_cuda(cudaMemcpy2DAsync(to.data, to_bytes, staging_.data(), row_bytes, row_bytes,
                                   static_cast<size_t>(end - begin), cudaMemcpyDeviceToDevice,
                                   device_.stream.get()),
                 "copy of rows");
    } else {
      const ConstMatrix from = {staging_.data(), part.dtype, end - begin, to.num_cols, to.num_cols};
      convert_rows(device_, from, to, reinterpret_cast<uint32_t*>(lost_.data()));
    }
  }
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

void CudaWeightLoader::bind(CudaLinear::Section* section, CudaGemmProblem problem,
                            int64_t first_output) {
  const auto choose = [&](DType y_dtype) {
    problem.y_dtype = y_dtype;
    problem.is_y_aligned = section->is_gemv() ? are_decoded_parts_aligned(section->N, section->K,
                                                                          first_output, y_dtype)
                                              : first_output * bits_of(y_dtype) % 128 == 0;
    return BoundGemm{.problem = problem, .choice = choose_cuda_gemm_kernel(problem, &lt_)};
  };
  section->for_activations = choose(dtype_);
  section->for_f32 = choose(DType::kF32);
}

CudaLinear::Section CudaWeightLoader::load_dense(const std::string& name,
                                                 std::span<const TensorView> parts,
                                                 std::span<const float> bias,
                                                 int64_t first_output) {
  HALLEY_CHECK(!parts.empty() && parts[0].shape.size() == 2, name);
  CudaLinear::Section section;
  section.K = parts[0].shape[1];
  section.num_inputs = section.K;
  for (const TensorView& part : parts) section.N += part.shape[0];
  section.form = describe_form(name_of(parts[0].dtype), {.dtype = dtype_, .why_numbers = {}});
  const Matrix rows = allocate_rows(dtype_, section.N, section.K, &section.weight_memory);
  section.w = rows;
  int64_t begin = 0;
  for (const TensorView& part : parts) {
    copy_dense_part(part, rows.rows(begin, begin + part.shape[0]));
    begin += part.shape[0];
  }
  DeviceArrays arrays;
  add_bias(bias, &arrays, &section);
  section.array_memory = arrays.copy(device_.stream);
  check_lost(name);
  bind(&section, {.dtype = dtype_, .N = section.N, .K = section.K, .has_bias = !bias.empty()},
       first_output);
  return section;
}

/// The weight as rows of codes or of numbers.
void CudaWeightLoader::load_rows(const PackedWeight& weight, WeightForm form,
                                 std::span<const float> bias, int64_t first_output,
                                 CudaLinear::Section* section) {
  const QuantParams& quant = weight.quant;
  CodeScales codes;
  if (form.is_codes()) codes = code_scales(weight, code_shift(weight.layout));
  if (form.dtype == DType::kF8E4M3 && !codes.offsets.empty()) {
    form = {.dtype = dtype_, .why_numbers = "its e4m3 codes have zeros"};
  }
  section->form = describe_form(name_of(weight.layout), form);
  const bool has_static_scale = form.dtype == DType::kF8E4M3 &&
                                quant.activation == ActivationQuant::kE4m3Static &&
                                codes.has_one_scale;
  DeviceArrays arrays;
  add_input_perm(weight, &arrays, section);
  if (form.is_codes()) {
    arrays.add(std::span<const float>(codes.scales), &section->scales.w_scales);
    section->scales.is_w_tensor = has_static_scale;
    if (!codes.offsets.empty()) {
      arrays.add(std::span<const float>(codes.offsets), &section->scales.w_offsets);
    }
  }
  if (has_static_scale) {
    arrays.add(std::span<const float>(&quant.activation_scale, 1), &section->static_x_scale);
  }
  add_bias(bias, &arrays, section);
  section->array_memory = arrays.copy(device_.stream);
  const Matrix rows = allocate_rows(form.dtype, weight.N, weight.K, &section->weight_memory);
  section->w = rows;
  decode_panels(weight, section->activation.input_perm, rows);
  const ScaleSpan span = !form.is_codes()   ? ScaleSpan::kNone
                         : has_static_scale ? ScaleSpan::kTensor
                                            : ScaleSpan::kRow;
  bind(section,
       {.dtype = form.dtype,
        .N = weight.N,
        .K = weight.K,
        .x_scale = span,
        .w_scale = span,
        .has_offsets = section->scales.w_offsets != nullptr,
        .has_bias = !bias.empty()},
       first_output);
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
  section->mixed = std::move(mixed);
  section->mixed_device = mixed_device(device_);
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
  section->gemv = GemvWeight(device_, shape, {.scales = params.scales, .zeros = params.zeros});
  visit_panels(weight, 1, [&](const QuadPanels& panels, int64_t begin, int64_t end) {
    const int64_t stride = row_stride_of(DType::kI8, weight.K);
    const DeviceBuffer memory(static_cast<size_t>((end - begin) * stride), "codes in rows");
    const Matrix codes = {memory.data(), DType::kI8, end - begin, weight.K, stride};
    decode_codes(device_, panels, codes);
    pack_gemv_rows(device_, codes, begin, section->gemv);
    device_.stream.synchronize();
  });
  DeviceArrays arrays;
  add_input_perm(weight, &arrays, section);
  add_bias(bias, &arrays, section);
  section->array_memory = arrays.copy(device_.stream);
  section->form = describe_gemv(stored, dtype_);
  bind(section,
       {.dtype = dtype_,
        .N = decoded_outputs(weight.N, weight.K),
        .K = weight.K,
        .has_bias = !bias.empty()},
       first_output);
  return {};
}

/// Both planes stay: the upper one as rows, which low precision multiplies alone.
void CudaWeightLoader::keep_nested(const PackedWeight& weight, std::span<const float> bias,
                                   int64_t first_output, CudaLinear::Section* section) {
  const Matrix upper = allocate_rows(DType::kF8E4M3, weight.N, weight.K, &section->weight_memory);
  section->w = upper;
  section->nested = NestedWeight(device_, upper);
  visit_panels(weight, 1, [&](const QuadPanels& panels, int64_t begin, int64_t end) {
    decode_codes(device_, panels, upper.rows(begin, end));
    const DeviceBuffer memory(static_cast<size_t>((end - begin) * weight.K), "a lower plane");
    const Matrix lower = {memory.data(), DType::kU8, end - begin, weight.K, weight.K};
    decode_codes(device_, panels, lower);
    pack_lower_rows(device_, lower, begin, section->nested);
    order_upper_rows(device_, upper.rows(begin, end));
    device_.stream.synchronize();
  });
  const std::vector<float> scales(static_cast<size_t>(weight.N), kNestedUpperScale);
  DeviceArrays arrays;
  arrays.add(std::span<const float>(scales), &section->scales.w_scales);
  add_bias(bias, &arrays, section);
  section->array_memory = arrays.copy(device_.stream);
  section->low_activation = {.kind = ActivationQuant::kE4m3Token, .has_lane_order = true};
  section->num_sms = device_.device.num_sms;
  section->form = describe_tile(TileForm::kNested, halley::problem_of(weight));
  bind(section, nested_low_problem(weight.N, weight.K, !bias.empty()), first_output);
}

/// Codes stay in 4 bits, for products with blocks of codes of x.
void CudaWeightLoader::keep_w4ax(const PackedWeight& weight, std::span<const float> bias,
                                 CudaLinear::Section* section) {
  section->w4ax = W4axWeight(device_, weight.N, weight.K);
  const int64_t pitch = section->w4ax.scales_pitch();
  const size_t panel_bytes =
      section->w4ax.codes.num_bytes() / static_cast<size_t>(pitch / kTileOutputs);
  visit_panels(
      weight, kTileOutputs / kPanelRows, [&](const QuadPanels& quads, int64_t begin, int64_t end) {
        std::byte* chunks =
            section->w4ax.codes.data() + static_cast<size_t>(begin / kTileOutputs) * panel_bytes;
        pack_w4ax_panels(device_, {.quads = quads, .num_outputs = end - begin, .K = weight.K},
                         reinterpret_cast<uint8_t*>(chunks));
      });
  std::vector<float> scales(section->w4ax.scales.num_bytes() / sizeof(float));
  for (int64_t group = 0; group < weight.num_groups(); ++group) {
    for (int64_t n = 0; n < weight.N; ++n) {
      scales[static_cast<size_t>(group * pitch + n)] =
          weight.group(n / kPanelRows, group)[n % kPanelRows];
    }
  }
  check_cuda(
      cudaMemcpyAsync(section->w4ax.scales.data(), scales.data(), section->w4ax.scales.num_bytes(),
                      cudaMemcpyHostToDevice, device_.stream.get()),
      "copy of scales");
  DeviceArrays arrays;
  add_input_perm(weight, &arrays, section);
  if (!bias.empty()) arrays.add(bias, &section->bias);
  section->array_memory = arrays.copy(device_.stream);
  device_.stream.synchronize();
  section->num_sms = device_.device.num_sms;
  section->form = describe_tile(TileForm::kW4ax, halley::problem_of(weight));
}

CudaLinear::Section CudaWeightLoader::load_packed(const std::string& name,
                                                  const PackedWeight& weight,
                                                  std::span<const float> bias, int64_t first_output,
                                                  LinearUse use) {
  HALLEY_CHECK(is_quantized(weight.layout) || has_low_precision(weight.layout), weight.layout);
  check_activation(name, weight.quant);
  const QuantParams& quant = weight.quant;
  CudaLinear::Section section;
  section.N = weight.N;
  section.K = weight.K;
  section.num_inputs = weight.num_inputs();
  section.activation = {.kind = quant.activation,
                        .scale = quant.activation_scale,
                        .num_s8_inputs = quant.num_s8_inputs,
                        .s4_clip = quant.s4_clip};
  const GemmProblem stored = halley::problem_of(weight);
  const bool is_hopper = device_.device.compute_major == 9 && device_.device.compute_minor == 0;
  const bool has_w4 = w4_ != nullptr;
  if (has_w4) section.w4_kernels = w4_->kernels;
  const TileForm tile = tile_form(stored, dtype_, use, has_w4);
  if (tile == TileForm::kNested && is_hopper) {
    keep_nested(weight, bias, first_output, &section);
    return section;
  }
  if (tile == TileForm::kW4ax && fits_w4ax(weight)) {
    keep_w4ax(weight, bias, &section);
    return section;
  }
  const bool is_u8 = weight.layout == PackedLayout::kU8Quad;  // which Hopper's take alone
  const bool has_mixed = has_w4 && (!is_u8 || w4_->kernels == W4Kernels::kHopper);
  MixedForms forms = mixed_forms(stored, dtype_, use, has_mixed);
  for (const MixedKind kind : forms.kinds) {
    const std::string rejection = keep_mixed(weight, kind, bias, &section);
    if (rejection.empty()) return section;
    forms.why_not = join_reasons(forms.why_not, rejection);
  }
  GemvForm gemv = gemv_form(stored, dtype_, use, lt_.choice().is_batch_invariant);
  if (gemv.is_kept) {
    gemv.why_not = keep_gemv(weight, bias, first_output, &section);
    if (gemv.why_not.empty() && !forms.why_not.empty()) section.form += "; " + forms.why_not;
    if (gemv.why_not.empty()) return section;
  }
  check_whole_order(name, weight);
  WeightForm form = weight_form(stored, dtype_);
  const std::string why_not = join_reasons(forms.why_not, gemv.why_not);
  if (!why_not.empty() && !form.is_codes()) form.why_numbers = why_not;
  load_rows(weight, std::move(form), bias, first_output, &section);
  check_lost(name);
  return section;
}

CudaLinear CudaWeightLoader::load(const QuantScheme& scheme, const TensorSource& source,
                                  const LinearSpec& spec, LinearUse use, StoredSections* stored) {
  const std::vector<OpenSection> open = open_sections(scheme, source, spec);
  const std::vector<float> bias = read_bias(source, open);
  std::vector<CudaLinear::Section> sections;
  int64_t begin = 0;
  for (const OpenSection& section : open) {
    const std::string name = section.display_name();
    const int64_t end = begin + section.out_features();
    std::span<const float> section_bias(bias);
    if (!bias.empty()) {
      section_bias =
          section_bias.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    }
    const PackedLayout layout = section.desc().layout;
    if (is_quantized(layout) || has_low_precision(layout)) {
      sections.push_back(load_packed(name, pack_section(host_, section), section_bias, begin, use));
    } else {
      std::vector<TensorView> parts;
      for (const OpenPart& part : section.parts) parts.push_back(part.weight->dense_rows());
      sections.push_back(load_dense(name, parts, section_bias, begin));
    }
    if (stored != nullptr) {
      stored->push_back(
          read_outputs(host_, section, checked_outputs(section.out_features(), kStoredOutputs)));
      for (StoredOutput& output : stored->back()) {
        if (!bias.empty()) output.bias = section_bias[static_cast<size_t>(output.index)];
      }
    }
    release_tensors(source, section);
    begin = end;
  }
  return {spec.display_name(), dtype_, std::move(sections), lt_};
}

}  // namespace halley::cuda
