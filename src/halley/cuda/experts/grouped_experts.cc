#include "halley/cuda/experts/grouped_experts.h"

#include <algorithm>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/grouped_gemm/quantized_grouped_gemm.h"
#include "halley/cuda/grouped_gemm/wgmma_grouped_gemm.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/ops/gather_rows.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/weights/weight_form.h"

namespace halley::cuda {
namespace {

using Section = CudaLinear::Section;

/// Rows begin at multiples of this many bytes, as the kernels ask.
constexpr int64_t kRowBytes = 16;

/// The fewest slots of an expert on average for which the kernel by wgmma takes less time than that
/// by mma.sync, which gathers rows as it copies them, and has smaller tiles (measured on an H200,
/// `halley bench experts`).
int64_t wgmma_slots_min(GroupedKind kind, int64_t K) {
  if (is_float_rows(kind)) return 0;
  // The start and the end of a tile count little where it has many inputs.
  if (K >= 4096) return is_rows(kind) ? 0 : 2;
  if (is_rows(kind)) return 1;
  return is_u8(mixed_kind(kind)) ? 24 : 10;
}

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
  if (!section.kind) return "f32";
  if (section.group_size == 0) return name_of(*section.kind);
  return str(*section.kind, " in groups of ", section.group_size);
}

/// Complete when it returns.
template <typename T>
DeviceBuffer device_table(const CudaContext& context, const std::vector<T>& values) {
  DeviceBuffer table(values.size() * sizeof(T), "tables of experts");
  check_cuda(cudaMemcpyAsync(table.data(), values.data(), table.num_bytes(), cudaMemcpyHostToDevice,
                             context.stream.get()),
             "copy of tables of experts");
  context.stream.synchronize();
  return table;
}

}  // namespace

std::optional<GroupedKind> grouped_kind_of_rows(DType dtype) {
  if (dtype == DType::kI8) return GroupedKind::kS8;
  if (dtype == DType::kF8E4M3) return GroupedKind::kE4m3;
  if (dtype == DType::kF16) return GroupedKind::kF16;
  if (dtype == DType::kBf16) return GroupedKind::kBf16;
  return {};
}

