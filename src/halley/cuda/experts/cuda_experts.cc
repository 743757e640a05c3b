#include "halley/cuda/experts/cuda_experts.h"

#include <algorithm>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/moe/moe_rows.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/ops/gather_rows.h"
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

std::vector<std::vector<ExpertSection>> expert_sections(const std::vector<CudaLinear>& layers) {
  std::vector<std::vector<ExpertSection>> all;
  for (const CudaLinear& layer : layers) {
    std::vector<ExpertSection>& sections = all.emplace_back();
    for (const Section& section : layer.sections()) sections.push_back(expert_section(section));
  }
  return all;
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
  why_not_grouped_ =
      why_not_grouped(spec_.activation_dtype, spec_.is_gated, expert_sections(gate_up_));
  if (why_not_grouped_.empty()) {
    why_not_grouped_ = why_not_grouped(spec_.activation_dtype, false, expert_sections(down_));
  }
  if (!why_not_grouped_.empty()) return;
  grouped_gate_up_ = GroupedExperts(context, gate_up_, spec_.is_gated, spec_.is_batch_invariant);
  grouped_down_ = GroupedExperts(context, down_, false, spec_.is_batch_invariant);
}

int64_t CudaExperts::width() const { return down_.empty() ? 0 : down_[0].in_features(); }

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
  const DeviceRouting& routing = routed.routing;
  const int32_t* expert_begin = routing.expert_begin + spec_.first_expert;
  const Matrix activated = take_rows(context, spec_.activation_dtype, routing.num_slots(), width());
  grouped_gate_up_.run(
      context,
      {.slot_row = routing.slot_row,
       .expert_begin = expert_begin,
       .epilogue = spec_.is_gated ? GroupedEpilogue::kGated : GroupedEpilogue::kActivation,
       .activation = spec_.activation},
      x, activated);
  grouped_down_.run(context, {.expert_begin = expert_begin}, activated, routed.slots_out);
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
  gather_rows(context, x, routing.slot_row, slots_in);
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
  size_t total = grouped_gate_up_.device_bytes() + grouped_down_.device_bytes();
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
  const size_t grouped = rows_bytes(dtype, num_slots, width()) +
                         grouped_gate_up_.workspace_bytes(M, num_slots, /*is_gathered=*/true) +
                         grouped_down_.workspace_bytes(num_slots, num_slots, false);
  if (is_capturable()) return both + grouped;
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
  text += str("grouped: all experts in one GEMM, ", spec_.activation_dtype, " outputs");
  for (const auto* layers : {&gate_up_, &down_}) {
    for (const Section& section : (*layers)[0].sections()) {
      const bool is_first = layers == &gate_up_;
      text +=
          str("\n", is_first ? "gate and up" : "down", " [", section.N, ", ", section.K, "] by ",
              is_first ? gate_up_kernel_name() : down_kernel_name(), ": ", section.form);
    }
  }
  return text;
}

}  // namespace halley::cuda
