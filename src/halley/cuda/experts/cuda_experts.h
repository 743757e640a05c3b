// The experts of a layer on the GPU: routing, their products, the weighted sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/experts/grouped_experts.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/weights/cuda_linear.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// What a layer's experts do with a row, beside their weights.
struct ExpertsSpec {
  int64_t num_experts_per_token = 1;
  /// The weights of a row's experts are divided by their sum.
  bool is_normalized = true;
  Activation activation = Activation::kSilu;
  /// gate_up has 2F outputs, the gate first; otherwise F.
  bool is_gated = true;
  /// What the layers were loaded with: f16, bf16 or f32.
  DType activation_dtype = DType::kF16;
  /// Where other ranks have the other experts: how many the router knows, and which of them is the
  /// first here. 0: all are here.
  int64_t num_routed = 0, first_expert = 0;
  /// A row's bits must not depend on the rows beside it.
  bool is_batch_invariant = false;
};

/// y = sum over those of a row's experts that are here, in ascending order, of weight *
/// down(activation(gate_up(x))), as the decoder of the CPU has it (kernels/moe/moe.h).
///
/// Two ways to run, chosen once:
/// - Grouped: all on the device, with fixed addresses, capturable. For weights in the activations'
///   type, f16 or bf16, and for those of 4 and 8 bits as they are stored; each of the two products
///   by itself.
/// - One expert after the other, where experts differ from each other, or are f32: the host waits
///   for the routing, and each expert is two CudaLinear::run().
///
/// Move-only; run() from one thread at a time.
class CudaExperts {
 public:
  CudaExperts() = default;
  /// gate_up and down [E], as loaded. Waits until its tables are on the device. Throws
  /// UnsupportedError where there are more than kExpertsMax experts (cuda/moe/moe_routing.h).
  CudaExperts(const CudaContext& context, const ExpertsSpec& spec, std::vector<CudaLinear> gate_up,
              std::vector<CudaLinear> down);

  /// x [M, K] f16, bf16 or f32; router_logits [M, num_routed()] f32; y [M, out_features] f16, bf16
  /// or f32. All in device memory; x and y may not overlap. Numerics: sums in f32, what lies
  /// between two products and each expert's result in the activations' type, the weighted sum in
  /// f32, rounded once. A row whose softmax does not exist is NaN.
  void run(const CudaContext& context, ConstMatrix x, ConstMatrix router_logits, Matrix y) const;

  /// Whether experts run grouped. If not, run() waits for the device, and a graph cannot be made of
  /// it.
  bool is_capturable() const { return why_not_grouped_.empty(); }

  int64_t num_experts() const { return static_cast<int64_t>(gate_up_.size()); }
  int64_t num_routed() const { return spec_.num_routed == 0 ? num_experts() : spec_.num_routed; }
  int64_t in_features() const { return gate_up_.empty() ? 0 : gate_up_[0].in_features(); }
  int64_t out_features() const { return down_.empty() ? 0 : down_[0].out_features(); }
  /// Of weights, scales, biases and tables on the GPU.
  size_t device_bytes() const;
  /// The most that run() takes from the workspace for M rows.
  size_t workspace_bytes(int64_t M) const;
  /// The way that runs, and why not the grouped one; then the first expert's layers.
  std::string describe() const;

  const ExpertsSpec& spec() const { return spec_; }
  const std::vector<CudaLinear>& gate_up() const { return gate_up_; }
  const std::vector<CudaLinear>& down() const { return down_; }
  /// The kernels of the two products; "" where experts run one after the other.
  std::string gate_up_kernel_name() const { return grouped_gate_up_.kernel_name(); }
  std::string down_kernel_name() const { return grouped_down_.kernel_name(); }

 private:
  struct Routed;

  int64_t width() const;
  void run_grouped(const CudaContext& context, ConstMatrix x, const Routed& routed) const;
  void run_one_by_one(const CudaContext& context, ConstMatrix x, const Routed& routed) const;

  ExpertsSpec spec_ = {};
  std::vector<CudaLinear> gate_up_, down_;
  std::string why_not_grouped_ = "there are no experts";
  GroupedExperts grouped_gate_up_, grouped_down_;  // unless there is a reason
};

}  // namespace halley::cuda
