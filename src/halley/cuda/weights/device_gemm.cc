#include "halley/cuda/weights/device_gemm.h"

#include <array>
#include <utility>

#include "halley/base/str.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/nested_gemm/nested_layout.h"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"
#include "halley/cuda/weights/device_arrays.h"
#include "halley/cuda/weights/gemv_linear.h"

namespace halley::cuda {
namespace {

constexpr const char* kTakes = "";

bool is_empty(const GemmDesc& desc) { return desc.stored.N == 0 || desc.stored.K == 0; }

/// Bytes of the small arrays of a section, in the order in which the loader adds them.
class PlannedArrays {
 public:
  explicit PlannedArrays(const GemmDesc& desc)
      : N_(static_cast<size_t>(desc.stored.N)), has_bias_(desc.has_bias) {
    if (desc.stored.has_input_perm) {
      sizes_.add(static_cast<size_t>(desc.stored.K) * sizeof(int32_t));
    }
  }
  void add_of_outputs() { sizes_.add(N_ * sizeof(float)); }
  void add_bias() {
    if (has_bias_) add_of_outputs();
  }
  void add_both_biases() {
    if (!has_bias_) return;
    add_of_outputs();
    sizes_.add(N_ * sizeof(uint16_t));
  }
  size_t num_bytes() const { return sizes_.num_bytes(); }

