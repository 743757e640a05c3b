#include "halley/cuda/gemm/time_products.h"

#include <algorithm>
#include <random>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_graph.h"

namespace halley::cuda {
namespace {

constexpr size_t kNumRepeats = 3;
constexpr int64_t kNumProductsMin = 20;
constexpr size_t kPatternBytes = size_t{8} << 20;

/// A graph of products, copy after copy.
class ProductGraph {
 public:
  ProductGraph(const CudaContext& context, size_t num_copies,
               const std::function<void(size_t copy)>& queue,
               CudaGraph::ProgrammaticEdges programmatic_edges)
      : context_(context),
        num_products_(round_up(kNumProductsMin, static_cast<int64_t>(num_copies))) {
    const auto copies = static_cast<int64_t>(num_copies);
    graph_ = CudaGraph::capture(
        context.stream,
        [&] {
          for (int64_t i = 0; i < num_products_; ++i) queue(static_cast<size_t>(i % copies));
        },
        programmatic_edges);
  }

  const CudaGraph& graph() const { return graph_; }

  /// Microseconds of a product, the median of three launches behind a first one; of those until
  /// then where that is well above the limit.
  double time(double limit) const {
    // The first one waits for the clock to rise, and for what CUDA does at a graph's first launch.
    const double first = launch();
    if (first > 1.5 * limit) return first;
    std::vector<double> times = {launch()};
    while (times.size() < kNumRepeats && times.back() <= 1.1 * limit) times.push_back(launch());
    const auto middle = times.begin() + static_cast<int64_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

 private:
  double launch() const {
    context_.stream.record(start_);
    graph_.launch(context_.stream);
    context_.stream.record(end_);
    end_.synchronize();
    return 1e3 * end_.milliseconds_since(start_) / static_cast<double>(num_products_);
  }

  const CudaContext& context_;
  int64_t num_products_;
  CudaGraph graph_;
  CudaEvent start_{CudaEvent::Time::kYes}, end_{CudaEvent::Time::kYes};
};

}  // namespace

std::vector<std::pair<int64_t, int64_t>> llama_gemm_shapes() {
  return {{6144, 4096},  {4096, 4096}, {28672, 4096}, {4096, 14336},
          {10240, 8192}, {8192, 8192}, {57344, 8192}, {8192, 28672}};
}

std::vector<std::pair<int64_t, int64_t>> timed_shapes(const TimeGemmOptions& options) {
  return options.shapes.empty() ? llama_gemm_shapes() : options.shapes;
}

int64_t timed_rows_max(const TimeGemmOptions& options) {
  int64_t most = 1;
  for (const int64_t M : options.rows) most = std::max(most, M);
  return most;
}

double floor_microseconds(const GpuRates& rates, const ProductWork& work) {
  const auto rows = static_cast<double>(work.M), outputs = static_cast<double>(work.N);
  const auto inputs = static_cast<double>(work.K);
  const double num_bytes =
      work.weight_bytes + rows * inputs * work.input_bytes + rows * outputs * 2;
  return 1e6 * std::max(num_bytes / rates.bytes_per_second,
                        2 * rows * outputs * inputs / work.operations_per_second);
}

size_t num_timed_copies(const CudaContext& context, size_t weight_bytes) {
  return std::max<size_t>(2, ceil_div(3 * context.device.l2_bytes, weight_bytes));
}

double time_products(const CudaContext& context, size_t num_copies,
                     const std::function<void(size_t copy)>& queue, double limit) {
  queue(0);  // what CUDA loads at the first call
  return ProductGraph(context, num_copies, queue, CudaGraph::ProgrammaticEdges::kKept).time(limit);
}

TunedPlan fastest_plan(const CudaContext& context, size_t num_copies, const TunedGemm& gemm,
                       int64_t M, const std::vector<TunedCandidate>& candidates) {
  HALLEY_CHECK(!candidates.empty(), gemm.kernel, gemm.N, gemm.K, M);
  TunedPlan best = {
      .gemm = gemm, .rows = M, .microseconds = std::numeric_limits<double>::infinity()};
  for (const TunedCandidate& candidate : candidates) {
    const double microseconds =
        time_products(context, num_copies, candidate.queue, best.microseconds);
    if (microseconds >= best.microseconds) continue;
    best.microseconds = microseconds;
    best.settings = candidate.settings;
  }
  return best;
}

ProductTime time_starts(const CudaContext& context, size_t num_copies,
                        const std::function<void(size_t copy)>& queue) {
  queue(0);
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  const ProductGraph apart(context, num_copies, queue, CudaGraph::ProgrammaticEdges::kRemoved);
  ProductTime time = {.microseconds = apart.time(kNoLimit)};
  if (apart.graph().num_removed_edges() > 0) {
    const ProductGraph early(context, num_copies, queue, CudaGraph::ProgrammaticEdges::kKept);
    time.early_microseconds = early.time(kNoLimit);
  }
  return time;
}

std::vector<uint8_t> random_codes(size_t num_bytes) {
  std::vector<uint8_t> codes(std::min(num_bytes, kPatternBytes));
  std::mt19937 random(7);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
  return codes;
}

std::vector<uint8_t> random_f16(size_t num_bytes) {
  std::vector<uint8_t> numbers = random_codes(num_bytes);
  for (size_t i = 1; i < numbers.size(); i += 2) {
    numbers[i] = static_cast<uint8_t>(0x30 | (numbers[i] & 0x8B));
  }
  return numbers;
}

void fill_pattern(std::byte* device, size_t num_bytes, std::span<const uint8_t> pattern) {
  HALLEY_CHECK(!pattern.empty(), num_bytes);
  size_t done = std::min(pattern.size(), num_bytes);
  check_cuda(cudaMemcpy(device, pattern.data(), done, cudaMemcpyHostToDevice),
             "copy of numbers to time");
  while (done < num_bytes) {
    const size_t count = std::min(done, num_bytes - done);
    check_cuda(cudaMemcpy(device + done, device, count, cudaMemcpyDeviceToDevice),
               "copy of numbers to time");
    done += count;
  }
  check_cuda(cudaDeviceSynchronize(), "copy of numbers to time");
}

void fill_pattern(const DeviceBuffer& buffer, std::span<const uint8_t> pattern) {
  fill_pattern(buffer.data(), buffer.num_bytes(), pattern);
}

void fill_numbers(const DeviceBuffer& buffer, float value) {
  const std::vector<float> values(std::min(buffer.num_bytes(), kPatternBytes) / sizeof(float),
                                  value);
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  fill_pattern(buffer, {bytes, values.size() * sizeof(float)});
}

}  // namespace halley::cuda
