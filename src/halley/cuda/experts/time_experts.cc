#include "halley/cuda/experts/time_experts.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/cuda/experts/cuda_experts.h"
#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/moe/moe_rows.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/weights/mixed_linear.h"
#include "halley/cuda/weights/weight_form.h"

namespace halley::cuda {
namespace {

/// Launches of a graph, each with a routing of its own, so that the L2 cache does not hold what
/// the next one reads.
constexpr int64_t kNumLaunches = 20;

DeviceBuffer random_numbers(int64_t count) {
  DeviceBuffer memory(static_cast<size_t>(count) * 2, "numbers to time");
  fill_pattern(memory, random_f16(memory.num_bytes()));
  return memory;
}

/// In f16 values, of which all are finite in f32 too.
void fill_random(const DeviceBuffer& buffer) {
  if (buffer.num_bytes() == 0) return;
  fill_pattern(buffer, random_f16(buffer.num_bytes()));
}

std::unique_ptr<DeviceWeight> random_rows(DType dtype, int64_t N, int64_t K, const float* scales) {
  DeviceBuffer memory(row_bytes_of(dtype, N, K), "weights to time");
  fill_random(memory);
  const ConstMatrix rows = {memory.data(), dtype, N, K, row_stride_of(dtype, K)};
  auto weight = std::make_unique<RowsWeight>(std::move(memory), rows);
  if (dtype != DType::kF16) weight->mutable_scales().w_scales = scales;
  return weight;
}

std::unique_ptr<DeviceWeight> random_tiles(const CudaContext& context, MixedKind kind, int64_t N,
                                           int64_t K) {
  MixedWeight weight({.kind = kind, .N = N, .K = K, .group_size = kChunkInputs}, false);
  fill_random(weight.chunks);
  fill_random(weight.scales);
  return std::make_unique<MixedLinear>(context, std::move(weight), W4Kernels::kHopper, DType::kF16,
                                       false);
}

CudaLinear random_layer(const CudaContext& context, CublasLtGemm& lt, GroupedKind weights,
                        int64_t N, int64_t K) {
  std::vector<CudaLinear::Section> sections(1);
  CudaLinear::Section& section = sections[0];
  section.N = N;
  section.K = section.num_inputs = K;
  section.form = "random numbers";
  if (has_scales(weights)) {
    section.activation.kind =
        weights == GroupedKind::kE4m3 ? ActivationQuant::kE4m3Token : ActivationQuant::kS8Token;
  }
  if (!is_rows(weights)) {
    section.weight = random_tiles(context, mixed_kind(weights), N, K);
    return {"experts", DType::kF16, std::move(sections), lt};
  }
  section.array_memory = DeviceBuffer(static_cast<size_t>(N) * sizeof(float), "scales to time");
  fill_random(section.array_memory);
  section.weight = random_rows(input_dtype(weights), N, K,
                               reinterpret_cast<const float*>(section.array_memory.data()));
  return {"experts", DType::kF16, std::move(sections), lt};
}

CudaExperts random_experts(const CudaContext& context, CublasLtGemm& lt, GroupedKind weights,
                           const ExpertsShape& shape) {
  std::vector<CudaLinear> gate_up, down;
  for (int64_t e = 0; e < shape.num_experts; ++e) {
    gate_up.push_back(random_layer(context, lt, weights, 2 * shape.width, shape.hidden_size));
    down.push_back(random_layer(context, lt, weights, shape.hidden_size, shape.width));
  }
  return {context,
          {.num_experts_per_token = shape.num_experts_per_token, .activation_dtype = DType::kF16},
          std::move(gate_up),
          std::move(down)};
}

/// Of one weight of an expert.
double stored_bytes(GroupedKind weights, int64_t N, int64_t K) {
  if (is_rows(weights)) {
    const int64_t scale_bytes = has_scales(weights) ? N * int64_t{sizeof(float)} : 0;
    return static_cast<double>(N * K * row_value_bytes(weights) + scale_bytes);
  }
  const MixedKind kind = mixed_kind(weights);
  return static_cast<double>(mixed_bytes(kind, N, K, kChunkInputs) +
                             mixed_scale_bytes(kind, N, false));
}

double peak(const GpuRates& rates, GroupedKind weights) {
  if (!has_scales(weights)) return rates.f16_per_second;
  return weights == GroupedKind::kE4m3 ? rates.e4m3_per_second : rates.s8_per_second;
}

/// What one shape is run with: rows, and router logits for each launch of a graph.
class TimedExperts {
 public:
  TimedExperts(const CudaContext& context, CublasLtGemm& lt, const ExpertsShape& shape,
               GroupedKind weights, int64_t rows_max)
      : context_(context),
        shape_(shape),
        weights_(weights),
        experts_(random_experts(context, lt, weights, shape)),
        x_(random_numbers(rows_max * shape.hidden_size)),
        y_(static_cast<size_t>(rows_max * shape.hidden_size) * 2, "outputs to time"),
        logits_(static_cast<size_t>(kNumLaunches * rows_max * shape.num_experts) * sizeof(float),
                "router logits to time") {
    std::vector<float> logits(logits_.num_bytes() / sizeof(float));
    std::mt19937 random(11);
    std::uniform_real_distribution<float> uniform;
    for (float& logit : logits) logit = uniform(random);
    check_cuda(
        cudaMemcpy(logits_.data(), logits.data(), logits_.num_bytes(), cudaMemcpyHostToDevice),
        "copy of router logits");
    // The stream does not wait for copies beside it.
    check_cuda(cudaDeviceSynchronize(), "copies of random numbers");
  }

