#include "halley/kernels/attention/testing/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "halley/base/check.h"
#include "halley/kernels/attention/attention.h"
#include "halley/kernels/kv/testing/kv_reference.h"

namespace halley {
namespace {

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
    const KvRow key = layout.key_row(page_of(t), query.kv_head, t % layout.page_tokens);
    double dot = 0;
    for (int64_t i = 0; i < layout.head_dim; ++i) {
      dot += static_cast<double>(query.q[i]) * kv_element(layout.dtype, key.data, key.scale, i);
    }
    double score = dot * static_cast<double>(problem.scale);
    const auto cap = static_cast<double>(problem.soft_cap);
    if (cap > 0) score = cap * std::tanh(score / cap);
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  double weight_sum = 0;
  for (int64_t t = begin; t <= position; ++t) {
    const KvRow value = layout.value_row(page_of(t), query.kv_head, t % layout.page_tokens);
    const double weight = std::exp(scores[static_cast<size_t>(t - begin)] - largest);
    weight_sum += weight;
    for (int64_t i = 0; i < layout.head_dim; ++i) {
      sums[static_cast<size_t>(i)] += weight * kv_element(layout.dtype, value.data, value.scale, i);
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
