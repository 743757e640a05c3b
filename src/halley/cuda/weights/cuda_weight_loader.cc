#include "halley/cuda/weights/cuda_weight_loader.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/weights/decode_quads.h"
#include "halley/cuda/weights/device_arrays.h"
#include "halley/cuda/weights/rows_weight.h"
#include "halley/cuda/weights/weight_form.h"
#include "halley/quant/base/open_section.h"

namespace halley::cuda {
namespace {

/// Packed pieces pass through this much device memory.
constexpr size_t kStagingBytes = size_t{64} << 20;

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
  DeviceBuffer memory;
  const Matrix rows = allocate_rows(dtype_, section.N, section.K, &memory);
  auto weight = std::make_unique<RowsWeight>(std::move(memory), rows);
  int64_t begin = 0;
  for (const TensorView& part : parts) {
    copy_dense_part(part, rows.rows(begin, begin + part.shape[0]));
    begin += part.shape[0];
  }
  DeviceArrays arrays;
  add_bias(bias, &arrays, &section);
  section.array_memory = arrays.copy(device_.stream);
  check_lost(name);
  bind(weight.get(), {.dtype = dtype_, .N = section.N, .K = section.K, .has_bias = !bias.empty()},
       first_output);
  section.weight = std::move(weight);
  return section;
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
  const GemmDesc desc = {
      .stored = halley::problem_of(weight),
      .activation_dtype = dtype_,
      .use = use,
      .is_batch_invariant = lt_.choice().is_batch_invariant,
      .w4 = w4_,
      .is_hopper = device_.device.compute_major == 9 && device_.device.compute_minor == 0};
  std::string reasons;
  for (const DeviceGemm& gemm : device_gemms()) {
    std::optional<std::string> why_not = gemm.why_not(gemm, desc);
    if (!why_not) continue;
    if (why_not->empty()) {
      const bool is_rows =
          gemm.layout == DeviceLayout::kCodes || gemm.layout == DeviceLayout::kFloats;
      if (is_rows) check_whole_order(name, weight);
      why_not = keep(gemm, weight, reasons, bias, first_output, &section);
    }
    if (!why_not->empty()) {
      reasons = join_reasons(reasons, *why_not);
      continue;
    }
    section.form = with_reasons(std::move(section.form), gemm.layout, reasons);
    break;
  }
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
