#include "halley/cuda/weights/cuda_linear.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/weights/order_columns.h"
#include "halley/cuda/weights/tile_linear.h"

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

WeightOperands operands_of(const Section& section) {
  return {.x = {},
          .num_s8_inputs = section.activation.num_s8_inputs,
          .bias = section.bias,
          .rounded_bias = section.rounded_bias};
}

void set_codes(const QuantizedRows& x, WeightOperands* operands) {
  operands->x = x.codes;
  operands->x_scales = {.x_scales = x.scales, .x_sums = x.sums};
}

bool has_blocks(const CudaActivationQuant& activation) {
  return activation.kind == ActivationQuant::kS4S8Block128;
}

/// The inputs quantized, in the workspace.
void prepare_codes(const CudaContext& context, const Section& section, const WeightInput& input,
                   ConstMatrix x, WeightOperands* operands) {
  const CudaActivationQuant& activation =
      input.activation == nullptr ? section.activation : *input.activation;
  const QuantizedRows rows =
      has_blocks(activation)
          ? take_w4ax_rows(context, x.num_rows, section.K)
          : take_quantized_rows(context, activation.kind, x.num_rows, section.K, input.has_sums);
  // Those that the order picks are anywhere in the row.
  quantize_rows(context, activation, x.cols(0, section.K), rows);
  set_codes(rows, operands);
}

Matrix take_numbers(const CudaContext& context, DType dtype, int64_t M, int64_t K) {
  const int64_t stride = number_stride(dtype, K);
  auto* memory = context.workspace.take(static_cast<size_t>(M * stride * element_bytes(dtype)));
  return {memory, dtype, M, K, stride};
}

/// The inputs as floats of the type that the weight takes.
ConstMatrix prepare_numbers(const CudaContext& context, const Section& section,
                            const WeightInput& input, ConstMatrix x) {
  if (input.takes_any) return x;
  const bool is_rounded = section.activation.kind != ActivationQuant::kNone;
  const bool is_aligned = !input.is_ordered || row_alignment(x) == 16;
  const int32_t* order = input.is_ordered ? section.activation.input_perm : nullptr;
  if (is_rounded || (order == nullptr && (x.dtype != input.dtype || !is_aligned))) {
    const Matrix rounded = take_numbers(context, input.dtype, x.num_rows, section.num_inputs);
    round_rows(context, section.activation, x, rounded);
    x = rounded;
  }
  if (order == nullptr) return x;
  const Matrix ordered = take_numbers(context, input.dtype, x.num_rows, section.K);
  order_columns(context, order, x, ordered);
  return ordered;
}

/// What both take from the workspace for M rows.
size_t input_bytes(const Section& section, const WeightInput& input, int64_t M) {
  if (input.takes_any) return 0;
  if (input.is_quantized()) {
    const CudaActivationQuant& activation =
        input.activation == nullptr ? section.activation : *input.activation;
    return has_blocks(activation) ? w4ax_rows_bytes(M, section.K)
                                  : quantized_rows_bytes(M, section.K);
  }
  const size_t bytes =
      piece_bytes(M, number_stride(input.dtype, section.num_inputs) * element_bytes(input.dtype));
  // Rounded, and in the weight's order.
  return input.is_ordered && section.activation.input_perm != nullptr ? 2 * bytes : bytes;
}

}  // namespace

std::vector<const DeviceBuffer*> CudaLinear::Section::buffers(Precision precision) const {
  std::vector<const DeviceBuffer*> buffers = weight->buffers(precision);
  buffers.push_back(&array_memory);
  return buffers;
}

size_t CudaLinear::Section::device_bytes() const {
  size_t total = 0;
  for (const DeviceBuffer* buffer : buffers()) total += buffer->num_bytes();
  return total;
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
    WeightOperands operands = operands_of(section);
    prepare(section, &operands);
    section.weight->multiply(context, operands, part);
    context.workspace.release(mark);
  }
}

void CudaLinear::run(const CudaContext& context, ConstMatrix x, Matrix y,
                     Precision precision) const {
  HALLEY_CHECK(x.num_cols == num_inputs(), x.num_cols, num_inputs());
  run_sections(context, x.num_rows, y, [&](const Section& section, WeightOperands* operands) {
    const WeightInput input = section.weight->input(precision);
    if (input.is_quantized()) {
      prepare_codes(context, section, input, x, operands);
    } else {
      operands->x = prepare_numbers(context, section, input, x);
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
  run_sections(context, x.codes.num_rows, y,
               [&](const Section&, WeightOperands* operands) { set_codes(x, operands); });
}

const CudaGemmKernel* CudaLinear::gated_kernel(ConstMatrix x) const {
  if (sections_.size() != 1 || x.dtype != dtype_) return nullptr;
  const Section& section = sections_[0];
  const RowsWeight* rows = section.weight->rows();
  if (rows == nullptr || rows->w().dtype != dtype_ ||
      section.activation.kind != ActivationQuant::kNone) {
    return nullptr;
  }
  const CudaGemmKernel& kernel = rows->for_activations().choice.kernel_for(x);
  return kernel.launch_gated == nullptr ? nullptr : &kernel;
}

const CudaLinear::Section* CudaLinear::row_section(ConstMatrix x) const {
  if (gated_kernel(x) != nullptr) return &sections_[0];
  if (sections_.size() != 1 || x.dtype != dtype_ || x.num_rows != 1 || picks_inputs()) {
    return nullptr;
  }
  const Section& section = sections_[0];
  const ActivationQuant kind = section.activation.kind;
  const DeviceWeight& weight = *section.weight;
  if (weight.mixed() != nullptr) {
    const bool is_fused = weight.has_row_kernel() && section.activation.input_perm == nullptr &&
                          (section.has_coded_inputs() || kind == ActivationQuant::kNone);
    return is_fused ? &section : nullptr;
  }
  if (weight.w4ax() != nullptr) return weight.has_row_kernel() ? &section : nullptr;
  const RowsWeight* rows = weight.rows();
  if (rows == nullptr || rows->w().dtype != DType::kF8E4M3 || rows->scales().w_offsets != nullptr ||
      (kind != ActivationQuant::kE4m3Token && kind != ActivationQuant::kE4m3Static)) {
    return nullptr;
  }
  const ConstMatrix codes = {x.data, rows->w().dtype, 1, section.K, rows->w().row_stride};
  const bool is_streamed = rows->for_activations().choice.kernel_for(codes).launch_gated != nullptr;
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
  const RowsWeight& rows = *section.weight->rows();
  kernel->launch_gated(context,
                       {.x = x, .w = rows.w(), .scales = rows.scales(), .bias = section.bias},
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
  return std::any_of(sections_.begin(), sections_.end(), [](const Section& section) {
    return section.weight->input(Precision::kFull).has_sums;
  });
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
    for (const Precision precision : {Precision::kFull, Precision::kLow}) {
      most = std::max(most, input_bytes(section, section.weight->input(precision), M) +
                                section.weight->workspace_bytes(M, precision));
    }
  }
  return most;
}

std::string CudaLinear::describe() const {
  std::string text;
  for (const Section& section : sections_) {
    text += str(text.empty() ? "" : "\n", name_, " [", section.N, ", ", section.K,
                "]: ", section.form, "; ", section.weight->describe_kernels());
  }
  return text;
}

}  // namespace halley::cuda