  ExpertsTime time(const GpuRates& rates, int64_t M) {
    ExpertsTime result = {.shape = shape_.name, .weights = weights_, .M = M};
    result.num_touched = touched(M);
    const auto run = [&](int64_t launch) { experts_.run(context_, x(M), logits(launch, M), y(M)); };
    result.microseconds = graph_microseconds(run);
    const size_t mark = context_.workspace.mark();
    const DeviceRouting routing =
        take_routing(context_.workspace, M, shape_.num_experts, shape_.num_experts_per_token);
    result.routing_microseconds = graph_microseconds(
        [&](int64_t launch) { route_rows(context_, logits(launch, M), true, routing); });
    const Matrix slots = {
        context_.workspace.take(static_cast<size_t>(routing.num_slots() * shape_.hidden_size * 2)),
        DType::kF16, routing.num_slots(), shape_.hidden_size, shape_.hidden_size};
    result.sum_microseconds =
        graph_microseconds([&](int64_t) { combine_rows(context_, routing, slots, y(M)); });
    context_.workspace.release(mark);
    const double expert_weights =
        3.0 * static_cast<double>(shape_.hidden_size) * static_cast<double>(shape_.width);
    const double expert_bytes = stored_bytes(weights_, 2 * shape_.width, shape_.hidden_size) +
                                stored_bytes(weights_, shape_.hidden_size, shape_.width);
    const auto num_slots = static_cast<double>(M * shape_.num_experts_per_token);
    result.floor_microseconds =
        1e6 * std::max(expert_bytes * result.num_touched / rates.bytes_per_second,
                       2 * expert_weights * num_slots / peak(rates, weights_));
    return result;
  }

 private:
  Matrix y(int64_t M) const {
    return {y_.data(), DType::kF16, M, shape_.hidden_size, shape_.hidden_size};
  }
  ConstMatrix x(int64_t M) const {
    return {x_.data(), DType::kF16, M, shape_.hidden_size, shape_.hidden_size};
  }
  ConstMatrix logits(int64_t launch, int64_t M) const {
    const int64_t E = shape_.num_experts;
    return f32_matrix(reinterpret_cast<const float*>(logits_.data()) + launch * M * E, M, E);
  }

  /// Experts that have rows in a launch, on average over those of a graph.
  double touched(int64_t M) const {
    const size_t mark = context_.workspace.mark();
    const DeviceRouting routing =
        take_routing(context_.workspace, M, shape_.num_experts, shape_.num_experts_per_token);
    std::vector<int32_t> begin(static_cast<size_t>(shape_.num_experts) + 1);
    int64_t total = 0;
    for (int64_t launch = 0; launch < kNumLaunches; ++launch) {
      route_rows(context_, logits(launch, M), true, routing);
      check_cuda(cudaMemcpyAsync(begin.data(), routing.expert_begin, begin.size() * sizeof(int32_t),
                                 cudaMemcpyDeviceToHost, context_.stream.get()),
                 "copy of a routing");
      context_.stream.synchronize();
      for (size_t e = 0; e + 1 < begin.size(); ++e) total += begin[e] < begin[e + 1] ? 1 : 0;
    }
    context_.workspace.release(mark);
    return static_cast<double>(total) / static_cast<double>(kNumLaunches);
  }

  /// Of one launch.
  double graph_microseconds(const std::function<void(int64_t)>& launch_one) const {
    return time_products(context_, static_cast<size_t>(kNumLaunches),
                         [&](size_t launch) { launch_one(static_cast<int64_t>(launch)); });
  }

  const CudaContext& context_;
  const ExpertsShape& shape_;
  GroupedKind weights_;
  CudaExperts experts_;
  DeviceBuffer x_, y_, logits_;
};

}  // namespace

std::vector<ExpertsShape> published_experts_shapes() {
  return {{.name = "Mixtral 8x7B",
           .num_experts = 8,
           .num_experts_per_token = 2,
           .hidden_size = 4096,
           .width = 14336},
          {.name = "Qwen3-30B-A3B",
           .num_experts = 128,
           .num_experts_per_token = 8,
           .hidden_size = 2048,
           .width = 768}};
}

std::vector<GroupedKind> timed_experts_weights() {
  std::vector<GroupedKind> all = {GroupedKind::kF16};
  for (int kind = 0; kind < kNumQuantizedKinds; ++kind) {
    const auto weights = static_cast<GroupedKind>(kind);
    if (weights != GroupedKind::kU4Bf16 && weights != GroupedKind::kU8Bf16) all.push_back(weights);
  }
  return all;
}

std::vector<ExpertsTime> time_experts(const CudaContext& context, CublasLtGemm& lt,
                                      const TimeExpertsOptions& options) {
  std::vector<ExpertsTime> times;
  if (options.rows.empty()) return times;
  const int64_t rows_max = *std::max_element(options.rows.begin(), options.rows.end());
  const auto shapes = options.shapes.empty() ? published_experts_shapes() : options.shapes;
  for (const ExpertsShape& shape : shapes) {
    HALLEY_CHECK(shape.hidden_size % 16 == 0 && shape.width % 16 == 0, shape.hidden_size,
                 shape.width);
    for (const GroupedKind weights : options.weights) {
      TimedExperts timed(context, lt, shape, weights, rows_max);
      for (const int64_t M : options.rows) times.push_back(timed.time(options.rates, M));
    }
  }
  return times;
}

}  // namespace halley::cuda
