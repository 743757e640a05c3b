#include "halley/cuda/experts/time_experts.h"

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/cuda/experts/cuda_experts.h"
#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/moe/moe_rows.h"
#include "halley/cuda/runtime/cuda_check.h"

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

CudaLinear random_layer(CublasLtGemm& lt, int64_t N, int64_t K) {
  std::vector<CudaLinear::Section> sections(1);
  CudaLinear::Section& section = sections[0];
  section.N = N;
  section.K = K;
  section.form = "random numbers";
  DeviceBuffer memory = random_numbers(N * K);
  const ConstMatrix rows = {memory.data(), DType::kF16, N, K, K};
  section.weight = std::make_unique<RowsWeight>(std::move(memory), rows);
  // No kernel of its own: the grouped product is all that runs.
  return {"experts", DType::kF16, std::move(sections), lt};
}

CudaExperts random_experts(const CudaContext& context, CublasLtGemm& lt,
                           const ExpertsShape& shape) {
  std::vector<CudaLinear> gate_up, down;
  for (int64_t e = 0; e < shape.num_experts; ++e) {
    gate_up.push_back(random_layer(lt, 2 * shape.width, shape.hidden_size));
    down.push_back(random_layer(lt, shape.hidden_size, shape.width));
  }
  return {context,
          {.num_experts_per_token = shape.num_experts_per_token, .activation_dtype = DType::kF16},
          std::move(gate_up),
          std::move(down)};
}

/// What one shape is run with: rows, and router logits for each launch of a graph.
class TimedExperts {
 public:
  TimedExperts(const CudaContext& context, CublasLtGemm& lt, const ExpertsShape& shape,
               int64_t rows_max)
      : context_(context),
        shape_(shape),
        experts_(random_experts(context, lt, shape)),
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
    ExpertsTime result = {.shape = shape_.name, .M = M};
    result.num_touched = touched(M);
    result.microseconds = graph_microseconds(
        [&](int64_t launch) { experts_.run(context_, x(M), logits(launch, M), y(M)); });
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
    const auto num_slots = static_cast<double>(M * shape_.num_experts_per_token);
    result.floor_microseconds =
        1e6 * std::max(2 * expert_weights * result.num_touched / rates.bytes_per_second,
                       2 * expert_weights * num_slots / rates.f16_per_second);
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

std::vector<ExpertsTime> time_experts(const CudaContext& context, CublasLtGemm& lt,
                                      const TimeExpertsOptions& options) {
  std::vector<ExpertsTime> times;
  if (options.rows.empty()) return times;
  const int64_t rows_max = *std::max_element(options.rows.begin(), options.rows.end());
  const auto shapes = options.shapes.empty() ? published_experts_shapes() : options.shapes;
  for (const ExpertsShape& shape : shapes) {
    HALLEY_CHECK(shape.hidden_size % 8 == 0 && shape.width % 8 == 0, shape.hidden_size,
                 shape.width);
    TimedExperts timed(context, lt, shape, rows_max);
    for (const int64_t M : options.rows) times.push_back(timed.time(options.rates, M));
  }
  return times;
}

}  // namespace halley::cuda
