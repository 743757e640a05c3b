#include "halley/sampling/cuda/time_sampling.h"

#include <algorithm>
#include <random>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/str.h"
#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/sampling/cuda/cuda_sampler.h"

namespace halley::cuda {
namespace {

constexpr int kNumReplays = 7;
constexpr int kNumLaunches = 20;

void copy(const CudaStream& stream, std::byte* device, const void* host, size_t num_bytes) {
  check_cuda(cudaMemcpyAsync(device, host, num_bytes, cudaMemcpyHostToDevice, stream.get()),
             "filling what is timed");
  stream.synchronize();
}

/// Logits for all rows: each row begins at another index.
std::vector<float> trained_logits(int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& logit : logits) logit = 3 * normal(random) - 2;
  for (size_t i = 0; i < logits.size(); i += 4096) logits[i] = 12 + 2 * normal(random);
  return logits;
}

SamplingTiming time_case(const CudaDeviceInfo& device, double bytes_per_second,
                         const SamplingTimingCase& shape) {
  const CudaStream stream;
  DeviceArena arena(DeviceArena::kAlignment, "sampling's workspace");
  const CudaContext context{device, stream, arena};
  const auto num_rows = static_cast<size_t>(shape.num_rows);
  const auto row_bytes = static_cast<size_t>(shape.vocab_size) * sizeof(float);
  const DeviceBuffer logits(num_rows * row_bytes, "the timed logits");
  const DeviceBuffer slots(num_rows * sizeof(int32_t), "slots");
  const DeviceBuffer records(num_rows * sizeof(ChoiceRecord), "records");
  const std::vector<float> some = trained_logits(shape.vocab_size + shape.num_rows);
  CudaSampler sampler(shape.vocab_size, shape.num_rows);
  std::vector<int32_t> numbers(num_rows);
  for (size_t row = 0; row < num_rows; ++row) {
    copy(stream, logits.data() + row * row_bytes, some.data() + row, row_bytes);
    numbers[row] = static_cast<int32_t>(row);
    TokenChoice choice = shape.choice;
    choice.seed = row;
    sampler.start_slot(stream, numbers[row], choice, std::vector<int32_t>{1, 2, 3}, {});
  }
  copy(stream, slots.data(), numbers.data(), slots.num_bytes());
  const auto matrix =
      f32_matrix(reinterpret_cast<const float*>(logits.data()), shape.num_rows, shape.vocab_size);
  const CudaGraph graph = CudaGraph::capture(stream, [&] {
    for (int i = 0; i < kNumLaunches; ++i) {
      sampler.choose(context, matrix,
                     {.slots = reinterpret_cast<const int32_t*>(slots.data()),
                      .records = reinterpret_cast<ChoiceRecord*>(records.data())});
    }
  });
  graph.launch(stream);  // warm
  const CudaEvent start(CudaEvent::Time::kYes), end(CudaEvent::Time::kYes);
  std::vector<double> times;
  for (int replay = 0; replay < kNumReplays; ++replay) {
    stream.record(start);
    graph.launch(stream);
    stream.record(end);
    end.synchronize();
    times.push_back(1e3 * static_cast<double>(end.milliseconds_since(start)) / kNumLaunches);
  }
  stream.synchronize();
  std::sort(times.begin(), times.end());
  return {.shape = shape,
          .median_us = times[times.size() / 2],
          .least_us = times.front(),
          .most_us = times.back(),
          .floor_us = 1e6 * static_cast<double>(logits.num_bytes()) / bytes_per_second};
}

}  // namespace

std::vector<SamplingTimingCase> sampling_timing_cases() {
  const std::pair<const char*, TokenChoice> kChoices[] = {
      {"greedy", {.params = {.temperature = 0}}},
      {"greedy, logprobs 5", {.params = {.temperature = 0}, .num_logprobs = 5}},
      {"greedy, penalties", {.params = {.temperature = 0, .repetition_penalty = 1.1}}},
      {"temperature", {.params = {.temperature = 0.8}}},
      {"top_k 50", {.params = {.temperature = 0.8, .top_k = 50}}},
      {"top_p 0.9", {.params = {.temperature = 0.8, .top_p = 0.9}}},
      {"top_k, top_p, min_p",
       {.params = {.temperature = 0.8, .top_k = 50, .top_p = 0.9, .min_p = 0.02}}}};
  std::vector<SamplingTimingCase> cases;
  for (const auto& [name, choice] : kChoices) {
    for (const int64_t num_rows : {1, 32, 256}) {
      SamplingTimingCase shape;
      shape.name = str(num_rows, " x ", name);
      shape.num_rows = num_rows;
      shape.choice = choice;
      cases.push_back(shape);
    }
  }
  return cases;
}

std::vector<SamplingTiming> time_sampling(const CudaDeviceInfo& device, double bytes_per_second,
                                          std::span<const SamplingTimingCase> cases) {
  std::vector<SamplingTiming> timings;
  for (const SamplingTimingCase& shape : cases) {
    timings.push_back(time_case(device, bytes_per_second, shape));
  }
  return timings;
}

}  // namespace halley::cuda
