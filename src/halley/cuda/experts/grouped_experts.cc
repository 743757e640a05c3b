#include "halley/cuda/experts/grouped_experts.h"

#include <algorithm>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/grouped_gemm/quantized_grouped_gemm.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/weights/weight_form.h"

namespace halley::cuda {
namespace {

using Section = CudaLinear::Section;

/// Rows begin at multiples of this many bytes, as the kernels ask.
constexpr int64_t kRowBytes = 16;

bool round_alike(const ExpertSection& a, const ExpertSection& b) {
  const CudaActivationQuant& x = a.activation;
  const CudaActivationQuant& y = b.activation;
  if (x.kind != y.kind) return false;
  switch (x.kind) {
    case ActivationQuant::kS8Static:
    case ActivationQuant::kE4m3Static:
      return x.scale == y.scale;
    case ActivationQuant::kS4S8Block128:
      return x.num_s8_inputs == y.num_s8_inputs && x.s4_clip == y.s4_clip && a.order == b.order;
    default:
      return true;
  }
}

/// "u4_f16 in groups of 64", or the type of rows.
std::string form_name(const ExpertSection& section) {
  if (!section.kind) return name_of(section.dtype);
  if (section.group_size == 0) return name_of(*section.kind);
  return str(*section.kind, " in groups of ", section.group_size);
}

/// Waits for it.
template <typename T>
void copy_table(const CudaContext& context, std::byte* to, const std::vector<T>& values) {
  check_cuda(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
                             context.stream.get()),
             "copy of addresses of experts");
  context.stream.synchronize();
}

}  // namespace

std::optional<GroupedKind> grouped_kind_of_rows(DType dtype) {
  if (dtype == DType::kI8) return GroupedKind::kS8;
  if (dtype == DType::kF8E4M3) return GroupedKind::kE4m3;
  return {};
}

ExpertSection expert_section(const Section& section) {
  ExpertSection found = {.N = section.N,
                         .K = section.K,
                         .activation = section.activation,
                         .order = reinterpret_cast<uintptr_t>(section.activation.input_perm)};
  if (const RowsWeight* rows = section.weight->rows()) {
    found.dtype = rows->w().dtype;
    found.row_stride = rows->w().row_stride;
    found.kind = grouped_kind_of_rows(found.dtype);
  } else if (const MixedWeight* mixed = section.weight->mixed()) {
    found.kind = grouped_kind(mixed->kind);
    found.group_size = mixed->group_size;
  } else {
    HALLEY_CHECK(false, section.form);
  }
  return found;
}

std::string why_not_grouped(DType activation_dtype, bool has_halves,
                            std::span<const std::vector<ExpertSection>> layers) {
  if (layers.empty()) return "there are no experts";
  if (activation_dtype == DType::kF32) return "activations are f32";
  const std::vector<ExpertSection>& first = layers[0];
  if (first.size() > (has_halves ? 2u : 1u)) {
    return str("a layer has ", first.size(), " parts of different forms");
  }
  for (size_t e = 0; e < layers.size(); ++e) {
    if (layers[e].size() != first.size()) {
      return str("expert ", e, " has other parts than expert 0");
    }
    for (const ExpertSection& section : layers[e]) {
      const bool is_alike = section.kind == first[0].kind && section.dtype == first[0].dtype &&
                            section.group_size == first[0].group_size;
      if (!is_alike) {
        return str("weights of expert ", e, " are ", form_name(section), ", those of expert 0 ",
                   form_name(first[0]));
      }
      if (!section.kind && section.dtype != activation_dtype) {
        return str("weights of expert ", e, " are ", section.dtype, ", activations ",
                   activation_dtype);
      }
      if (section.N != first[0].N || section.K != first[0].K ||
          section.row_stride != first[0].row_stride) {
        return str("expert ", e, " has other sizes than expert 0");
      }
      if (!round_alike(section, first[0])) {
        return str("expert ", e, " rounds its inputs otherwise than expert 0");
      }
    }
  }
  const bool is_packed = first[0].kind && !is_rows(*first[0].kind);
  if (is_packed && has_halves && first.size() == 1 && first[0].N / 2 % kHalfOutputsMin != 0) {
    return str("half a layer has ", first[0].N / 2, " outputs, no multiple of ", kHalfOutputsMin);
  }
  return {};
}

std::string grouped_kernel_name(std::optional<GroupedKind> kind) {
  return kind ? str("grouped_gemm_", *kind) : "grouped_gemm";
}

/// Outputs [begin, begin + half a layer, or all of it) of a section.
struct GroupedExperts::Half {
  const Section& section;
  int64_t begin = 0;
};

GroupedExperts::GroupedExperts(const CudaContext& context, const std::vector<CudaLinear>& layers,
                               bool has_halves, bool is_batch_invariant)
    : first_(&layers.at(0).sections().at(0)),
      num_experts_(static_cast<int64_t>(layers.size())),
      is_batch_invariant_(is_batch_invariant) {
  kind_ = expert_section(*first_).kind;
  dtype_ = layers[0].dtype();
  std::vector<Half> halves;
  for (const CudaLinear& layer : layers) {
    const std::vector<Section>& sections = layer.sections();
    for (size_t half = 0; half < (has_halves ? 2u : 1u); ++half) {
      const bool is_joined = sections.size() == 1;
      const Section& section = sections[is_joined ? 0 : half];
      halves.push_back({section, is_joined && half == 1 ? section.N / 2 : 0});
    }
  }
  has_biases_ = std::any_of(halves.begin(), halves.end(),
                            [](const Half& half) { return half.section.bias != nullptr; });
  if (kind_) {
    make_quantized_table(context, halves);
  } else {
    make_float_table(context, halves);
  }
}