 private:
  size_t N_;
  bool has_bias_;
  ArraySizes sizes_;
};

std::optional<std::string> why_not_nested(const DeviceGemm&, const GemmDesc& desc) {
  constexpr int64_t kInputs = 128;
  const bool is_nested = desc.stored.w_layout == PackedLayout::kNestedF16Quad && desc.is_hopper &&
                         desc.use == LinearUse::kAlone && !is_empty(desc) &&
                         desc.activation_dtype == DType::kF16 && desc.stored.K % kInputs == 0;
  if (!is_nested) return std::nullopt;  // the floats that its planes make
  return kTakes;
}

void plan_nested(const DeviceGemm&, const GemmDesc& desc, const std::string&,
                 CudaLinearPlan* plan) {
  const int64_t N = desc.stored.N, K = desc.stored.K;
  PlannedArrays arrays(desc);
  arrays.add_of_outputs();
  arrays.add_both_biases();
  plan->form = describe_nested(desc.stored);
  plan->kernel = kNestedKernelName;
  plan->low_kernel =
      choose_cuda_gemm_kernel(nested_low_problem(N, K, desc.has_bias), nullptr).kernel->name;
  plan->device_bytes = row_bytes_of(DType::kF8E4M3, N, K) +
                       static_cast<size_t>(nested_lower_bytes(N, K)) + arrays.num_bytes();
}

std::optional<std::string> why_not_w4ax(const DeviceGemm&, const GemmDesc& desc) {
  const GemmProblem& stored = desc.stored;
  const bool is_w4ax = stored.w_layout == PackedLayout::kU4Quad && desc.w4 != nullptr &&
                       desc.use == LinearUse::kAlone && !is_empty(desc) &&
                       stored.activation == ActivationQuant::kS4S8Block128 &&
                       stored.group_size == kW4axInputs && stored.zero_kind == ZeroKind::kPoint;
  if (!is_w4ax) return std::nullopt;
  return kTakes;
}

void plan_w4ax(const DeviceGemm&, const GemmDesc& desc, const std::string&, CudaLinearPlan* plan) {
  const int64_t N = desc.stored.N, K = desc.stored.K;
  PlannedArrays arrays(desc);
  arrays.add_bias();
  plan->form = describe_w4ax(desc.stored);
  plan->kernel = kW4axKernelName;
  plan->mma_kernel = kW4axMmaKernelName;
  plan->device_bytes =
      static_cast<size_t>(w4ax_code_bytes(N, K) + w4ax_scale_bytes(N, K)) + arrays.num_bytes();
}

/// Why weights of so many bits are not kept.
std::string why_not_packed(const GemmDesc& desc, int bits) {
  if (desc.activation_dtype != DType::kF32) return "";
  return str("no product of ", bits, "-bit codes takes f32 activations");
}

/// Whether a kind is for the weight's bits, scales and activations.
bool is_for(MixedKind kind, const GemmDesc& desc) {
  const GemmProblem& stored = desc.stored;
  if (is_u8(kind)) {
    return stored.w_layout == PackedLayout::kU8Quad &&
           !weight_form(stored, desc.activation_dtype).is_codes();
  }
  if (stored.w_layout != PackedLayout::kU4Quad) return false;
  if (!is_s8(kind)) return true;
  const bool is_rounded = (stored.activation == ActivationQuant::kS8Token ||
                           stored.activation == ActivationQuant::kS8Static) &&
                          !stored.has_input_perm;
  const bool is_per_channel = stored.group_size >= stored.K;
  if (kind == MixedKind::kU4S8) return is_rounded && is_per_channel;
  // Zeros that are no multiples of the scales come with scales that are products of two.
  return is_rounded && !is_per_channel && stored.zero_kind == ZeroKind::kOffset;
}

std::optional<std::string> why_not_mixed_row(const DeviceGemm& gemm, const GemmDesc& desc) {
  const MixedKind kind = gemm.kind(desc.activation_dtype);
  if (is_empty(desc) || !is_for(kind, desc)) return std::nullopt;
  const int bits = is_u8(kind) ? 8 : 4;
  std::string reason = why_not_packed(desc, bits);
  if (!reason.empty()) return reason;
  if (desc.use == LinearUse::kGrouped && desc.stored.has_input_perm) {
    return "experts with an order of inputs each are multiplied together as numbers";
  }
  // Hopper's kernels alone take 8 bits.
  if (desc.w4 == nullptr || (bits == 8 && desc.w4->kernels != W4Kernels::kHopper)) {
    return str("products of ", bits, "-bit codes need compute capability ",
               bits == 8 ? "9.0" : "8.0 to 9.0");
  }
  reason = why_not_mixed(kind, desc.stored.K, desc.stored.group_size);
  return reason.empty() ? reason : str(mixed_kernel_name(kind), ": ", reason);
}

void plan_mixed(const DeviceGemm& gemm, const GemmDesc& desc, const std::string&,
                CudaLinearPlan* plan) {
  const MixedKind kind = gemm.kind(desc.activation_dtype);
  const int64_t N = desc.stored.N, K = desc.stored.K;
  PlannedArrays arrays(desc);
  arrays.add_bias();
  const bool has_offsets = kind == MixedKind::kU4S8 && !desc.is_symmetric;
  plan->form = describe_mixed(kind, desc.stored);
  plan->kernel = mixed_kernel_name(kind);
  plan->mma_kernel = mma_kernel_name(kind);
  plan->packed_kind = kind;
  plan->group_size = stored_group_size(K, desc.stored.group_size);
  plan->device_bytes =
      static_cast<size_t>(mixed_bytes(kind, N, K, stored_group_size(K, desc.stored.group_size)) +
                          mixed_scale_bytes(kind, N, has_offsets)) +
      arrays.num_bytes();
}

std::optional<std::string> why_not_gemv_row(const DeviceGemm&, const GemmDesc& desc) {
  const GemvShape shape = gemv_shape(desc.stored);
  if (shape.bits == 0 || is_empty(desc)) return std::nullopt;
  if (weight_form(desc.stored, desc.activation_dtype).is_codes()) return std::nullopt;
  std::string reason = why_not_packed(desc, shape.bits);
  if (!reason.empty()) return reason;
  if (desc.use == LinearUse::kGrouped) {
    return str("experts in ", shape.bits, " bits are multiplied together as numbers");
  }
  const char* name = gemv_kernel_name(shape.bits);
  if (desc.is_batch_invariant) {
    return str(name, " is for few rows, and results must not depend on how many there are");
  }
  // Parts of dequantized weights would leave rows of y where cuBLASLt writes none.
  if (shape.N % 8 != 0) return str(name, ": ", shape.N, " outputs are no multiple of 8");
  reason = why_not_gemv(shape);
  return reason.empty() ? reason : str(name, ": ", reason);
}

void plan_gemv(const DeviceGemm&, const GemmDesc& desc, const std::string&, CudaLinearPlan* plan) {
  PlannedArrays arrays(desc);
  arrays.add_both_biases();
  const GemvShape shape = gemv_shape(desc.stored);
  plan->form = describe_gemv(desc.stored, desc.activation_dtype);
  plan->kernel = gemv_kernel_name(shape.bits);
  plan->device_bytes = shape.code_bytes() + shape.scale_bytes() +
                       (desc.is_symmetric ? 0 : shape.group_bytes()) + arrays.num_bytes();
}

std::optional<std::string> why_not_codes(const DeviceGemm&, const GemmDesc& desc) {
  if (!weight_form(desc.stored, desc.activation_dtype).is_codes()) return std::nullopt;
  return kTakes;
}

std::optional<std::string> why_not_floats(const DeviceGemm&, const GemmDesc&) { return kTakes; }

/// A section that becomes rows of quantized values or of floats.
void plan_rows(const DeviceGemm& gemm, const GemmDesc& desc, const std::string& reasons,
               CudaLinearPlan* plan) {
  const GemmProblem& stored = desc.stored;
  const WeightForm form =
      rows_form(gemm.layout == DeviceLayout::kCodes, stored, desc.activation_dtype, reasons);
  const ScaleSpan span = form.is_codes() ? ScaleSpan::kRow : ScaleSpan::kNone;
  const bool is_shifted = desc.is_symmetric && code_shift(stored.w_layout) != 0;
  const CudaGemmProblem problem = {
      .dtype = form.dtype,
      .y_dtype = desc.activation_dtype,
      .N = stored.N,
      .K = stored.K,
      .x_scale = span,
      .w_scale = span,
      .has_offsets = form.dtype == DType::kI8 && !is_shifted,
      .has_bias = desc.has_bias,
      .is_y_aligned = desc.first_output * bits_of(desc.activation_dtype) % 128 == 0};
  plan->form = describe_form(is_quantized(stored.w_layout) || has_low_precision(stored.w_layout)
                                 ? name_of(stored.w_layout)
                                 : name_of(desc.stored_dtype),
                             form);
  PlannedArrays arrays(desc);
  if (form.is_codes()) arrays.add_of_outputs();
  if (problem.has_offsets) arrays.add_of_outputs();
  arrays.add_both_biases();
  plan->row_dtype = form.dtype;
  plan->row_stride = row_stride_of(form.dtype, stored.K);
  plan->device_bytes = row_bytes_of(form.dtype, stored.N, stored.K) + arrays.num_bytes();
  CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, nullptr);
  plan->kernel = choice.kernel->name;
  plan->rejections = std::move(choice.rejections);
  for (std::string& rejection : choice.few_rows_rejections) {
    plan->rejections.push_back(std::move(rejection));
  }
}

constexpr DeviceGemm mixed(MixedKind f16_kind, MixedKind bf16_kind) {
  return {.layout = DeviceLayout::kMixed,
          .f16_kind = f16_kind,
          .bf16_kind = bf16_kind,
          .why_not = why_not_mixed_row,
          .plan = plan_mixed};
}

constexpr std::array<DeviceGemm, 9> kDeviceGemms = {{
    {.layout = DeviceLayout::kNested, .why_not = why_not_nested, .plan = plan_nested},
    {.layout = DeviceLayout::kW4ax, .why_not = why_not_w4ax, .plan = plan_w4ax},
    mixed(MixedKind::kU4S8, MixedKind::kU4S8),
    mixed(MixedKind::kU4GroupS8, MixedKind::kU4GroupS8),
    mixed(MixedKind::kU4F16, MixedKind::kU4Bf16),
    mixed(MixedKind::kU8F16, MixedKind::kU8Bf16),
    {.layout = DeviceLayout::kGemv, .why_not = why_not_gemv_row, .plan = plan_gemv},
    {.layout = DeviceLayout::kCodes, .why_not = why_not_codes, .plan = plan_rows},
    {.layout = DeviceLayout::kFloats, .why_not = why_not_floats, .plan = plan_rows},
}};

}  // namespace

GemmDesc hopper_desc(const GemmProblem& stored, DType activation_dtype, LinearUse use) {
  return {.stored = stored,
          .activation_dtype = activation_dtype,
          .use = use,
          .w4 = find_w4_kernels({.compute_major = 9, .compute_minor = 0})};
}

std::span<const DeviceGemm> device_gemms() { return kDeviceGemms; }

DeviceGemmChoice choose_device_gemm(const GemmDesc& desc) {
  DeviceGemmChoice choice;
  for (const DeviceGemm& gemm : kDeviceGemms) {
    const std::optional<std::string> why_not = gemm.why_not(gemm, desc);
    if (!why_not) continue;
    choice.gemm = &gemm;
    if (why_not->empty()) break;
    choice.reasons = join_reasons(choice.reasons, *why_not);
  }
  return choice;
}

std::string with_reasons(std::string form, DeviceLayout layout, const std::string& reasons) {
  if (layout == DeviceLayout::kFloats || reasons.empty()) return form;
  return str(form, "; ", reasons);
}

}  // namespace halley::cuda
