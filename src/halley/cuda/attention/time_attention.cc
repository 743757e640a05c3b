#include "halley/cuda/attention/time_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <cuda_runtime_api.h>

#include "halley/base/checked_math.h"
#include "halley/cuda/attention/cuda_attention.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_graph.h"

namespace halley {
namespace {

constexpr int kNumReplays = 7;
constexpr int64_t kNumLaunchesMin = 20;

// Fills with values that are finite and positive in every cache type and as scales: 16-bit words
// 0x3400 to 0x37FF. Zeros would run faster than real data.
void fill(std::byte* device, size_t num_bytes, const CudaStream& stream) {
  std::mt19937 random(1);
  std::vector<uint16_t> block(size_t{1} << 21);
  for (uint16_t& word : block) word = static_cast<uint16_t>(0x3400u | (random() & 0x3FFu));
  const size_t block_bytes = block.size() * sizeof(uint16_t);
  for (size_t at = 0; at < num_bytes; at += block_bytes) {
    check_cuda(cudaMemcpyAsync(device + at, block.data(), std::min(block_bytes, num_bytes - at),
                               cudaMemcpyHostToDevice, stream.get()),
               "filling the cache");
  }
  stream.synchronize();
}

CudaAttentionLimits limits_of(const AttentionTimingCase& shape, int num_sms) {
  CudaAttentionLimits limits;
  limits.num_sequences = shape.num_sequences;
  limits.num_tokens = shape.num_sequences * shape.num_tokens;
  limits.num_new_tokens = shape.num_sequences * shape.num_new_tokens;
  limits.pages_per_sequence = ceil_div(shape.num_tokens, shape.page_tokens);
  limits.num_heads = shape.num_heads;
  limits.num_kv_heads = shape.num_kv_heads;
  limits.head_dim = shape.head_dim;
  limits.num_sms = num_sms;
  return limits;
}

// Pages of all sequences in shuffled order.
std::vector<int32_t> shuffled_pages(int64_t count) {
  std::vector<int32_t> pages(static_cast<size_t>(count));
  std::iota(pages.begin(), pages.end(), 0);
  std::mt19937 random(2);
  std::shuffle(pages.begin(), pages.end(), random);
  return pages;
}

AttentionProblem problem_of(const AttentionTimingCase& shape) {
  return {shape.num_heads, 1.0f / std::sqrt(static_cast<float>(shape.head_dim)), 0, 0};
}

// Two GEMMs with 2 FLOP for each position that a new token attends to.
double num_causal_flops(const AttentionTimingCase& shape) {
  const int64_t first_seen = shape.num_tokens - shape.num_new_tokens + 1;
  const double pairs = 0.5 * static_cast<double>(shape.num_new_tokens) *
                       static_cast<double>(first_seen + shape.num_tokens);
  return 4 * pairs * static_cast<double>(shape.num_sequences * shape.num_heads * shape.head_dim);
}

std::vector<BatchSequence> sequences_of(const AttentionTimingCase& shape,
                                        std::span<const int32_t> pages) {
  const int64_t stride = ceil_div(shape.num_tokens, shape.page_tokens);
  std::vector<BatchSequence> sequences;
  for (int64_t i = 0; i < shape.num_sequences; ++i) {
    sequences.push_back(
        {i * shape.num_new_tokens, shape.num_new_tokens, shape.num_tokens - shape.num_new_tokens,
         pages.subspan(static_cast<size_t>(i * stride), static_cast<size_t>(stride))});
  }
  return sequences;
}

AttentionTiming time_case(const CudaDeviceInfo& device, const AttentionTimingCase& shape) {
  const CudaStream stream;
  DeviceArena arena(DeviceArena::kAlignment, "attention's workspace");
  const CudaContext context{device, stream, arena};
  const AttentionProblem problem = problem_of(shape);
  const KvPageLayout layout{shape.dtype, shape.num_kv_heads, shape.head_dim, shape.page_tokens};
  CudaAttentionBatch batch(limits_of(shape, device.num_sms));
  const int64_t sequence_pages = batch.limits().pages_per_sequence;
  const int64_t num_pages = sequence_pages * shape.num_sequences;
  const std::vector<int32_t> pages = shuffled_pages(num_pages);
  batch.update(stream, problem, layout, num_pages, sequences_of(shape, pages));

  const size_t copy_bytes =
      round_up(static_cast<size_t>(num_pages) * layout.page_bytes(), DeviceArena::kAlignment);
  const int64_t num_copies =
      std::max<int64_t>(2, static_cast<int64_t>(ceil_div(4 * device.l2_bytes, copy_bytes)));
  const DeviceBuffer cache(static_cast<size_t>(num_copies) * copy_bytes, "the timed caches");
  fill(cache.data(), cache.num_bytes(), stream);
  const int64_t num_columns = shape.num_heads * shape.head_dim;
  const int64_t num_rows = shape.num_sequences * shape.num_new_tokens;
  const auto activation_bytes = static_cast<size_t>(2 * num_rows * num_columns);
  const DeviceBuffer q(activation_bytes, "queries"), out(activation_bytes, "outputs");
  fill(q.data(), q.num_bytes(), stream);
  const DType dtype = shape.dtype == KvDType::kBf16 ? DType::kBf16 : DType::kF16;
  const Matrix q_matrix{q.data(), dtype, num_rows, num_columns, num_columns};
  const Matrix out_matrix{out.data(), dtype, num_rows, num_columns, num_columns};

  const int64_t num_launches = round_up(kNumLaunchesMin, num_copies);
  const CudaGraph graph = CudaGraph::capture(stream, [&] {
    for (int64_t i = 0; i < num_launches; ++i) {
      std::byte* copy = cache.data() + static_cast<size_t>(i % num_copies) * copy_bytes;
      const KvLayerView view{layout, copy, num_pages};
      if (shape.num_new_tokens == 1) {
        cuda_decode_attention(context, problem, view, batch, q_matrix, out_matrix);
      } else {
        cuda_prefill_attention(context, problem, view, batch, q_matrix, out_matrix);
      }
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
    times.push_back(1e3 * static_cast<double>(end.milliseconds_since(start)) /
                    static_cast<double>(num_launches));
  }
  stream.synchronize();
  std::sort(times.begin(), times.end());
  AttentionTiming timing;
  timing.shape = shape;
  timing.median_us = times[times.size() / 2];
  timing.least_us = times.front();
  timing.most_us = times.back();
  timing.num_kv_bytes =
      shape.num_sequences * shape.num_tokens * static_cast<int64_t>(layout.token_bytes());
  timing.num_flops = num_causal_flops(shape);
  return timing;
}

}  // namespace

std::vector<AttentionTiming> time_attention(const CudaDeviceInfo& device, double bytes_per_second,
                                            std::span<const AttentionTimingCase> cases,
                                            double flops_per_second) {
  std::vector<AttentionTiming> timings;
  for (const AttentionTimingCase& shape : cases) {
    AttentionTiming timing = time_case(device, shape);
    const double copy_seconds = static_cast<double>(timing.num_kv_bytes) / bytes_per_second;
    timing.floor_us = 1e6 * std::max(copy_seconds, timing.num_flops / flops_per_second);
    timings.push_back(timing);
  }
  return timings;
}

}  // namespace halley