void GroupedExperts::make_float_table(const CudaContext& context, const std::vector<Half>& halves) {
  std::vector<const std::byte*> weights;
  std::vector<const float*> biases;
  for (const Half& half : halves) {
    const ConstMatrix w = half.section.weight->rows()->w();
    weights.push_back(w.rows(half.begin, half.section.N).data);
    const float* bias = half.section.bias;
    biases.push_back(bias == nullptr ? nullptr : bias + half.begin);
  }
  const size_t num_bytes = weights.size() * sizeof(weights[0]);
  table_ = DeviceBuffer(2 * num_bytes, "addresses of experts");
  copy_table(context, table_.data(), weights);
  copy_table(context, table_.data() + num_bytes, biases);
}

void GroupedExperts::make_quantized_table(const CudaContext& context,
                                          const std::vector<Half>& halves) {
  std::vector<GroupedWeight> weights;
  for (const Half& half : halves) {
    const Section& section = half.section;
    GroupedWeight weight = {.bias = section.bias};
    int64_t row_bytes = 0;
    if (const MixedWeight* mixed = section.weight->mixed()) {
      weight.data = mixed->chunks.data();
      weight.scales = mixed->w_scales();
      weight.offsets = mixed->w_offsets();
      second_half_begin_ = std::max(second_half_begin_, half.begin);
    } else {
      const RowsWeight& rows = *section.weight->rows();
      weight.data = rows.w().data;
      weight.scales = rows.scales().w_scales;
      weight.offsets = rows.scales().w_offsets;
      row_bytes = rows.w().row_stride;
    }
    weight = from_output(weight, half.begin, row_bytes);
    has_offsets_ = has_offsets_ || weight.offsets != nullptr;
    weights.push_back(weight);
  }
  table_ = DeviceBuffer(weights.size() * sizeof(weights[0]), "addresses of experts");
  copy_table(context, table_.data(), weights);
}

ConstMatrix GroupedExperts::prepared_numbers(const CudaContext& context, ConstMatrix x) const {
  const bool is_ready = x.dtype == dtype_ && first_->activation.kind == ActivationQuant::kNone &&
                        row_alignment(x) == kRowBytes;
  if (is_ready) return x;
  const Matrix rounded = {context.workspace.take(row_bytes_of(dtype_, x.num_rows, x.num_cols)),
                          dtype_, x.num_rows, x.num_cols, row_stride_of(dtype_, x.num_cols)};
  round_rows(context, first_->activation, x, rounded);
  return rounded;
}

size_t GroupedExperts::workspace_bytes(int64_t M) const {
  if (first_ == nullptr) return 0;
  if (kind_ && has_scales(*kind_)) return quantized_rows_bytes(M, first_->K);
  return round_up(row_bytes_of(dtype_, M, first_->K), DeviceArena::kAlignment);
}

void GroupedExperts::run(const CudaContext& context, const GroupedRun& run, ConstMatrix x,
                         Matrix y) const {
  if (kind_) {
    run_quantized(context, run, x, y);
  } else {
    run_floats(context, run, x, y);
  }
}

void GroupedExperts::run_floats(const CudaContext& context, const GroupedRun& run, ConstMatrix x,
                                Matrix y) const {
  const auto* weights = reinterpret_cast<const std::byte* const*>(table_.data());
  const auto* biases =
      reinterpret_cast<const float* const*>(table_.data() + table_.num_bytes() / 2);
  grouped_gemm(context,
               {.x = prepared_numbers(context, x),
                .slot_row = run.slot_row,
                .expert_begin = run.expert_begin,
                .num_experts = num_experts_,
                .weights = weights,
                .weight_stride = first_->weight->rows()->w().row_stride,
                .biases = has_biases_ ? biases : nullptr,
                .epilogue = run.epilogue,
                .activation = run.activation},
               y);
}

void GroupedExperts::run_quantized(const CudaContext& context, const GroupedRun& run, ConstMatrix x,
                                   Matrix y) const {
  QuantizedGroupedGemm gemm = {.kind = *kind_,
                               .slot_row = run.slot_row,
                               .expert_begin = run.expert_begin,
                               .num_experts = num_experts_,
                               .weights = reinterpret_cast<const GroupedWeight*>(table_.data()),
                               .second_half_begin = second_half_begin_,
                               .epilogue = run.epilogue,
                               .activation = run.activation,
                               .is_batch_invariant = is_batch_invariant_};
  if (const MixedWeight* mixed = first_->weight->mixed()) {
    gemm.group_size = mixed->group_size;
  } else {
    gemm.weight_stride = first_->weight->rows()->w().row_stride;
  }
  if (has_scales(*kind_)) {
    const QuantizedRows rows =
        take_quantized_rows(context, first_->activation.kind, x.num_rows, x.num_cols, has_offsets_);
    quantize_rows(context, first_->activation, x, rows);
    gemm.x = rows.codes;
    gemm.x_scales = {.x_scales = rows.scales, .x_sums = rows.sums};
  } else {
    gemm.x = prepared_numbers(context, x);
  }
  quantized_grouped_gemm(context, gemm, y);
}

}  // namespace halley::cuda
