#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "halley/base/check.h"
#include "halley/core/float16.h"
#include "halley/kernels/attention/attention.h"

namespace halley {
namespace {

double element(DType dtype, const std::byte* row, int64_t index) {
  if (dtype == DType::kF32) {
    return static_cast<double>(reinterpret_cast<const float*>(row)[index]);
  }
  const uint16_t bits = reinterpret_cast<const uint16_t*>(row)[index];
  return static_cast<double>(dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits));
}

// One query: a head of one token.
struct Query {
  const BatchSequence& sequence;
  int64_t position;
  int64_t kv_head;
  const float* q;
};

void attend_head(const AttentionProblem& problem, const KvLayerView& cache, const Query& query,
                 float* out) {
  const BatchSequence& sequence = query.sequence;
  const int64_t position = query.position;
  const KvPageLayout& layout = cache.layout;
  std::vector<double> scores, sums(static_cast<size_t>(layout.head_dim), 0.0);
  double largest = -std::numeric_limits<double>::infinity();
  const int64_t begin =
      problem.window > 0 ? std::max<int64_t>(0, position - problem.window + 1) : 0;
  const auto page_of = [&](int64_t t) {
    const auto page =
        static_cast<size_t>(sequence.page_table[static_cast<size_t>(t / layout.page_tokens)]);
    return cache.pages + page * layout.page_bytes();
  };
  for (int64_t t = begin; t <= position; ++t) {
    const std::byte* key = page_of(t) + layout.key_offset(query.kv_head, t % layout.page_tokens);
    double dot = 0;
    for (int64_t i = 0; i < layout.head_dim; ++i) {
      dot += static_cast<double>(query.q[i]) * element(layout.dtype, key, i);
    }
    double score = dot * static_cast<double>(problem.scale);
    const auto cap = static_cast<double>(problem.soft_cap);
    if (cap > 0) score = cap * std::tanh(score / cap);
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  double weight_sum = 0;
  for (int64_t t = begin; t <= position; ++t) {
    const std::byte* value =
        page_of(t) + layout.value_offset(query.kv_head, t % layout.page_tokens);
    const double weight = std::exp(scores[static_cast<size_t>(t - begin)] - largest);
    weight_sum += weight;
    for (int64_t i = 0; i < layout.head_dim; ++i) {
      sums[static_cast<size_t>(i)] += weight * element(layout.dtype, value, i);
    }
  }
  for (int64_t i = 0; i < layout.head_dim; ++i) {
    out[i] = static_cast<float>(sums[static_cast<size_t>(i)] / weight_sum);
  }
}

}  // namespace

void paged_attention_reference(const AttentionProblem& problem, const KvLayerView& cache,
                               std::span<const BatchSequence> sequences, ConstMatrix q,
                               Matrix out) {
  check_sequences(cache, sequences, q.num_rows);
  const int64_t head_dim = cache.layout.head_dim;
  const int64_t group_size = problem.num_heads / cache.layout.num_kv_heads;
  for (const BatchSequence& sequence : sequences) {
    for (int64_t token = 0; token < sequence.num_new_tokens; ++token) {
      const int64_t m = sequence.first_row + token;
      for (int64_t head = 0; head < problem.num_heads; ++head) {
        attend_head(problem, cache,
                    {sequence, sequence.num_past_tokens + token, head / group_size,
                     q.row<float>(m) + head * head_dim},
                    out.row<float>(m) + head * head_dim);
      }
    }
  }
}

}  // namespace halley
