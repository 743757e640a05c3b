#include "halley/cuda/weights/cuda_linear.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"
#include "halley/cuda/weights/gemv_linear.h"
#include "halley/cuda/weights/order_columns.h"
#include "halley/cuda/weights/tile_linear.h"
#include "halley/cuda/weights/weight_form.h"

namespace halley::cuda {
namespace {

using Section = CudaLinear::Section;

/// What the arena takes for a piece.
size_t piece_bytes(int64_t num_rows, int64_t row_bytes) {
  return round_up(static_cast<size_t>(num_rows) * static_cast<size_t>(row_bytes),
                  DeviceArena::kAlignment);
}

int64_t element_bytes(DType dtype) { return bits_of(dtype) / 8; }

/// Rows of the activations' type that begin at multiples of 16 bytes.
int64_t number_stride(DType dtype, int64_t K) { return round_up(K, 16 / element_bytes(dtype)); }

/// Codes as the section's kernel takes them.
void set_codes(const Section& section, const QuantizedRows& x, CudaGemmOperands* operands) {
  operands->x = x.codes;
  operands->scales.x_scales = x.scales;
  operands->scales.x_sums = x.sums;
  if (section.static_x_scale != nullptr) {
    // A row that is not finite has codes of NaN: its scale says nothing more.
    operands->scales.x_scales = section.static_x_scale;
    operands->scales.is_x_tensor = true;
  }
}

/// The inputs rounded to codes, in the workspace.
void prepare_codes(const CudaContext& context, const Section& section, ConstMatrix x,
                   CudaGemmOperands* operands) {
  const CudaActivationQuant& activation =
      section.is_nested() ? section.low_activation : section.activation;
  const QuantizedRows rows = section.is_w4ax()
                                 ? take_w4ax_rows(context, x.num_rows, section.K)
                                 : take_quantized_rows(context, activation.kind, x.num_rows,
                                                       section.K, section.has_code_sums());
  // Those that the order picks are anywhere in the row.
  quantize_rows(context, activation, x.cols(0, section.K), rows);
  set_codes(section, rows, operands);
}

Matrix take_numbers(const CudaContext& context, DType dtype, int64_t M, int64_t K) {
  const int64_t stride = number_stride(dtype, K);
  auto* memory = context.workspace.take(static_cast<size_t>(M * stride * element_bytes(dtype)));
  return {memory, dtype, M, K, stride};
}

ConstMatrix prepare_numbers(const CudaContext& context, const Section& section, ConstMatrix x,
                            DType dtype) {
  const bool is_rounded = section.activation.kind != ActivationQuant::kNone;
  const bool is_packed = section.is_mixed() || section.is_gemv();
  const bool is_aligned = !is_packed || row_alignment(x) == 16;
  const int32_t* order = is_packed ? section.activation.input_perm : nullptr;
  if (is_rounded || (order == nullptr && (x.dtype != dtype || !is_aligned))) {
    const Matrix rounded = take_numbers(context, dtype, x.num_rows, section.num_inputs);
    round_rows(context, section.activation, x, rounded);
    x = rounded;
  }
  if (order == nullptr) return x;
  const Matrix ordered = take_numbers(context, dtype, x.num_rows, section.K);
  order_columns(context, order, x, ordered);
  return ordered;
}

/// Of the inputs that a section multiplies as numbers.
DType number_dtype(const Section& section, DType activation_dtype) {
  return section.is_mixed() || section.is_gemv() ? activation_dtype : section.w.dtype;
}

size_t kernel_bytes(const BoundGemm& gemm, int64_t M) {
  size_t most = gemm.choice.kernel->workspace_bytes(gemm.problem, M);
  for (const CudaGemmKernel* few : gemm.choice.for_few_rows) {
    most = std::max(most, few->workspace_bytes(gemm.problem, std::min(M, few->rows_max)));
  }
  return round_up(most, DeviceArena::kAlignment);
}

std::string describe_gemm(const BoundGemm& gemm) {
  const CudaGemmChoice& choice = gemm.choice;
  std::string text = str(gemm.problem.y_dtype, " outputs by ");
  for (const CudaGemmKernel* few : choice.for_few_rows) {
    text += str(few->name, " up to ", few->rows_max, " rows, ");
  }
  text += choice.kernel->name;
  for (const std::string& rejection : choice.few_rows_rejections) text += str(", not ", rejection);
  for (const std::string& rejection : choice.rejections) text += str(", not ", rejection);
  return text;
}

/// Sums of s8 are exact: any plan gives the same bits.
MixedPlan mixed_plan(const Section& section, bool is_batch_invariant, int64_t M) {
  const MixedShape shape = mixed_shape(section.mixed, M);
  const bool has_one_plan = is_batch_invariant && !is_s8(section.mixed.kind);
  return has_one_plan ? invariant_mixed_plan(shape, section.mixed_device)
                      : plan_mixed_gemm(shape, section.mixed_device);
}

MmaPlan mma_plan(const Section& section, bool is_batch_invariant, int64_t M) {
  const MmaShape shape = mma_shape(section.mixed, M);
  const bool has_one_plan = is_batch_invariant && !is_s8(section.mixed.kind);
  return has_one_plan ? invariant_mma_plan(shape, section.mixed_device)
                      : plan_mma_gemm(shape, section.mixed_device);
}

std::string describe_mixed(const Section& section, bool is_batch_invariant) {
  std::string text = str("outputs by ", section.kernel_name());
  for (const int64_t M : {1, 16, 128}) {
    text += str(M == 1 ? ": " : "; ", M, M == 1 ? " row " : " rows ",
                section.w4_kernels == W4Kernels::kMma
                    ? str(mma_plan(section, is_batch_invariant, M))
                    : str(mixed_plan(section, is_batch_invariant, M)));
  }
  return text;
}

}  // namespace

bool CudaLinear::Section::has_coded_inputs() const {
  if (is_w4ax()) return true;
  if (is_nested() || is_gemv()) return false;  // or codes of other kernels
  if (is_mixed()) return is_s8(mixed.kind);
  return w.dtype == DType::kI8 || w.dtype == DType::kF8E4M3;
}

bool CudaLinear::Section::has_code_sums() const {
  return is_mixed() ? mixed.needs_sums() : scales.w_offsets != nullptr;
}

const char* CudaLinear::Section::kernel_name() const {
  if (is_nested()) return kNestedKernelName;
  const bool is_mma = w4_kernels == W4Kernels::kMma;
  if (is_w4ax()) return is_mma ? kW4axMmaKernelName : kW4axKernelName;
  if (is_gemv()) return gemv_kernel_name(gemv.shape.bits);
  if (is_mixed()) return is_mma ? mma_kernel_name(mixed.kind) : mixed_kernel_name(mixed.kind);
  return for_activations.choice.kernel->name;
}

std::vector<const DeviceBuffer*> CudaLinear::Section::buffers() const {
  return {&weight_memory, &array_memory, &mixed.chunks, &mixed.scales, &gemv.codes,
          &gemv.scales,   &gemv.zeros,   &nested.lower, &w4ax.codes,   &w4ax.scales};
}

size_t CudaLinear::Section::device_bytes() const {
  size_t total = 0;
  for (const DeviceBuffer* buffer : buffers()) total += buffer->num_bytes();
  return total;
}

void CudaLinear::run_mixed(const CudaContext& context, const Section& section,
                           const CudaGemmOperands& inputs, Matrix y) const {
  const MixedOperands operands = {.x = inputs.x,
                                  .x_scales = inputs.scales,
                                  .bias = section.bias,
                                  // Weights were in place before the layer was; what is ahead on
                                  // the stream of a step is a kernel.
                                  .starts_early = true};
  const bool is_batch_invariant = lt_->choice().is_batch_invariant;
  if (section.w4_kernels == W4Kernels::kMma) {
    const MmaPlan plan = mma_plan(section, is_batch_invariant, y.num_rows);
    return mma_gemm_planned(context, section.mixed, operands, plan, y);
  }
  const MixedPlan plan = mixed_plan(section, is_batch_invariant, y.num_rows);
  mixed_gemm_planned(context, section.mixed, operands, plan, y);
}

template <typename Prepare>
void CudaLinear::run_sections(const CudaContext& context, int64_t M, Matrix y,
                              const Prepare& prepare) const {
  HALLEY_CHECK(M == y.num_rows && y.num_cols == out_features(), M, y.num_rows, y.num_cols,
               out_features());
  HALLEY_CHECK(y.dtype == dtype_ || y.dtype == DType::kF32, name_of(y.dtype), name_of(dtype_));
  if (M == 0) return;
  int64_t begin = 0;
  for (const Section& section : sections_) {
    const int64_t end = begin + section.N;
    const Matrix part = y.cols(begin, end);
    begin = end;
    const size_t mark = context.workspace.mark();
    CudaGemmOperands operands = {.x = {},
                                 .w = section.w,
                                 .scales = section.scales,
                                 .bias = section.bias,
                                 .rounded_bias = section.rounded_bias};
    prepare(section, &operands);
    const TileLinearInputs inputs = {.x = operands.x,
                                     .x_scales = operands.scales.x_scales,
                                     .num_s8_inputs = section.activation.num_s8_inputs,
                                     .bias = section.bias,
                                     .is_batch_invariant = lt_->choice().is_batch_invariant,
                                     .w4_kernels = section.w4_kernels};
    if (section.is_mixed()) {
      run_mixed(context, section, operands, part);
    } else if (section.is_gemv()) {
      const BoundGemm& gemm = y.dtype == dtype_ ? section.for_activations : section.for_f32;
      run_gemv_linear(context, *lt_, section.gemv, gemm.choice,
                      {.x = operands.x, .bias = section.bias, .rounded_bias = section.rounded_bias},
                      part);
    } else if (section.is_w4ax()) {
      run_w4ax_linear(context, section.w4ax, inputs, part);
    } else if (section.is_nested() && operands.x.dtype != DType::kF8E4M3) {
      run_nested_linear(context, section.nested, inputs, part);
    } else {
      const BoundGemm& gemm = y.dtype == dtype_ ? section.for_activations : section.for_f32;
      const CudaGemmKernel& kernel = gemm.choice.kernel_for(operands.x);
      HALLEY_CHECK(kernel.scaling == LtScaling::kNone || row_alignment(part) == 16, kernel.name,
                   part.row_stride);
      kernel.launch(*lt_, context, gemm.problem, operands, part);
    }
    context.workspace.release(mark);
  }
}

void CudaLinear::run(const CudaContext& context, ConstMatrix x, Matrix y,
                     Precision precision) const {
  HALLEY_CHECK(x.num_cols == num_inputs(), x.num_cols, num_inputs());
  run_sections(context, x.num_rows, y, [&](const Section& section, CudaGemmOperands* operands) {
    const bool is_low = section.is_nested() && precision == Precision::kLow;
    if (section.is_nested() && !is_low) {
      operands->x = x;
    } else if (section.has_coded_inputs() || is_low) {
      prepare_codes(context, section, x, operands);
    } else {
      operands->x = prepare_numbers(context, section, x, number_dtype(section, dtype_));
    }
  });
}

void CudaLinear::run_quantized(const CudaContext& context, const QuantizedRows& x, Matrix y) const {
  const CudaActivationQuant* form = code_form();
  HALLEY_CHECK(form != nullptr && x.codes.dtype == activation_code_dtype(form->kind), name_,
               name_of(x.codes.dtype));
  HALLEY_CHECK(x.codes.num_cols == in_features(), x.codes.num_cols, in_features());
  HALLEY_CHECK(x.scales != nullptr && (x.sums != nullptr || !has_code_sums()), name_);
  HALLEY_CHECK(form->kind != ActivationQuant::kS4S8Block128 ||
                   x.scales_pitch == round_up(x.codes.num_rows, kW4axTokenPadding),
               name_, x.scales_pitch);
  run_sections(
      context, x.codes.num_rows, y,
      [&](const Section& section, CudaGemmOperands* operands) { set_codes(section, x, operands); });
}

const CudaGemmKernel* CudaLinear::gated_kernel(ConstMatrix x) const {
  if (sections_.size() != 1 || x.dtype != dtype_) return nullptr;
  const Section& section = sections_[0];
  if (section.w.data == nullptr || section.w.dtype != dtype_ ||
      section.activation.kind != ActivationQuant::kNone) {
    return nullptr;
  }
  const CudaGemmKernel& kernel = section.for_activations.choice.kernel_for(x);
  return kernel.launch_gated == nullptr ? nullptr : &kernel;
}

const CudaLinear::Section* CudaLinear::row_section(ConstMatrix x) const {
  if (gated_kernel(x) != nullptr) return &sections_[0];
  if (sections_.size() != 1 || x.dtype != dtype_ || x.num_rows != 1 || picks_inputs()) {
    return nullptr;
  }
  const Section& section = sections_[0];
  const ActivationQuant kind = section.activation.kind;
  if (section.is_mixed()) {
    if (section.w4_kernels != W4Kernels::kHopper || section.activation.input_perm != nullptr) {
      return nullptr;
    }
    // Sums of s8 are exact.
    const bool is_numbers = kind == ActivationQuant::kNone && !lt_->choice().is_batch_invariant;
    return is_s8(section.mixed.kind) || is_numbers ? &section : nullptr;
  }
  if (section.is_w4ax()) {
    // Sums of blocks are not.
    const bool is_free = !lt_->choice().is_batch_invariant;
    return section.w4_kernels == W4Kernels::kHopper && is_free ? &section : nullptr;
  }
  if (section.is_nested() || section.w.dtype != DType::kF8E4M3 ||
      section.scales.w_offsets != nullptr ||
      (kind != ActivationQuant::kE4m3Token && kind != ActivationQuant::kE4m3Static)) {
    return nullptr;
  }
  const ConstMatrix codes = {x.data, section.w.dtype, 1, section.K, section.w.row_stride};
  const bool is_streamed = section.for_activations.choice.kernel_for(codes).launch_gated != nullptr;
  return is_streamed ? &section : nullptr;
}

void CudaLinear::run_gated(const CudaContext& context, Activation activation, ConstMatrix x,
                           Matrix y) const {
  const CudaGemmKernel* kernel = gated_kernel(x);
  HALLEY_CHECK(kernel != nullptr, name_);
  HALLEY_CHECK(x.num_cols == in_features() && 2 * y.num_cols == out_features() &&
                   x.num_rows == y.num_rows && y.dtype == dtype_,
               name_, x.num_rows, x.num_cols, y.num_rows, y.num_cols);
  if (x.num_rows == 0) return;
  const Section& section = sections_[0];
  kernel->launch_gated(context,
                       {.x = x, .w = section.w, .scales = section.scales, .bias = section.bias},
                       activation, y);
}

const CudaActivationQuant* CudaLinear::code_form() const {
  if (sections_.empty()) return nullptr;
  const CudaActivationQuant& first = sections_[0].activation;
  const bool is_same = std::all_of(sections_.begin(), sections_.end(), [&](const Section& section) {
    const CudaActivationQuant& its = section.activation;
    return section.has_coded_inputs() && its.kind == first.kind && its.scale == first.scale &&
           its.num_s8_inputs == first.num_s8_inputs && its.s4_clip == first.s4_clip &&
           its.input_perm == first.input_perm;
  });
  return is_same ? &first : nullptr;
}

bool CudaLinear::has_code_sums() const {
  return std::any_of(sections_.begin(), sections_.end(),
                     [](const Section& section) { return section.has_code_sums(); });
}

int64_t CudaLinear::out_features() const {
  int64_t total = 0;
  for (const Section& section : sections_) total += section.N;
  return total;
}

size_t CudaLinear::device_bytes() const {
  size_t total = 0;
  for (const Section& section : sections_) {
    total += section.device_bytes();
  }
  return total;
}

size_t CudaLinear::workspace_bytes(int64_t M) const {
  size_t most = 0;
  for (const Section& section : sections_) {
    if (section.is_w4ax()) {
      most = std::max(most, w4ax_rows_bytes(M, section.K) +
                                w4ax_linear_bytes(section.num_sms, section.w4_kernels));
      continue;
    }
    if (section.is_nested()) {
      most = std::max(most, nested_linear_bytes(section.num_sms, section.nested, M));
    }
    const DType dtype = number_dtype(section, dtype_);
    size_t of_inputs =
        section.has_coded_inputs() || section.is_nested()
            ? quantized_rows_bytes(M, section.K)
            : piece_bytes(M, number_stride(dtype, section.num_inputs) * element_bytes(dtype));
    const bool is_packed = section.is_mixed() || section.is_gemv();
    // Rounded, and in the weight's order.
    if (is_packed && section.activation.input_perm != nullptr) of_inputs *= 2;
    if (section.is_gemv()) {
      of_inputs += round_up(decoded_bytes(section.N, section.K), DeviceArena::kAlignment);
    }
    if (section.is_mixed()) {
      const size_t of_product = section.w4_kernels == W4Kernels::kMma
                                    ? mma_workspace_bytes_max(section.mixed_device)
                                    : mixed_workspace_bytes_max(section.mixed_device);
      most = std::max(most, of_inputs + round_up(of_product, DeviceArena::kAlignment));
      continue;
    }
    for (const BoundGemm* gemm : {&section.for_activations, &section.for_f32}) {
      most = std::max(most, of_inputs + kernel_bytes(*gemm, M));
    }
  }
  return most;
}

std::string CudaLinear::describe() const {
  std::string text;
  for (const Section& section : sections_) {
    text +=
        str(text.empty() ? "" : "\n", name_, " [", section.N, ", ", section.K, "]: ", section.form,
            "; ",
            section.is_mixed()  ? describe_mixed(section, lt_->choice().is_batch_invariant)
            : section.is_gemv() ? str("outputs by ", section.kernel_name(), "; of decoded numbers ",
                                      describe_gemm(section.for_activations))
            : section.is_w4ax() ? str("outputs by ", section.kernel_name())
            : section.is_nested() ? str("outputs by ", section.kernel_name(), ", in low precision ",
                                        describe_gemm(section.for_activations))
                                  : describe_gemm(section.for_activations));
    if (section.is_mixed() || section.is_w4ax()) continue;
    if (dtype_ != DType::kF32) text += str("; ", describe_gemm(section.for_f32));
  }
  return text;
}

}  // namespace halley::cuda
