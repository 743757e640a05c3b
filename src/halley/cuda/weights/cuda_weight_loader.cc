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
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/weights/decode_quads.h"
#include "halley/cuda/weights/weight_form.h"
#include "halley/quant/base/open_section.h"

namespace halley::cuda {
namespace {

/// Packed pieces pass through this much device memory.
constexpr size_t kStagingBytes = size_t{64} << 20;

std::string section_name(const OpenSection& section) {
  LinearSpec joined;
  for (const OpenPart& part : section.parts) joined.parts.push_back(*part.spec);
  return joined.display_name();
}

GemmProblem problem_of(const OpenSection& section) {
  const WeightDesc& desc = section.desc();
  return {.w_layout = desc.layout,
          .N = section.out_features(),
          .K = section.in_features,
          .group_size = desc.group_size,
          .zero_kind = desc.zero_kind,
          .has_input_order = desc.has_input_order,
          .activation = desc.activation};
}

std::string describe_form(const char* stored, const WeightForm& form) {
  if (form.is_codes()) return str(stored, ", kept as ", form.dtype, " codes");
  if (form.why_numbers.empty()) return str(stored, ", kept in ", form.dtype);
  return str(stored, ", decoded to ", form.dtype, ": ", form.why_numbers);
}

/// Elements between rows: a multiple of 16 bytes.
int64_t stride_of(DType dtype, int64_t K) {
  return round_up<int64_t>(std::max<int64_t>(K, 1), 128 / bits_of(dtype));
}

/// Rows of a weight in its form, uninitialised.
Matrix allocate_rows(DType dtype, int64_t N, int64_t K, DeviceBuffer* memory) {
  const bool is_codes = dtype == DType::kI8 || dtype == DType::kF8E4M3;
  const int64_t rows = is_codes ? round_up(N, kGemmPadding) : N;
  const int64_t stride = stride_of(dtype, K);
  const auto num_bytes = static_cast<size_t>(rows * stride * bits_of(dtype) / 8);
  *memory = DeviceBuffer(std::max<size_t>(num_bytes, 1), "weights");
  return {memory->data(), dtype, N, K, stride};
}

uint16_t round_to(DType dtype, float value) {
  return dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
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

/// Small arrays that are put together on the host and copied at once; 256 bytes apart.
class CudaWeightLoader::Arrays {
 public:
  /// The place of an array; `pointer` is set when all have been copied.
  template <typename T>
  void add(std::span<const T> values, const T** pointer) {
    const size_t begin = round_up(bytes_.size(), DeviceArena::kAlignment);
    bytes_.resize(begin + values.size_bytes());
    std::memcpy(bytes_.data() + begin, values.data(), values.size_bytes());
    places_.push_back({begin, reinterpret_cast<const void**>(pointer)});
  }
  DeviceBuffer copy(const CudaStream& stream) {
    if (places_.empty()) return {};
    DeviceBuffer memory(std::max<size_t>(bytes_.size(), 1), "scales and biases");
    // In the stream: a copy beside it may still be under way when kernels of the stream read.
    check_cuda(cudaMemcpyAsync(memory.data(), bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice,
                               stream.get()),
               "copy of scales and biases");
    stream.synchronize();
    for (const Place& place : places_) *place.pointer = memory.data() + place.begin;
    return memory;
  }

 private:
  struct Place {
    size_t begin;
    const void** pointer;
  };
  std::vector<std::byte> bytes_;
  std::vector<Place> places_;
};

CudaWeightLoader::CudaWeightLoader(ExecContext& host, const CudaContext& device, CublasLtGemm& lt,
                                   DType activation_dtype)
    : host_(host),
      device_(device),
      lt_(lt),
      dtype_(activation_dtype),
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

void CudaWeightLoader::check_lost(const std::string& name) {
  uint32_t num_lost = 0;
  check_cuda(cudaMemcpyAsync(&num_lost, lost_.data(), sizeof(num_lost), cudaMemcpyDeviceToHost,
                             device_.stream.get()),
             "copy of a counter");
  device_.stream.synchronize();
  if (num_lost == 0) return;
  check_cuda(cudaMemsetAsync(lost_.data(), 0, sizeof(num_lost), device_.stream.get()),
             "zeroing of a counter");
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

void CudaWeightLoader::decode_panels(const PackedWeight& weight, const int32_t* input_order,
                                     Matrix rows) {
  const size_t panel_bytes = packed_bytes(weight.layout, kPanelRows, weight.K);
  const size_t panel_group_bytes =
      is_quantized(weight.layout) ? group_bytes(kPanelRows, weight.K, weight.quant.group_size) : 0;
  // Both begin at multiples of 256 bytes.
  const size_t one_panel = panel_bytes + panel_group_bytes;
  ensure_staging(one_panel + DeviceArena::kAlignment);
  const auto panels_at_once = static_cast<int64_t>(
      (staging_.num_bytes() - DeviceArena::kAlignment) / std::max<size_t>(one_panel, 1));
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
                               .zero_kind = weight.quant.zero_kind,
                               .input_order = input_order};
    const Matrix to =
        rows.rows(panel * kPanelRows, std::min(weight.N, (panel + count) * kPanelRows));
    if (rows.dtype == DType::kI8 || rows.dtype == DType::kF8E4M3) {
      decode_codes(device_, panels, to);
    } else {
      decode_quads(device_, panels, to, reinterpret_cast<uint32_t*>(lost_.data()));
    }
  }
}

void CudaWeightLoader::bind(CudaLinear::Section* section, CudaGemmProblem problem,
                            int64_t first_output) {
  const auto choose = [&](DType y_dtype) {
    problem.y_dtype = y_dtype;
    problem.is_y_aligned = first_output * bits_of(y_dtype) % 128 == 0;
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
  for (const TensorView& part : parts) section.N += part.shape[0];
  section.form = describe_form(name_of(parts[0].dtype), {.dtype = dtype_, .why_numbers = {}});
  const Matrix rows = allocate_rows(dtype_, section.N, section.K, &section.weight_memory);
  section.w = rows;
  int64_t begin = 0;
  for (const TensorView& part : parts) {
    copy_dense_part(part, rows.rows(begin, begin + part.shape[0]));
    begin += part.shape[0];
  }
  std::vector<uint16_t> rounded;
  Arrays arrays;
  if (!bias.empty()) {
    for (const float value : bias) rounded.push_back(round_to(dtype_, value));
    arrays.add(bias, &section.bias);
    arrays.add(std::as_bytes(std::span<const uint16_t>(rounded)), &section.rounded_bias);
  }
  section.array_memory = arrays.copy(device_.stream);
  check_lost(name);
  bind(&section, {.dtype = dtype_, .N = section.N, .K = section.K, .has_bias = !bias.empty()},
       first_output);
  return section;
}

CudaLinear::Section CudaWeightLoader::load_packed(const std::string& name,
                                                  const PackedWeight& weight,
                                                  std::span<const float> bias,
                                                  int64_t first_output) {
  HALLEY_CHECK(is_quantized(weight.layout) || has_low_precision(weight.layout), weight.layout);
  check_activation(name, weight.quant);
  const QuantParams& quant = weight.quant;
  WeightForm form = weight_form(halley::problem_of(weight), dtype_);
  CodeScales codes;
  if (form.is_codes()) codes = code_scales(weight);
  if (form.dtype == DType::kF8E4M3 && !codes.offsets.empty()) {
    form = {.dtype = dtype_, .why_numbers = "its e4m3 codes have zeros"};
  }
  CudaLinear::Section section;
  section.N = weight.N;
  section.K = weight.K;
  section.form = describe_form(name_of(weight.layout), form);
  section.activation = {.kind = quant.activation,
                        .scale = quant.activation_scale,
                        .num_s8_inputs = quant.num_s8_inputs,
                        .s4_clip = quant.s4_clip};
  const bool has_static_scale = form.dtype == DType::kF8E4M3 &&
                                quant.activation == ActivationQuant::kE4m3Static &&
                                codes.has_one_scale;
  std::vector<uint16_t> rounded;
  Arrays arrays;
  const int32_t* input_order = nullptr;
  if (!quant.input_order.empty()) {
    arrays.add(std::span<const int32_t>(quant.input_order), &input_order);
  }
  if (form.is_codes()) {
    arrays.add(std::span<const float>(codes.scales), &section.scales.w_scales);
    section.scales.is_w_tensor = has_static_scale;
    if (!codes.offsets.empty()) {
      arrays.add(std::span<const float>(codes.offsets), &section.scales.w_offsets);
    }
  }
  if (has_static_scale) {
    arrays.add(std::span<const float>(&quant.activation_scale, 1), &section.static_x_scale);
  }
  if (!bias.empty()) {
    for (const float value : bias) rounded.push_back(round_to(dtype_, value));
    arrays.add(bias, &section.bias);
    arrays.add(std::as_bytes(std::span<const uint16_t>(rounded)), &section.rounded_bias);
  }
  section.array_memory = arrays.copy(device_.stream);
  section.activation.input_order = input_order;
  const Matrix rows = allocate_rows(form.dtype, weight.N, weight.K, &section.weight_memory);
  section.w = rows;
  decode_panels(weight, input_order, rows);
  check_lost(name);
  const ScaleSpan span = !form.is_codes()   ? ScaleSpan::kNone
                         : has_static_scale ? ScaleSpan::kTensor
                                            : ScaleSpan::kRow;
  bind(&section,
       {.dtype = form.dtype,
        .N = weight.N,
        .K = weight.K,
        .x_scale = span,
        .w_scale = span,
        .has_offsets = section.scales.w_offsets != nullptr,
        .has_bias = !bias.empty()},
       first_output);
  return section;
}

CudaLinear CudaWeightLoader::load(const QuantScheme& scheme, const TensorSource& source,
                                  const LinearSpec& spec) {
  const std::vector<OpenSection> open = open_sections(scheme, source, spec);
  const std::vector<float> bias = read_bias(source, open);
  std::vector<CudaLinear::Section> sections;
  int64_t begin = 0;
  for (const OpenSection& section : open) {
    const std::string name = section_name(section);
    const int64_t end = begin + section.out_features();
    std::span<const float> section_bias(bias);
    if (!bias.empty()) {
      section_bias =
          section_bias.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    }
    const PackedLayout layout = section.desc().layout;
    if (is_quantized(layout) || has_low_precision(layout)) {
      sections.push_back(load_packed(name, pack_section(host_, section), section_bias, begin));
    } else {
      std::vector<TensorView> parts;
      for (const OpenPart& part : section.parts) parts.push_back(part.weight->dense_rows());
      sections.push_back(load_dense(name, parts, section_bias, begin));
    }
    release_tensors(source, section);
    begin = end;
  }
  return {spec.display_name(), dtype_, std::move(sections), lt_};
}

std::vector<CudaLinearPlan> plan_cuda_linear(const QuantScheme& scheme, const TensorSource& source,
                                             const LinearSpec& spec, DType activation_dtype) {
  const std::vector<OpenSection> open = open_sections(scheme, source, spec);
  const bool has_bias = !read_bias(source, open).empty();
  std::vector<CudaLinearPlan> plans;
  int64_t begin = 0;
  for (const OpenSection& section : open) {
    const GemmProblem stored = problem_of(section);
    const WeightForm form = weight_form(stored, activation_dtype);
    const ScaleSpan span = form.is_codes() ? ScaleSpan::kRow : ScaleSpan::kNone;
    const CudaGemmProblem problem = {
        .dtype = form.dtype,
        .y_dtype = activation_dtype,
        .N = stored.N,
        .K = stored.K,
        .x_scale = span,
        .w_scale = span,
        .has_offsets = form.dtype == DType::kI8 && !section.desc().is_symmetric,
        .has_bias = has_bias,
        .is_y_aligned = begin * bits_of(activation_dtype) % 128 == 0};
    CudaLinearPlan plan;
    plan.name = section_name(section);
    plan.out_features = stored.N;
    plan.in_features = stored.K;
    plan.form = describe_form(is_quantized(stored.w_layout) || has_low_precision(stored.w_layout)
                                  ? name_of(stored.w_layout)
                                  : name_of(section.desc().stored_dtype),
                              form);
    plan.device_bytes =
        static_cast<size_t>(stored.N * stride_of(form.dtype, stored.K) * bits_of(form.dtype) / 8);
    plan.choice = choose_cuda_gemm_kernel(problem, nullptr);
    plans.push_back(std::move(plan));
    begin += stored.N;
  }
  return plans;
}

}  // namespace halley::cuda
