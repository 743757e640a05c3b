#include "halley/cuda/experts/cuda_experts.h"

#include <algorithm>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/moe/grouped_gemm.h"
#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/moe/moe_rows.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {
namespace {

using Section = CudaLinear::Section;

/// Rows begin at multiples of this many bytes, as all kernels like them.
constexpr int64_t kRowBytes = 16;

int64_t element_bytes(DType dtype) { return bits_of(dtype) / 8; }

/// What take_rows() takes.
size_t rows_bytes(DType dtype, int64_t num_rows, int64_t num_cols) {
  const int64_t row_bytes = round_up(num_cols * element_bytes(dtype), kRowBytes);
  return round_up(static_cast<size_t>(num_rows * row_bytes), DeviceArena::kAlignment);
}

Matrix take_rows(const CudaContext& context, DType dtype, int64_t num_rows, int64_t num_cols) {
  const int64_t stride =
      round_up(num_cols * element_bytes(dtype), kRowBytes) / element_bytes(dtype);
  auto* data = context.workspace.take(rows_bytes(dtype, num_rows, num_cols));
  return {data, dtype, num_rows, num_cols, stride};
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

/// Empty: all experts' sections can be multiplied in one launch. A layer has one section, or two
/// where `has_halves`.
std::string why_not_alike(std::span<const std::vector<ExpertSection>> layers, DType dtype,
                          bool has_halves) {
  const std::vector<ExpertSection>& first = layers[0];
  if (first.size() > (has_halves ? 2u : 1u)) {
    return str("a layer has ", first.size(), " parts of different forms");
  }
  for (size_t e = 0; e < layers.size(); ++e) {
    if (layers[e].size() != first.size()) {
      return str("expert ", e, " has other parts than expert 0");
    }
    for (const ExpertSection& section : layers[e]) {
      if (section.dtype != dtype) {
        return str("weights of expert ", e, " are ", section.dtype, ", activations ", dtype);
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
  return {};
}

std::vector<std::vector<ExpertSection>> expert_sections(const std::vector<CudaLinear>& layers) {
  std::vector<std::vector<ExpertSection>> all;
  for (const CudaLinear& layer : layers) {
    std::vector<ExpertSection>& sections = all.emplace_back();
    for (const Section& section : layer.sections()) {
      const ConstMatrix w = section.weight->rows()->w();
      sections.push_back({.dtype = w.dtype,
                          .N = section.N,
                          .K = section.K,
                          .row_stride = w.row_stride,
                          .activation = section.activation,
                          .order = reinterpret_cast<uintptr_t>(section.activation.input_perm)});
    }
  }
  return all;
}

/// Addresses of a layer's weights and biases for grouped_gemm(), with one or two for an expert.
void add_addresses(const std::vector<CudaLinear>& layers, bool has_halves,
                   std::vector<const std::byte*>* weights, std::vector<const float*>* biases) {
  for (const CudaLinear& layer : layers) {
    const std::vector<Section>& sections = layer.sections();
    for (size_t half = 0; half < (has_halves ? 2u : 1u); ++half) {
      const bool is_joined = sections.size() == 1;
      const Section& section = sections[is_joined ? 0 : half];
      const int64_t begin = is_joined && half == 1 ? section.N / 2 : 0;
      weights->push_back(section.weight->rows()->w().rows(begin, section.N).data);
      biases->push_back(section.bias == nullptr ? nullptr : section.bias + begin);
    }
  }
}

/// Rounded as the experts ask, in rows that grouped_gemm() takes.
ConstMatrix prepared(const CudaContext& context, const Section& section, ConstMatrix x) {
  const DType dtype = section.weight->rows()->w().dtype;
  const bool is_ready = x.dtype == dtype && section.activation.kind == ActivationQuant::kNone &&
                        row_alignment(x) == kRowBytes;
  if (is_ready) return x;
  const Matrix rounded = take_rows(context, dtype, x.num_rows, x.num_cols);
  round_rows(context, section.activation, x, rounded);
  return rounded;
}

void fill_zeros(const CudaContext& context, Matrix rows) {
  const auto num_bytes =
      static_cast<size_t>(rows.num_rows * rows.row_stride * element_bytes(rows.dtype));
  check_cuda(cudaMemsetAsync(rows.data, 0, num_bytes, context.stream.get()), "zeroing of rows");
}

size_t most_workspace(const std::vector<CudaLinear>& layers, int64_t M) {
  size_t most = 0;
  for (const CudaLinear& layer : layers) most = std::max(most, layer.workspace_bytes(M));
  return most;
}

}  // namespace

std::string why_not_grouped(DType activation_dtype, bool is_gated,
                            std::span<const std::vector<ExpertSection>> gate_up,
                            std::span<const std::vector<ExpertSection>> down) {
  if (gate_up.empty() || down.empty()) return "there are no experts";
  if (activation_dtype == DType::kF32) return "activations are f32";
  std::string reason = why_not_alike(gate_up, activation_dtype, is_gated);
  return reason.empty() ? why_not_alike(down, activation_dtype, false) : reason;
}

/// What one run() passes on.
struct CudaExperts::Routed {
  DeviceRouting routing;
  Matrix slots_out;  // [num_slots, out_features]
};

CudaExperts::CudaExperts(const CudaContext& context, const ExpertsSpec& spec,
                         std::vector<CudaLinear> gate_up, std::vector<CudaLinear> down)
    : spec_(spec), gate_up_(std::move(gate_up)), down_(std::move(down)) {
  HALLEY_CHECK(!gate_up_.empty() && gate_up_.size() == down_.size(), gate_up_.size(), down_.size());
  HALLEY_CHECK(1 <= spec_.num_experts_per_token && spec_.num_experts_per_token <= num_routed() &&
                   spec_.first_expert + num_experts() <= num_routed(),
               spec_.num_experts_per_token, spec_.first_expert, num_experts(), num_routed());
  if (num_routed() > kExpertsMax) {
    throw UnsupportedError(str("experts on the GPU: expected at most ", kExpertsMax, ", got ",
                               num_routed(), ". Run the model on the CPU."));
  }
  for (size_t e = 0; e < gate_up_.size(); ++e) {
    HALLEY_CHECK(gate_up_[e].out_features() == (spec_.is_gated ? 2 : 1) * width() &&
                     gate_up_[e].in_features() == in_features() &&
                     down_[e].in_features() == width() && down_[e].out_features() == out_features(),
                 e, gate_up_[e].out_features(), gate_up_[e].in_features(), down_[e].in_features(),
                 down_[e].out_features());
  }
  why_not_grouped_ = why_not_grouped(spec_.activation_dtype, spec_.is_gated,
                                     expert_sections(gate_up_), expert_sections(down_));
  if (why_not_grouped_.empty()) make_tables(context);
}

int64_t CudaExperts::width() const { return down_.empty() ? 0 : down_[0].in_features(); }

void CudaExperts::make_tables(const CudaContext& context) {
  std::vector<const std::byte*> weights;
  std::vector<const float*> biases;
  add_addresses(gate_up_, spec_.is_gated, &weights, &biases);
  num_wide_ = static_cast<int64_t>(weights.size());
  add_addresses(down_, false, &weights, &biases);
  const auto is_null = [](const float* bias) { return bias == nullptr; };
  has_biases_ = !std::all_of(biases.begin(), biases.end(), is_null);
  const size_t num_bytes = weights.size() * sizeof(weights[0]);
  tables_ = DeviceBuffer(2 * num_bytes, "addresses of experts");
  check_cuda(cudaMemcpyAsync(tables_.data(), weights.data(), num_bytes, cudaMemcpyHostToDevice,
                             context.stream.get()),
             "copy of addresses of experts");
  check_cuda(cudaMemcpyAsync(tables_.data() + num_bytes, biases.data(), num_bytes,
                             cudaMemcpyHostToDevice, context.stream.get()),
             "copy of addresses of experts");
  context.stream.synchronize();
}

void CudaExperts::run(const CudaContext& context, ConstMatrix x, ConstMatrix router_logits,
                      Matrix y) const {
  HALLEY_CHECK(!gate_up_.empty() && x.num_rows == y.num_rows && x.num_cols == in_features() &&
                   y.num_cols == out_features(),
               x.num_rows, y.num_rows, x.num_cols, y.num_cols, in_features(), out_features());
  if (x.num_rows == 0) return;
  const size_t mark = context.workspace.mark();
  Routed routed;
  routed.routing =
      take_routing(context.workspace, x.num_rows, num_routed(), spec_.num_experts_per_token);
  route_rows(context, router_logits, spec_.is_normalized, routed.routing);
  routed.slots_out =
      take_rows(context, spec_.activation_dtype, routed.routing.num_slots(), out_features());
  // Slots of experts that are elsewhere add nothing.
  if (num_experts() < num_routed()) fill_zeros(context, routed.slots_out);
  if (is_capturable()) {
    run_grouped(context, x, routed);
  } else {
    run_one_by_one(context, x, routed);
  }
  combine_rows(context, routed.routing, routed.slots_out, y);
  context.workspace.release(mark);
}

void CudaExperts::run_grouped(const CudaContext& context, ConstMatrix x,
                              const Routed& routed) const {
  const auto* weights = reinterpret_cast<const std::byte* const*>(tables_.data());
  const auto* biases = reinterpret_cast<const float* const*>(weights + num_wide_ + num_experts());
  const Section& wide = gate_up_[0].sections()[0];
  const Section& narrow = down_[0].sections()[0];
  const DeviceRouting& routing = routed.routing;
  const Matrix activated = take_rows(context, spec_.activation_dtype, routing.num_slots(), width());
  grouped_gemm(context,
               {.x = prepared(context, wide, x),
                .slot_row = routing.slot_row,
                .expert_begin = routing.expert_begin + spec_.first_expert,
                .num_experts = num_experts(),
                .weights = weights,
                .weight_stride = wide.weight->rows()->w().row_stride,
                .biases = has_biases_ ? biases : nullptr,
                .epilogue = spec_.is_gated ? GroupedEpilogue::kGated : GroupedEpilogue::kActivation,
                .activation = spec_.activation},
               activated);
  grouped_gemm(context,
               {.x = prepared(context, narrow, activated),
                .expert_begin = routing.expert_begin + spec_.first_expert,
                .num_experts = num_experts(),
                .weights = weights + num_wide_,
                .weight_stride = narrow.weight->rows()->w().row_stride,
                .biases = has_biases_ ? biases + num_wide_ : nullptr},
               routed.slots_out);
}

void CudaExperts::run_one_by_one(const CudaContext& context, ConstMatrix x,
                                 const Routed& routed) const {
  const DeviceRouting& routing = routed.routing;
  std::vector<int32_t> expert_begin(gate_up_.size() + 1);
  check_cuda(cudaMemcpyAsync(expert_begin.data(), routing.expert_begin + spec_.first_expert,
                             expert_begin.size() * sizeof(expert_begin[0]), cudaMemcpyDeviceToHost,
                             context.stream.get()),
             "copy of the routing to experts");
  context.stream.synchronize();
  const Matrix slots_in = take_rows(context, x.dtype, routing.num_slots(), x.num_cols);
  gather_rows(context, routing, x, slots_in);
  for (size_t e = 0; e < gate_up_.size(); ++e) {
    const int64_t begin = expert_begin[e], end = expert_begin[e + 1];
    if (begin == end) continue;
    const size_t mark = context.workspace.mark();
    const Matrix wide =
        take_rows(context, spec_.activation_dtype, end - begin, gate_up_[e].out_features());
    gate_up_[e].run(context, slots_in.rows(begin, end), wide);
    Matrix activated = wide;
    if (spec_.is_gated) {
      activated = take_rows(context, spec_.activation_dtype, end - begin, width());
      gated_activation(context, spec_.activation, wide, activated);
    } else {
      apply_activation(context, spec_.activation, wide);
    }
    down_[e].run(context, activated, routed.slots_out.rows(begin, end));
    context.workspace.release(mark);
  }
}

size_t CudaExperts::device_bytes() const {
  size_t total = tables_.num_bytes();
  for (const auto* layers : {&gate_up_, &down_}) {
    for (const CudaLinear& layer : *layers) total += layer.device_bytes();
  }
  return total;
}

size_t CudaExperts::workspace_bytes(int64_t M) const {
  if (M == 0 || gate_up_.empty()) return 0;
  const DType dtype = spec_.activation_dtype;
  const int64_t num_slots = M * spec_.num_experts_per_token;
  const size_t both = routing_bytes(M, num_routed(), spec_.num_experts_per_token) +
                      rows_bytes(dtype, num_slots, out_features());
  if (is_capturable()) {
    return both + 2 * rows_bytes(dtype, num_slots, width()) + rows_bytes(dtype, M, in_features());
  }
  // x may be f32; an expert may have all rows.
  const size_t of_an_expert = rows_bytes(dtype, M, gate_up_[0].out_features()) +
                              rows_bytes(dtype, M, width()) +
                              std::max(most_workspace(gate_up_, M), most_workspace(down_, M));
  return both + rows_bytes(DType::kF32, num_slots, in_features()) + of_an_expert;
}

std::string CudaExperts::describe() const {
  if (gate_up_.empty()) return "no experts";
  std::string text =
      str(num_experts(), " experts", num_experts() < num_routed() ? str(" of ", num_routed()) : "",
          ", ", spec_.num_experts_per_token, " of them a row, ");
  if (!is_capturable()) {
    text += str("one after the other, with a wait for the routing and without CUDA graphs: ",
                why_not_grouped_);
    return text + "\n" + gate_up_[0].describe() + "\n" + down_[0].describe();
  }
  text += str("grouped: all experts in one product by grouped_gemm, ", spec_.activation_dtype,
              " outputs");
  for (const auto* layers : {&gate_up_, &down_}) {
    for (const Section& section : (*layers)[0].sections()) {
      text += str("\n", layers == &gate_up_ ? "gate and up" : "down", " [", section.N, ", ",
                  section.K, "]: ", section.form);
    }
  }
  return text;
}

}  // namespace halley::cuda