ExpertSection expert_section(const Section& section) {
  ExpertSection found = {.N = section.N,
                         .K = section.K,
                         .activation = section.activation,
                         .order = reinterpret_cast<uintptr_t>(section.activation.input_perm)};
  if (const RowsWeight* rows = section.weight->rows()) {
    found.row_stride = rows->w().row_stride;
    found.kind = grouped_kind_of_rows(rows->w().dtype);
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
      const bool is_alike =
          section.kind == first[0].kind && section.group_size == first[0].group_size;
      if (!is_alike) {
        return str("weights of expert ", e, " are ", form_name(section), ", those of expert 0 ",
                   form_name(first[0]));
      }
      const bool has_kernel = section.kind && (!is_float_rows(*section.kind) ||
                                               input_dtype(*section.kind) == activation_dtype);
      if (!has_kernel) {
        return str("weights of expert ", e, " are ", form_name(section), ", activations ",
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

std::string grouped_kernel_name(GroupedKind kind) { return str("grouped_gemm_", kind); }

/// Outputs [begin, begin + N) of a section: half a layer, or all of it.
struct GroupedExperts::Half {
  const Section& section;
  int64_t begin = 0, N = 0;
};

GroupedExperts::GroupedExperts(const CudaContext& context, const std::vector<CudaLinear>& layers,
                               bool has_halves, bool is_batch_invariant)
    : first_(&layers.at(0).sections().at(0)),
      num_experts_(static_cast<int64_t>(layers.size())),
      is_batch_invariant_(is_batch_invariant) {
  const std::optional<GroupedKind> kind = expert_section(*first_).kind;
  HALLEY_CHECK(kind.has_value(), first_->form);
  kind_ = *kind;
  std::vector<Half> halves;
  for (const CudaLinear& layer : layers) {
    const std::vector<Section>& sections = layer.sections();
    for (size_t half = 0; half < (has_halves ? 2u : 1u); ++half) {
      const bool is_joined = sections.size() == 1;
      const Section& section = sections[is_joined ? 0 : half];
      const int64_t N = is_joined && has_halves ? section.N / 2 : section.N;
      halves.push_back({section, is_joined && half == 1 ? N : 0, N});
    }
  }
  std::vector<GroupedWeight> weights;
  std::vector<CUtensorMap> maps;
  for (const Half& half : halves) {
    weights.push_back(weight_of(half));
    has_offsets_ = has_offsets_ || weights.back().offsets != nullptr;
    if (is_rows(kind_)) {
      const ConstMatrix w = half.section.weight->rows()->w();
      maps.push_back(wgmma_rows_map(w.rows(half.begin, half.begin + half.N)));
    } else {
      second_half_begin_ = std::max(second_half_begin_, half.begin);
    }
  }
  weights_ = device_table(context, weights);
  if (!maps.empty()) maps_ = device_table(context, maps);
}

GroupedWeight GroupedExperts::weight_of(const Half& half) const {
  const Section& section = half.section;
  GroupedWeight weight = {.bias = section.bias};
  if (const MixedWeight* mixed = section.weight->mixed()) {
    weight.data = mixed->chunks.data();
    weight.scales = mixed->w_scales();
    weight.offsets = mixed->w_offsets();
    return from_output(weight, half.begin, /*row_bytes=*/0);
  }
  const RowsWeight& rows = *section.weight->rows();
  weight.data = rows.w().data;
  if (has_scales(kind_)) {
    weight.scales = rows.scales().w_scales;
    weight.offsets = rows.scales().w_offsets;
  }
  return from_output(weight, half.begin, rows.w().row_stride * row_value_bytes(kind_));
}

bool GroupedExperts::runs_by_wgmma(int64_t num_slots) const {
  const bool is_e4m3 = kind_ == GroupedKind::kE4m3;
  if (is_float_rows(kind_) || (is_batch_invariant_ && is_e4m3)) return true;
  // Of s8 both have the same bits.
  if (is_batch_invariant_ && !has_scales(kind_)) return false;
  if (second_half_begin_ % kHalfOutputs != 0) return false;
  return num_slots >= wgmma_slots_min(kind_, first_->K) * num_experts_;
}

ConstMatrix GroupedExperts::prepared_rows(const CudaContext& context, ConstMatrix x, bool has_sums,
                                          RowScales* scales) const {
  if (has_scales(kind_)) {
    const QuantizedRows rows =
        take_quantized_rows(context, first_->activation.kind, x.num_rows, x.num_cols, has_sums);
    quantize_rows(context, first_->activation, x, rows);
    *scales = {.x_scales = rows.scales, .x_sums = rows.sums};
    return rows.codes;
  }
  const DType dtype = input_dtype(kind_);
  const bool is_ready = x.dtype == dtype && first_->activation.kind == ActivationQuant::kNone &&
                        row_alignment(x) == kRowBytes;
  if (is_ready) return x;
  const Matrix rounded = {context.workspace.take(row_bytes_of(dtype, x.num_rows, x.num_cols)),
                          dtype, x.num_rows, x.num_cols, row_stride_of(dtype, x.num_cols)};
  round_rows(context, first_->activation, x, rounded);
  return rounded;
}

size_t GroupedExperts::workspace_bytes(int64_t M, int64_t num_slots, bool is_gathered) const {
  if (first_ == nullptr) return 0;
  const int64_t K = first_->K;
  const auto rows_bytes = [&](int64_t rows) {
    return round_up(row_bytes_of(input_dtype(kind_), rows, K), DeviceArena::kAlignment);
  };
  const size_t prepared = has_scales(kind_) ? quantized_rows_bytes(M, K) : rows_bytes(M);
  return prepared + (is_gathered && M > 1 && runs_by_wgmma(num_slots) ? rows_bytes(num_slots) : 0);
}

void GroupedExperts::run(const CudaContext& context, const GroupedRun& run, ConstMatrix x,
                         Matrix y) const {
  GroupedGemm gemm = {.kind = kind_,
                      .slot_row = run.slot_row,
                      .expert_begin = run.expert_begin,
                      .num_experts = num_experts_,
                      .weights = reinterpret_cast<const GroupedWeight*>(weights_.data()),
                      .second_half_begin = second_half_begin_,
                      .epilogue = run.epilogue,
                      .activation = run.activation,
                      .is_batch_invariant = is_batch_invariant_};
  if (const MixedWeight* mixed = first_->weight->mixed()) {
    gemm.group_size = mixed->group_size;
  } else {
    gemm.weight_stride = first_->weight->rows()->w().row_stride * row_value_bytes(kind_);
    gemm.maps = reinterpret_cast<const CUtensorMap*>(maps_.data());
  }
  if (!runs_by_wgmma(y.num_rows)) {
    gemm.x = prepared_rows(context, x, has_offsets_, &gemm.x_scales);
    quantized_grouped_gemm(context, gemm, y);
    return;
  }
  gemm.x = prepared_rows(context, x, has_offsets_ || needs_row_sums(kind_), &gemm.x_scales);
  // One row lies in any order.
  if (run.slot_row != nullptr && x.num_rows > 1) {
    const DType dtype = gemm.x.dtype;
    const Matrix slots = {context.workspace.take(row_bytes_of(dtype, y.num_rows, x.num_cols)),
                          dtype, y.num_rows, x.num_cols, row_stride_of(dtype, x.num_cols)};
    gather_rows(context, gemm.x, run.slot_row, slots);
    gemm.x = slots;
  }
  wgmma_grouped_gemm(context, gemm, y);
}

}  // namespace halley::cuda
